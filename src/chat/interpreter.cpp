#include "chat/interpreter.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "chat/characters.h"
#include "chat/filters.h"
#include "chat/globals.h"
#include "chat/iteration.h"
#include "chat/operators.h"
#include "core/text.h"

namespace automodel::chat {

/// The variables of one call of a function.
struct Activation {
  Activation* outer;
  Value* slots;
};

namespace {
enum class Flow : uint8_t { kNext, kBreak, kContinue };
}

/// Walks a program's tree.
class Interpreter final {
 public:
  Interpreter(Run& run, const Program& program, const Dict& variables)
      : run_(run), program_(program), variables_(variables) {}

  void run_program() {
    Activation activation = new_activation(nullptr, program_.num_slots);
    enter(program_.frame, activation);
    run_body(program_.body, activation);
  }

  Value call_macro(const Macro& macro, const Arguments& arguments) {
    const Run::Depth depth(run_);
    const Statement& node = *macro.statement;
    Activation* activation =
        run_.arena.make<Activation>(new_activation(macro.activation, node.num_slots));
    enter(node.frame, *activation);
    bind_parameters(node, arguments, *activation);
    return render(node.body, *activation);
  }

  /// The body of a recursive loop over other items.
  Value call_loop(const Statement& node, Activation* outer, const Value& items, int64_t depth0) {
    const Run::Depth depth(run_);
    Activation* activation = run_.arena.make<Activation>(new_activation(outer, node.num_slots));
    return written_by([&] { run_loop(node, *activation, items, depth0); });
  }

 private:
  // Frames and variables

  Activation new_activation(Activation* outer, int num_slots) {
    Activation out{outer, run_.arena.make_array<Value>(static_cast<size_t>(num_slots))};
    std::fill(out.slots, out.slots + num_slots, Value());
    return out;
  }

  static Value& slot_at(const Place& place, Activation& activation) {
    Activation* at = &activation;
    for (int i = 0; i < place.hops; ++i) at = at->outer;
    return at->slots[place.slot];
  }

  Value find_variable(std::string_view name) const {
    if (program_.has_blocks) {
      if (const Value* value = assigned_.find(name)) return *value;
    }
    if (const Value* value = variables_.find(name)) return *value;
    // The template's blocks by name: none, where those that are called by it are not known.
    if (name == "self" && !program_.has_blocks) {
      return Value::from(Kind::kNamespace, run_.arena.make<Dict>());
    }
    return find_global(name);
  }

  void enter(const FrameLoads& frame, Activation& activation) {
    for (const Load& load : frame.loads) {
      Value value;
      if (load.from == Load::From::kContext) value = find_variable(load.name);
      if (load.from == Load::From::kOuter) value = slot_at(load.outer, activation);
      activation.slots[load.slot] = value;
    }
  }

  void assign(const Expression& target, const Value& value, Activation& activation) {
    if (target.op == Op::kName) {
      slot_at(target.place, activation) = value;
      return;
    }
    if (target.op == Op::kNamespaceRef) {
      slot_at(target.place, activation).dict->set(run_, target.constant, value);
      return;
    }
    unpack(target, value, activation);
  }

  void unpack(const Expression& target, const Value& value, Activation& activation) {
    if (!is_iterable(value)) {
      throw Failure(cat("cannot unpack non-iterable ", type_name(value), " object"));
    }
    const Value items = to_list(run_, value);
    const size_t wanted = target.items.size();
    if (items.list->size < wanted) {
      throw Failure(
          cat("not enough values to unpack (expected ", wanted, ", got ", items.list->size, ")"));
    }
    if (items.list->size > wanted) {
      throw Failure(cat("too many values to unpack (expected ", wanted, ")"));
    }
    for (size_t i = 0; i < wanted; ++i) assign(*target.items[i], items.list->items[i], activation);
  }

  /// Keeps what a set at the top level stores where blocks see it.
  void publish(const Expression& target, Activation& activation) {
    if (target.op == Op::kName) {
      assigned_.set(run_, target.name_value, slot_at(target.place, activation));
    }
    for (const ExpressionPtr& item : target.items) publish(*item, activation);
  }

  // Statements

  /// What `write` puts out, as a text. A failure ends the rendering, so it needs no undoing.
  template <typename Write>
  Value written_by(const Write& write) {
    std::array<char, 256> memory;
    Output buffer(memory);
    Output* const before = std::exchange(run_.output, &buffer);
    write();
    run_.output = before;
    return run_.text(buffer.view());
  }

  /// The output of a body as a text.
  Value render(const Body& body, Activation& activation, Flow* flow = nullptr) {
    return written_by([&] {
      const Flow end = run_body(body, activation);
      if (flow != nullptr) *flow = end;
    });
  }

  Flow run_body(const Body& body, Activation& activation) {
    for (const StatementPtr& statement : body) {
      const Flow flow = run(*statement, activation);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& statement, Activation& activation) {
    const Run::Depth depth(run_);
    run_.step();
    try {
      return run_here(statement, activation);
    } catch (Failure& failure) {
      if (failure.line == 0) {
        failure.line = statement.line;
        failure.column = statement.column;
      }
      throw;
    }
  }

  Flow run_here(const Statement& statement, Activation& activation) {
    switch (statement.tag) {
      case Tag::kOutput:
        run_output(statement, activation);
        return Flow::kNext;
      case Tag::kFor:
        return run_for(statement, activation);
      case Tag::kIf:
        return run_if(statement, activation);
      case Tag::kSet:
        check_namespaces(*statement.target, activation);
        assign(*statement.target, evaluate(*statement.value, activation), activation);
        if (statement.is_in_context) publish(*statement.target, activation);
        return Flow::kNext;
      case Tag::kSetBlock:
        return run_set_block(statement, activation);
      case Tag::kFilterBlock:
        return run_filter_block(statement, activation);
      case Tag::kMacro: {
        slot_at(statement.place, activation) = macro_value(statement, activation);
        if (statement.is_in_context) {
          assigned_.set(run_, statement.name_value, slot_at(statement.place, activation));
        }
        return Flow::kNext;
      }
      case Tag::kCallBlock: {
        const Value caller = macro_value(statement, activation);
        append(call_expression(*statement.value, activation, &caller));
        return Flow::kNext;
      }
      case Tag::kGeneration:
        run_generation(statement, activation);
        return Flow::kNext;
      case Tag::kWith:
        return run_with(statement, activation);
      case Tag::kBlock:
        return run_block(statement);
      case Tag::kBreak:
        return Flow::kBreak;
      case Tag::kContinue:
        return Flow::kContinue;
      case Tag::kNoLoader:
        throw Failure("no loader for this environment specified");
    }
    return Flow::kNext;
  }

  void append(std::string_view text) {
    run_.output->append(text);
    run_.step_bytes(text.size());
    run_.check_output(*run_.output);
  }

  void append(const Value& value) {
    if (value.is_string()) return append(value.text->bytes);
    std::string text;
    append_str(run_, value, text);
    append(text);
  }

  void run_output(const Statement& statement, Activation& activation) {
    for (const ExpressionPtr& item : statement.expressions) {
      if (item->pieces.empty() || item->pieces.size() > kMaxPieces) {
        append(evaluate(*item, activation));
      } else {
        append_sum(*item, activation);
      }
    }
  }

  /// Writes a sum of texts piece by piece, without making it. What is no text is added as usual.
  void append_sum(const Expression& sum, Activation& activation) {
    const Text* texts[kMaxPieces];
    size_t count = 0;
    for (const SumPiece& piece : sum.pieces) {
      const Value value =
          piece.expression == nullptr ? piece.text : evaluate(*piece.expression, activation);
      if (!is_plain(value)) {
        append(add_up(sum, activation, SumSoFar{sum.pieces, {texts, count}, value}));
        return;
      }
      texts[count++] = value.text;
    }
    for (const Text* text : std::span(texts, count)) append(text->bytes);
  }

  /// What was evaluated of a sum before one part was no text, in order: each part once.
  struct SumSoFar {
    std::span<const SumPiece> pieces;
    std::span<const Text* const> texts;  ///< of the first pieces
    Value last;                          ///< of the next one
    size_t num_taken = 0;
  };

  Value add_up(const Expression& part, Activation& activation, SumSoFar&& done) {
    return add_up(part, activation, done);
  }

  Value add_up(const Expression& sum, Activation& activation, SumSoFar& done) {
    if (sum.op != Op::kAdd) return part_of_sum(sum, activation, done);
    const Value left = add_up(*sum.items[0], activation, done);
    const Value right = part_of_sum(*sum.items[1], activation, done);
    return located(sum, [&] { return binary_operation(run_, Op::kAdd, left, right); });
  }

  Value part_of_sum(const Expression& part, Activation& activation, SumSoFar& done) {
    if (part.op == Op::kConstant) return part.constant;
    for (; done.num_taken <= done.texts.size(); ++done.num_taken) {
      const SumPiece& piece = done.pieces[done.num_taken];
      if (piece.expression != &part) continue;
      return done.num_taken < done.texts.size() ? Value::from(done.texts[done.num_taken])
                                                : done.last;
    }
    return evaluate(part, activation);
  }

  static bool is_plain(const Value& value) { return value.is_string() && !value.text->is_markup; }

  Flow run_if(const Statement& statement, Activation& activation) {
    for (const Branch& branch : statement.branches) {
      if (is_true(run_, evaluate(*branch.test, activation))) {
        return run_body(branch.body, activation);
      }
    }
    return run_body(statement.else_body, activation);
  }

  Flow run_for(const Statement& statement, Activation& activation) {
    const Value items = evaluate(*statement.value, activation);
    if (statement.is_recursive) {
      append(call_loop(statement, &activation, items, 0));
      return Flow::kNext;
    }
    return run_loop(statement, activation, items, 0);
  }

  /// The items that pass a loop's test.
  class Passing final : public Iterator {
   public:
    Passing(Interpreter& interpreter, const Statement& statement, Activation& activation,
            const Value& items)
        : Iterator("generator"),
          interpreter_(interpreter),
          statement_(statement),
          activation_(activation),
          items_(interpreter.run_, items) {
      interpreter.enter(statement.test_frame, activation);
    }

    bool next(Run& run, Value& value) override {
      while (items_.next(value)) {
        interpreter_.assign(*statement_.test_target, value, activation_);
        if (is_true(run, interpreter_.evaluate(*statement_.test, activation_))) return true;
      }
      return false;
    }

   private:
    Interpreter& interpreter_;
    const Statement& statement_;
    Activation& activation_;
    Items items_;
  };

  static Value recurse(Run& run, const Loop& loop, const Value& items) {
    (void)run;
    const auto& statement = *static_cast<const Statement*>(loop.recursive_node);
    auto* scope = static_cast<std::pair<Interpreter*, Activation*>*>(loop.recursive_scope);
    return scope->first->call_loop(statement, scope->second, items, loop.depth0 + 1);
  }

  Flow run_loop(const Statement& statement, Activation& activation, Value items, int64_t depth0) {
    if (statement.test != nullptr) {
      Value passing;
      passing.kind = Kind::kIterator;
      // Kept in this frame's scope: loops inside may run the same statement again.
      passing.iterator = run_.arena.make<Passing>(*this, statement, activation, items);
      items = passing;
    }
    Loop* loop = nullptr;
    if (statement.uses_loop) {
      loop = run_.arena.make<Loop>(run_, items, static_cast<int>(depth0));
      if (statement.is_recursive) {
        loop->recurse = recurse;
        loop->recursive_node = &statement;
        loop->recursive_scope =
            run_.arena.make<std::pair<Interpreter*, Activation*>>(this, activation.outer);
      }
    }
    bool is_empty = true;
    Flow outer = Flow::kNext;
    if (loop != nullptr) {
      for (Value item; loop_next(run_, *loop, item);) {
        if (!run_iteration(statement, activation, item, loop, is_empty)) break;
      }
    } else {
      Items each(run_, items);
      for (Value item; each.next(item);) {
        if (!run_iteration(statement, activation, item, nullptr, is_empty)) break;
      }
    }
    if (is_empty && !statement.else_body.empty()) {
      enter(statement.else_frame, activation);
      outer = run_body(statement.else_body, activation);
    }
    return outer;
  }

  /// False after a break. `is_empty` becomes false when the body came to its end: jinja2 runs the
  /// loop's else unless that happened.
  bool run_iteration(const Statement& statement, Activation& activation, const Value& item,
                     Loop* loop, bool& is_empty) {
    Value loop_value;
    if (loop != nullptr) {
      loop_value.kind = Kind::kLoop;
      loop_value.loop = loop;
    }
    if (statement.loop_slot >= 0) activation.slots[statement.loop_slot] = loop_value;
    assign(*statement.target, item, activation);
    enter(statement.frame, activation);
    const Flow flow = run_body(statement.body, activation);
    if (flow == Flow::kNext) is_empty = false;
    return flow != Flow::kBreak;
  }

  void check_namespaces(const Expression& target, Activation& activation) {
    if (target.op == Op::kNamespaceRef && !slot_at(target.place, activation).is(Kind::kNamespace)) {
      throw Failure("cannot assign attribute on non-namespace object");
    }
    for (const ExpressionPtr& item : target.items) check_namespaces(*item, activation);
  }

  Flow run_set_block(const Statement& statement, Activation& activation) {
    enter(statement.frame, activation);
    Flow flow = Flow::kNext;
    Value value = render(statement.body, activation, &flow);
    if (flow != Flow::kNext) return flow;
    if (statement.value != nullptr) value = filter_block(*statement.value, value, activation);
    check_namespaces(*statement.target, activation);
    assign(*statement.target, value, activation);
    if (statement.is_in_context) publish(*statement.target, activation);
    return Flow::kNext;
  }

  Flow run_filter_block(const Statement& statement, Activation& activation) {
    enter(statement.frame, activation);
    Flow flow = Flow::kNext;
    const Value value = render(statement.body, activation, &flow);
    if (flow != Flow::kNext) return flow;
    append(filter_block(*statement.value, value, activation));
    return Flow::kNext;
  }

  /// Filters whose innermost takes a block's text.
  Value filter_block(const Expression& filter, const Value& text, Activation& activation) {
    const Value value =
        filter.items[0] == nullptr ? text : filter_block(*filter.items[0], text, activation);
    return apply_filter_to(filter, value, activation);
  }

  Flow run_with(const Statement& statement, Activation& activation) {
    enter(statement.frame, activation);
    for (size_t i = 0; i < statement.targets.size(); ++i) {
      assign(*statement.targets[i], evaluate(*statement.expressions[i], activation), activation);
    }
    return run_body(statement.body, activation);
  }

  Flow run_block(const Statement& statement) {
    Activation* activation =
        run_.arena.make<Activation>(new_activation(nullptr, statement.num_slots));
    enter(statement.frame, *activation);
    return run_body(statement.body, *activation);
  }

  void run_generation(const Statement& statement, Activation& activation) {
    Activation* inside =
        run_.arena.make<Activation>(new_activation(&activation, statement.num_slots));
    enter(statement.frame, *inside);
    const Value value = render(statement.body, *inside);
    run_.generations.push_back({run_.root->size(), length_of(*value.text)});
    append(value);
  }

  Value macro_value(const Statement& statement, Activation& activation) {
    // A macro may outlive the call that defines it.
    Activation* kept = run_.arena.make<Activation>(activation);
    Value out;
    out.kind = Kind::kMacro;
    out.macro = run_.arena.make<Macro>(this, &statement, kept);
    return out;
  }

  // Macros' parameters

  static std::string macro_repr(const Statement& node) {
    return node.tag == Tag::kMacro ? cat("'", node.name, "'") : "None";
  }

  void bind_parameters(const Statement& node, const Arguments& arguments, Activation& activation) {
    const size_t num_parameters = node.parameters.size();
    std::vector<NamedValue> named(arguments.named.begin(), arguments.named.end());
    const auto take = [&](std::string_view name) {
      for (auto it = named.begin(); it != named.end(); ++it) {
        if (it->name != name) continue;
        const Value value = it->value;
        named.erase(it);
        return value;
      }
      return Value();
    };
    for (size_t i = 0; i < num_parameters; ++i) {
      Value value;
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else {
        value = take(node.parameters[i]->name);
      }
      slot_at(node.parameters[i]->place, activation) = value;
    }
    if (node.caller_slot >= 0) {
      const Value caller = take("caller");
      activation.slots[node.caller_slot] = caller.is_missing() || caller.is_none()
                                               ? run_.undefined_hint("No caller defined")
                                               : caller;
    }
    bind_rest(node, arguments, named, activation);
    bind_defaults(node, activation);
  }

  void bind_rest(const Statement& node, const Arguments& arguments,
                 const std::vector<NamedValue>& named, Activation& activation) {
    const size_t num_parameters = node.parameters.size();
    if (node.keywords_slot >= 0) {
      Value dict = Value::from(Kind::kDict, run_.arena.make<Dict>());
      for (const NamedValue& item : named) dict.dict->set(run_, run_.text(item.name), item.value);
      activation.slots[node.keywords_slot] = dict;
    } else if (!named.empty()) {
      if (named.front().name == "caller") {
        throw Failure(cat("macro ", macro_repr(node),
                          " was invoked with two values for the special caller argument. This is "
                          "most likely a bug."));
      }
      throw Failure(
          cat("macro ", macro_repr(node), " takes no keyword argument '", named.front().name, "'"));
    }
    if (node.varargs_slot >= 0) {
      Value rest = run_.new_list(0, Kind::kTuple);
      for (size_t i = num_parameters; i < arguments.positional.size(); ++i) {
        rest.list->append(run_.arena, arguments.positional[i]);
      }
      activation.slots[node.varargs_slot] = rest;
    } else if (arguments.positional.size() > num_parameters) {
      throw Failure(
          cat("macro ", macro_repr(node), " takes not more than ", num_parameters, " argument(s)"));
    }
  }

  void bind_defaults(const Statement& node, Activation& activation) {
    const size_t first = node.parameters.size() - node.defaults.size();
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      Value& slot = slot_at(node.parameters[i]->place, activation);
      if (!slot.is_missing()) continue;
      if (i >= first) {
        slot = evaluate(*node.defaults[i - first], activation);
      } else {
        slot =
            run_.undefined_hint(cat("parameter '", node.parameters[i]->name, "' was not provided"));
      }
    }
  }

  // Expressions

  /// Says where an operation failed, unless something inside it knows better.
  template <typename Operation>
  static Value located(const Expression& expression, const Operation& operation) {
    try {
      return operation();
    } catch (Failure& failure) {
      if (failure.line == 0) {
        failure.line = expression.line;
        failure.column = expression.column;
      }
      throw;
    }
  }

  [[gnu::always_inline]] inline Value evaluate(const Expression& expression,
                                               Activation& activation) {
    if (expression.op == Op::kConstant) return expression.constant;
    if (expression.op == Op::kName) {
      const Value& value = slot_at(expression.place, activation);
      if (!value.is_missing()) return value;
      return run_.undefined_variable(expression.name_value);
    }
    if (expression.is_key) return evaluate_member(expression, activation);
    return evaluate_node(expression, activation);
  }

  /// object.name and object["name"]: a dict's, which most are, at once.
  Value evaluate_member(const Expression& expression, Activation& activation) {
    const Run::Depth depth(run_);
    run_.step();
    const Value object = evaluate(*expression.items[0], activation);
    if (object.is(Kind::kDict)) {
      if (const Value* value = object.dict->find(expression.name)) return *value;
      if (expression.op == Op::kAttribute) {
        return run_.undefined_member(object, expression.name_value);
      }
    }
    return located(expression, [&] {
      return expression.op == Op::kItem ? get_item(run_, object, expression.items[1]->constant)
                                        : get_attribute(run_, object, expression.name_value);
    });
  }

  Value evaluate_node(const Expression& expression, Activation& activation) {
    const Run::Depth depth(run_);
    run_.step();
    return located(expression, [&] { return evaluate_here(expression, activation); });
  }

  Value evaluate_here(const Expression& expression, Activation& activation) {
    const auto item = [&](size_t index) { return evaluate(*expression.items[index], activation); };
    switch (expression.op) {
      case Op::kTuple:
      case Op::kList: {
        const Kind kind = expression.op == Op::kList ? Kind::kList : Kind::kTuple;
        Value out = run_.new_list(expression.items.size(), kind);
        for (size_t i = 0; i < expression.items.size(); ++i) out.list->append(run_.arena, item(i));
        return out;
      }
      case Op::kDict:
        return evaluate_dict(expression, activation);
      case Op::kCondition:
        return evaluate_condition(expression, activation);
      case Op::kOr: {
        const Value left = item(0);
        return is_true(run_, left) ? left : item(1);
      }
      case Op::kAnd: {
        const Value left = item(0);
        return is_true(run_, left) ? item(1) : left;
      }
      case Op::kNot:
        return Value::from(!is_true(run_, item(0)));
      case Op::kCompare:
        return evaluate_compare(expression, activation);
      case Op::kNegative:
        return negative(run_, item(0));
      case Op::kPositive:
        return positive(run_, item(0));
      case Op::kConcatenate:
        return evaluate_concatenation(expression, activation);
      case Op::kAttribute:
        return get_attribute(run_, item(0), expression.name_value);
      case Op::kItem: {
        const Value object = item(0);
        return get_item(run_, object, item(1));
      }
      case Op::kSlice:
        return evaluate_slice(expression, activation);
      case Op::kCall:
        return call_expression(expression, activation, nullptr);
      case Op::kFilter:
        return apply_filter_to(expression, item(0), activation);
      case Op::kTest:
        return evaluate_test(expression, activation);
      default: {
        const Value left = item(0);
        return binary_operation(run_, expression.op, left, item(1));
      }
    }
  }

  Value evaluate_dict(const Expression& expression, Activation& activation) {
    Value out = Value::from(Kind::kDict, run_.arena.make<Dict>());
    for (size_t i = 0; i < expression.items.size(); i += 2) {
      const Value key = evaluate(*expression.items[i], activation);
      hash_of(run_, key);
      out.dict->set(run_, key, evaluate(*expression.items[i + 1], activation));
    }
    return out;
  }

  Value evaluate_condition(const Expression& expression, Activation& activation) {
    if (is_true(run_, evaluate(*expression.items[0], activation))) {
      return evaluate(*expression.items[1], activation);
    }
    if (expression.items[2] != nullptr) return evaluate(*expression.items[2], activation);
    return run_.undefined_hint(cat("the inline if-expression on line ", expression.line,
                                   " evaluated to false and no else section was defined."));
  }

  Value evaluate_compare(const Expression& expression, Activation& activation) {
    Value left = evaluate(*expression.items[0], activation);
    for (size_t i = 0; i < expression.comparisons.size(); ++i) {
      const Value right = evaluate(*expression.items[i + 1], activation);
      if (!compare(run_, expression.comparisons[i], left, right)) return Value::from(false);
      left = right;
    }
    return Value::from(true);
  }

  Value evaluate_concatenation(const Expression& expression, Activation& activation) {
    // All operands first: one that fails fails before any of them is printed.
    Value* values = run_.arena.make_array<Value>(expression.items.size());
    size_t count = 0;
    for (const ExpressionPtr& item : expression.items) {
      values[count++] = evaluate(*item, activation);
    }
    std::string_view out;
    for (size_t i = 0; i < count; ++i) {
      if (values[i].is_string()) {
        out = run_.arena.concatenate(out, values[i].text->bytes);
      } else {
        std::string text;
        append_str(run_, values[i], text);
        out = run_.arena.concatenate(out, text);
      }
      run_.step_bytes(out.size());
    }
    return run_.text_view(out);
  }

  Value evaluate_slice(const Expression& expression, Activation& activation) {
    Value parts[4];
    for (size_t i = 0; i < 4; ++i) {
      if (expression.items[i] != nullptr) parts[i] = evaluate(*expression.items[i], activation);
    }
    return slice(run_, parts[0], parts[1], parts[2], parts[3]);
  }

  Value evaluate_test(const Expression& expression, Activation& activation) {
    if (expression.test == nullptr)
      throw Failure(cat("No test named '", expression.name, "' found."));
    const Value value = evaluate(*expression.items[0], activation);
    if (expression.call->is_empty()) return expression.test->call(run_, {{&value, 1}, {}});
    const CallValues values(*this, *expression.call, activation, &value);
    return expression.test->call(run_, values.arguments());
  }

  Value apply_filter_to(const Expression& expression, const Value& value, Activation& activation) {
    if (expression.filter == nullptr) {
      throw Failure(cat("No filter named '", expression.name, "' found."));
    }
    if (expression.call->is_empty()) return expression.filter->call(run_, {{&value, 1}, {}});
    const CallValues values(*this, *expression.call, activation, &value);
    return expression.filter->call(run_, values.arguments());
  }

  Value call_expression(const Expression& expression, Activation& activation, const Value* caller) {
    const Value callee = evaluate(*expression.items[0], activation);
    CallValues values(*this, *expression.call, activation, nullptr);
    if (caller != nullptr) values.add_named("caller", *caller);
    try {
      return call(run_, callee, values.arguments());
    } catch (Failure& failure) {
      if (failure.line == 0) {
        failure.line = expression.line;
        failure.column = expression.column;
      }
      throw;
    }
  }

  /// The evaluated arguments of a call; few of them stay on the stack.
  class CallValues final {
   public:
    CallValues(Interpreter& interpreter, const CallArguments& call, Activation& activation,
               const Value* first) {
      const bool is_small = call.positional.size() < kNumSmall && call.has_only_positional();
      if (is_small) {
        if (first != nullptr) small_[num_small_++] = *first;
        for (const ExpressionPtr& item : call.positional) {
          small_[num_small_++] = interpreter.evaluate(*item, activation);
        }
        return;
      }
      is_small_ = false;
      if (first != nullptr) positional_.push_back(*first);
      for (const ExpressionPtr& item : call.positional) {
        positional_.push_back(interpreter.evaluate(*item, activation));
      }
      for (const auto& [name, item] : call.named) {
        named_.push_back({name, interpreter.evaluate(*item, activation)});
      }
      if (call.star != nullptr) add_star(interpreter, *call.star, activation);
      if (call.double_star != nullptr) add_double_star(interpreter, *call.double_star, activation);
    }

    void add_named(std::string_view name, const Value& value) {
      for (const NamedValue& item : named_) {
        if (item.name == name) {
          throw Failure(cat("got multiple values for keyword argument '", name, "'"));
        }
      }
      named_.push_back({name, value});
    }

    Arguments arguments() const {
      if (is_small_) return {{small_, num_small_}, named_};
      return {positional_, named_};
    }

   private:
    static constexpr size_t kNumSmall = 4;

    void add_star(Interpreter& interpreter, const Expression& star, Activation& activation) {
      const Value values = interpreter.evaluate(star, activation);
      if (!is_iterable(values)) {
        throw Failure(cat("argument after * must be an iterable, not ", type_name(values)));
      }
      Items items(interpreter.run_, values);
      for (Value item; items.next(item);) positional_.push_back(item);
    }

    void add_double_star(Interpreter& interpreter, const Expression& star, Activation& activation) {
      const Value values = interpreter.evaluate(star, activation);
      if (!values.is(Kind::kDict)) {
        throw Failure(cat("argument after ** must be a mapping, not ", type_name(values)));
      }
      for (size_t i = 0; i < values.dict->size; ++i) {
        const Dict::Entry& entry = values.dict->entries[i];
        if (!entry.key.is_string()) throw Failure("keywords must be strings");
        add_named(entry.key.text->bytes, entry.value);
      }
    }

    Value small_[kNumSmall + 1];
    size_t num_small_ = 0;
    bool is_small_ = true;
    std::vector<Value> positional_;
    std::vector<NamedValue> named_;
  };

  static constexpr size_t kMaxPieces = 16;

  Run& run_;
  const Program& program_;
  const Dict& variables_;
  Dict assigned_;  // what blocks see of the top level's sets
};

void execute(Run& run, const Program& program, const Dict& variables, Output& out) {
  run.output = &out;
  run.root = &out;
  Interpreter(run, program, variables).run_program();
}

Value call(Run& run, const Value& callee, const Arguments& arguments) {
  switch (callee.kind) {
    case Kind::kFunction:
      return callee.function->builtin->call(run, callee.function->self, arguments);
    case Kind::kMacro:
      return callee.macro->interpreter->call_macro(*callee.macro, arguments);
    case Kind::kJoiner: {
      if (!arguments.positional.empty() || !arguments.named.empty()) {
        throw Failure("Joiner.__call__() takes 1 positional argument");
      }
      Joiner& joiner = *callee.joiner;
      if (joiner.is_used) return joiner.separator;
      joiner.is_used = true;
      return run.text_view("");
    }
    case Kind::kLoop:
      if (callee.loop->recurse == nullptr) {
        throw Failure("The loop must have the 'recursive' marker to be called recursively.");
      }
      if (arguments.positional.size() != 1 || !arguments.named.empty()) {
        throw Failure("LoopContext.__call__() takes 2 positional arguments");
      }
      return callee.loop->recurse(run, *callee.loop, arguments.positional[0]);
    case Kind::kUndefined:
      fail_undefined(run, callee);
    default:
      throw Failure(cat("'", type_name(callee), "' object is not callable"));
  }
}

}  // namespace automodel::chat
