#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat/value.h"

namespace automodel::chat {

struct Filter;
struct Test;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

enum class Op : uint8_t {
  kName,       // name, role
  kConstant,   // constant
  kTuple,      // items
  kList,       // items
  kDict,       // items: key, value, key, value ...
  kCondition,  // items: test, then, else or null
  kOr,
  kAnd,
  kNot,
  kCompare,  // items; comparisons between them
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegative,
  kPositive,
  kConcatenate,
  kAttribute,     // items: object; name
  kItem,          // items: object, key
  kSlice,         // items: object, start, stop, step; null where not given
  kCall,          // items: callee; call
  kFilter,        // items: value, null at the head of a filter block; name, call
  kTest,          // items: value; name, call
  kNamespaceRef,  // name, attribute
};

enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
enum class Role : uint8_t { kLoad, kStore, kParameter };

/// Where a variable lies: in the activation of a function so many levels up.
struct Place {
  int hops = 0;
  int slot = 0;
};

/// What a call hands over.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *values
  ExpressionPtr double_star;  // **values

  bool has_only_positional() const {
    return named.empty() && star == nullptr && double_star == nullptr;
  }
  bool is_empty() const { return positional.empty() && has_only_positional(); }
};

/// A part of a sum that is written out: an expression, or the text of constants that are
/// neighbours.
struct SumPiece {
  const Expression* expression;  // null: the text
  Value text;
};

struct Expression {
  Op op;
  int line = 0;
  int column = 0;
  int depth = 1;  // of expressions inside it
  Role role = Role::kLoad;
  bool is_key = false;  // of kAttribute and kItem: in a dict, the key `name` is looked for first
  std::string name;
  std::string attribute;
  Value constant;
  Value name_value;  // the name as a string
  std::vector<ExpressionPtr> items;
  std::vector<Comparison> comparisons;
  std::unique_ptr<CallArguments> call;
  std::vector<SumPiece> pieces;  // of a kAdd that is written out
  Place place;
  const Filter* filter = nullptr;
  const Test* test = nullptr;
};

enum class Tag : uint8_t {
  kOutput,       // expressions
  kFor,          // target, value (what is iterated), test or null, is_recursive, body, else_body
  kIf,           // branches, else_body
  kMacro,        // name, parameters, defaults, body
  kCallBlock,    // value (the call), parameters, defaults, body
  kGeneration,   // body
  kFilterBlock,  // value (the filters), body
  kSet,          // target, value
  kSetBlock,     // target, value (filters) or null, body
  kWith,         // targets, expressions, body
  kBlock,        // name, body
  kBreak,
  kContinue,
  kNoLoader,  // include, import, extends: fails when it is reached
};

/// Sets a slot when a frame is entered.
struct Load {
  enum class From : uint8_t { kNothing, kContext, kOuter };
  int slot = 0;
  From from = From::kNothing;
  std::string name;  // kContext
  Place outer;       // kOuter
};

/// The variables of a body, made anew when it is entered.
struct FrameLoads {
  std::vector<Load> loads;
};

struct Branch {
  ExpressionPtr test;
  Body body;
};

struct Statement {
  Tag tag;
  int line = 0;
  int column = 0;
  std::string name;
  Value name_value;
  std::vector<ExpressionPtr> expressions;
  ExpressionPtr target;
  ExpressionPtr value;
  ExpressionPtr test;
  std::vector<ExpressionPtr> targets;
  std::vector<ExpressionPtr> parameters;
  std::vector<ExpressionPtr> defaults;
  std::vector<Branch> branches;
  Body body;
  Body else_body;
  bool is_recursive = false;

  // What scope.h finds out.
  FrameLoads frame;           // of the body
  FrameLoads else_frame;      // of a loop's else
  FrameLoads test_frame;      // of a loop's test
  ExpressionPtr test_target;  // the target in the test's frame
  bool uses_loop = false;
  bool is_in_context = false;  // a set at the top level of a template that has blocks
  int loop_slot = -1;
  int caller_slot = -1;
  int keywords_slot = -1;
  int varargs_slot = -1;
  int num_slots = 0;  // of a function's activation
  Place place;        // of a macro's name
};

/// A template as it was read.
struct Program {
  explicit Program(size_t max_bytes) : arena(max_bytes) {}

  Arena arena;  // the constants
  Body body;
  FrameLoads frame;
  int num_slots = 0;
  bool has_generation = false;
  bool has_blocks = false;
};

}  // namespace automodel::chat
