#pragma once

#include <string>

#include "chat/ast.h"
#include "chat/run.h"

namespace automodel::chat {

struct Activation;
class Interpreter;

/// A macro, or the body of a call block.
struct Macro {
  Interpreter* interpreter;
  const Statement* statement;
  Activation* activation;  ///< where it was defined
};

/// Runs a program over variables (a dict) and appends to `out`. Throws Failure with line and
/// column.
void execute(Run& run, const Program& program, const Dict& variables, Output& out);

/// callee(*arguments); throws Failure for what cannot be called.
Value call(Run& run, const Value& callee, const Arguments& arguments);

}  // namespace automodel::chat
