#include "chat/scope.h"

#include <map>
#include <optional>
#include <set>

#include "chat/filters.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

/// Slots of one function's activation.
struct Scope {
  const Scope* outer = nullptr;
  int num_slots = 0;
};

struct Reference {
  Scope* scope = nullptr;
  int slot = -1;
};

/// jinja2's Symbols: the names of one frame. Branches of an `if` are copies that share the slots.
struct Symbols {
  Symbols(Symbols* parent_, Scope* scope_)
      : parent(parent_), scope(scope_), slots(std::make_shared<std::map<std::string, int>>()) {}

  struct Origin {
    enum class Kind { kParameter, kContext, kOuter, kNothing } kind;
    Reference outer;
  };

  int define(const std::string& name, Origin origin) {
    const auto [place, is_new] = slots->try_emplace(name, scope->num_slots);
    if (is_new) ++scope->num_slots;
    references.insert(name);
    origins[name] = origin;
    return place->second;
  }

  std::optional<Reference> find(const std::string& name) const {
    if (references.contains(name)) return Reference{scope, slots->at(name)};
    if (parent != nullptr) return parent->find(name);
    return std::nullopt;
  }

  void load(const std::string& name) {
    if (!find(name)) define(name, {Origin::Kind::kContext, {}});
  }

  void store(const std::string& name) {
    stores.insert(name);
    if (references.contains(name)) return;
    if (const auto outer = find_outer(name)) {
      define(name, {Origin::Kind::kOuter, *outer});
    } else {
      define(name, {Origin::Kind::kNothing, {}});
    }
  }

  int declare_parameter(const std::string& name) {
    stores.insert(name);
    return define(name, {Origin::Kind::kParameter, {}});
  }

  std::optional<Reference> find_outer(const std::string& name) const {
    return parent == nullptr ? std::nullopt : parent->find(name);
  }

  /// Takes in what the branches of an `if` did.
  void update(const std::vector<Symbols>& branches) {
    std::set<std::string> stored;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stores) {
        if (!stores.contains(name)) stored.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      references.insert(branch.references.begin(), branch.references.end());
      for (const auto& [name, origin] : branch.origins) origins[name] = origin;
      stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const std::string& name : stored) {
      if (const auto outer = find_outer(name)) {
        origins[name] = {Origin::Kind::kOuter, *outer};
      } else {
        origins[name] = {Origin::Kind::kContext, {}};
      }
    }
  }

  Symbols* parent;
  Scope* scope;
  std::shared_ptr<std::map<std::string, int>> slots;
  std::set<std::string> references;
  std::map<std::string, Origin> origins;
  std::set<std::string> stores;
};

template <typename Visit>
void for_each_argument(const Expression& expression, Visit&& visit) {
  if (expression.call == nullptr) return;
  for (const ExpressionPtr& item : expression.call->positional) visit(*item);
  for (const auto& [name, item] : expression.call->named) visit(*item);
  if (expression.call->star != nullptr) visit(*expression.call->star);
  if (expression.call->double_star != nullptr) visit(*expression.call->double_star);
}

template <typename Visit>
void for_each_child(const Expression& expression, Visit&& visit) {
  for (const ExpressionPtr& item : expression.items) {
    if (item != nullptr) visit(*item);
  }
  for_each_argument(expression, visit);
}

/// jinja2's FrameSymbolVisitor: what the statements of a frame say about names, without going into
/// frames inside it.
class FrameVisitor final {
 public:
  explicit FrameVisitor(Symbols& symbols) : symbols_(&symbols) {}

  void visit(const Expression& expression, bool is_parameter = false) {
    if (expression.op == Op::kName) {
      if (is_parameter || expression.role == Role::kParameter) {
        symbols_->declare_parameter(expression.name);
      } else if (expression.role == Role::kStore) {
        symbols_->store(expression.name);
      } else {
        symbols_->load(expression.name);
      }
      return;
    }
    if (expression.op == Op::kNamespaceRef) symbols_->load(expression.name);
    for_each_child(expression, [&](const Expression& child) { visit(child, is_parameter); });
  }

  void visit(const Body& body) {
    for (const StatementPtr& statement : body) visit(*statement);
  }

  void visit(const Statement& statement) {
    switch (statement.tag) {
      case Tag::kOutput:
        for (const ExpressionPtr& item : statement.expressions) visit(*item);
        break;
      case Tag::kFor:
      case Tag::kCallBlock:
      case Tag::kFilterBlock:
        visit(*statement.value);
        break;
      case Tag::kIf:
        visit_branches(statement);
        break;
      case Tag::kMacro:
        symbols_->store(statement.name);
        break;
      case Tag::kSet:
        visit(*statement.value);
        visit(*statement.target);
        break;
      case Tag::kSetBlock:
        visit(*statement.target);
        break;
      case Tag::kWith:
        for (const ExpressionPtr& item : statement.expressions) visit(*item);
        break;
      default:
        break;
    }
  }

 private:
  Symbols visit_copy(const Body& body) {
    Symbols* original = symbols_;
    Symbols copy = *original;
    symbols_ = &copy;
    visit(body);
    symbols_ = original;
    return copy;
  }

  void visit_branches(const Statement& statement) {
    visit(*statement.branches.front().test);
    std::vector<Symbols> branches;
    branches.push_back(visit_copy(statement.branches.front().body));
    Symbols* original = symbols_;
    Symbols others = *original;
    symbols_ = &others;
    for (size_t i = 1; i < statement.branches.size(); ++i) {
      visit(*statement.branches[i].test);
      const Symbols nothing = others;
      others.update({visit_copy(statement.branches[i].body), nothing, nothing});
    }
    symbols_ = original;
    branches.push_back(std::move(others));
    branches.push_back(visit_copy(statement.else_body));
    symbols_->update(branches);
  }

  Symbols* symbols_;
};

/// jinja2's find_undeclared: which of some names a body loads before it stores them.
class UndeclaredNames final {
 public:
  explicit UndeclaredNames(std::set<std::string> names) : names_(std::move(names)) {}

  void visit(const Expression& expression) {
    if (expression.op == Op::kName) {
      if (expression.role == Role::kLoad && names_.contains(expression.name)) {
        found_.insert(expression.name);
      } else {
        names_.erase(expression.name);
      }
    }
    for_each_child(expression, [&](const Expression& child) { visit(child); });
  }
  void visit(const ExpressionPtr& expression) {
    if (expression != nullptr) visit(*expression);
  }
  void visit(const std::vector<ExpressionPtr>& expressions) {
    for (const ExpressionPtr& item : expressions) visit(item);
  }
  void visit(const Body& body) {
    for (const StatementPtr& statement : body) visit(*statement);
  }
  void visit(const Statement& statement) {
    if (statement.tag == Tag::kBlock) return;
    visit(statement.parameters);
    visit(statement.defaults);
    visit(statement.targets);
    visit(statement.target);
    visit(statement.value);
    visit(statement.expressions);
    for (const Branch& branch : statement.branches) {
      visit(branch.test);
      visit(branch.body);
    }
    visit(statement.body);
    visit(statement.else_body);
    visit(statement.test);
  }

  bool has(const std::string& name) const { return found_.contains(name); }

 private:
  std::set<std::string> names_;
  std::set<std::string> found_;
};

ExpressionPtr copy_target(const Expression& target) {
  auto out = std::make_unique<Expression>();
  out->op = target.op;
  out->line = target.line;
  out->column = target.column;
  out->role = target.role;
  out->name = target.name;
  out->name_value = target.name_value;
  for (const ExpressionPtr& item : target.items) out->items.push_back(copy_target(*item));
  return out;
}

/// Gives places to names, frame by frame.
class Resolver final {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  void run() {
    Scope scope;
    Symbols symbols(nullptr, &scope);
    FrameVisitor(symbols).visit(program_.body);
    Frame frame{&symbols, false, true, false};
    resolve(program_.body, frame);
    program_.frame = loads_of(symbols);
    program_.num_slots = scope.num_slots;
  }

 private:
  struct Frame {
    Symbols* symbols;
    bool is_in_loop;  // break and continue have a loop
    bool is_top;      // sets are seen by blocks
    bool is_soft;     // inside an if
  };

  static Place place_of(const Reference& reference, const Scope* from) {
    Place place{0, reference.slot};
    for (const Scope* scope = from; scope != reference.scope; scope = scope->outer) ++place.hops;
    return place;
  }

  static FrameLoads loads_of(const Symbols& symbols) {
    FrameLoads out;
    for (const auto& [name, origin] : symbols.origins) {
      Load load;
      load.slot = symbols.slots->at(name);
      using Kind = Symbols::Origin::Kind;
      if (origin.kind == Kind::kParameter) continue;
      if (origin.kind == Kind::kContext) {
        load.from = Load::From::kContext;
        load.name = name;
      } else if (origin.kind == Kind::kOuter) {
        load.from = Load::From::kOuter;
        load.outer = place_of(origin.outer, symbols.scope);
      }
      out.loads.push_back(std::move(load));
    }
    return out;
  }

  void resolve(Expression& expression, const Frame& frame) {
    if (expression.op == Op::kName || expression.op == Op::kNamespaceRef) {
      const auto found = frame.symbols->find(expression.name);
      check_found(found.has_value(), expression);
      expression.place = place_of(*found, frame.symbols->scope);
    } else if (expression.op == Op::kFilter) {
      expression.filter = find_filter(expression.name);
      check_known(expression, expression.filter != nullptr, "filter", frame);
    } else if (expression.op == Op::kTest) {
      expression.test = find_test(expression.name);
      check_known(expression, expression.test != nullptr, "test", frame);
    }
    Frame inside = frame;
    if (expression.op == Op::kCondition) inside.is_soft = true;
    for (const ExpressionPtr& item : expression.items) {
      if (item != nullptr) resolve(*item, inside);
    }
    if (expression.call == nullptr) return;
    for (const ExpressionPtr& item : expression.call->positional) resolve(*item, inside);
    for (auto& [name, item] : expression.call->named) resolve(*item, inside);
    if (expression.call->star != nullptr) resolve(*expression.call->star, inside);
    if (expression.call->double_star != nullptr) resolve(*expression.call->double_star, inside);
  }

  static void check_found(bool is_found, const Expression& expression) {
    if (!is_found) {
      throw Failure(cat("the variable '", expression.name, "' has no scope"), expression.line,
                    expression.column);
    }
  }

  static void check_known(Expression& expression, bool is_known, const char* what,
                          const Frame& frame) {
    if (is_known || frame.is_soft) return;
    throw Failure(cat("No ", what, " named '", expression.name, "'."), expression.line,
                  expression.column);
  }

  void resolve(Body& body, const Frame& frame) {
    for (const StatementPtr& statement : body) resolve(*statement, frame);
  }

  void resolve(std::vector<ExpressionPtr>& expressions, const Frame& frame) {
    for (const ExpressionPtr& item : expressions) resolve(*item, frame);
  }

  void resolve(Statement& statement, const Frame& frame) {
    switch (statement.tag) {
      case Tag::kOutput:
        return resolve(statement.expressions, frame);
      case Tag::kFor:
        return resolve_for(statement, frame);
      case Tag::kIf:
        return resolve_if(statement, frame);
      case Tag::kMacro:
      case Tag::kCallBlock:
      case Tag::kGeneration:
        return resolve_function(statement, frame);
      case Tag::kFilterBlock:
      case Tag::kSetBlock:
        return resolve_captured(statement, frame);
      case Tag::kSet:
        statement.is_in_context = frame.is_top && program_.has_blocks;
        resolve(*statement.value, frame);
        return resolve(*statement.target, frame);
      case Tag::kWith:
        return resolve_with(statement, frame);
      case Tag::kBlock:
        return resolve_block(statement, frame);
      case Tag::kBreak:
      case Tag::kContinue:
        if (!frame.is_in_loop) {
          const bool is_break = statement.tag == Tag::kBreak;
          throw Failure(is_break ? "'break' outside loop" : "'continue' not properly in loop",
                        statement.line, statement.column);
        }
        return;
      case Tag::kNoLoader:
        return;
    }
  }

  void resolve_if(Statement& statement, const Frame& frame) {
    Frame inside = frame;
    inside.is_soft = true;
    for (Branch& branch : statement.branches) {
      resolve(*branch.test, inside);
      resolve(branch.body, inside);
    }
    resolve(statement.else_body, inside);
  }

  static void check_loop_name(const Statement& statement) {
    // jinja2 looks for stores of `loop` anywhere inside.
    struct Finder {
      void visit(const ExpressionPtr& expression) const {
        if (expression == nullptr) return;
        if (expression->op == Op::kName && expression->role == Role::kStore &&
            expression->name == "loop") {
          throw Failure("Can't assign to special loop variable in for-loop target",
                        expression->line, expression->column);
        }
        for (const ExpressionPtr& item : expression->items) visit(item);
      }
      void visit(const Body& body) const {
        for (const StatementPtr& statement : body) visit(*statement);
      }
      void visit(const Statement& statement) const {
        visit(statement.target);
        for (const Branch& branch : statement.branches) visit(branch.body);
        visit(statement.body);
        visit(statement.else_body);
      }
    };
    Finder().visit(statement);
  }

  void resolve_for(Statement& statement, const Frame& frame) {
    check_loop_name(statement);
    resolve(*statement.value, frame);
    UndeclaredNames undeclared({"loop"});
    undeclared.visit(statement.body);
    statement.uses_loop = statement.is_recursive || undeclared.has("loop");

    Scope own{frame.symbols->scope, 0};
    Scope* scope = statement.is_recursive ? &own : frame.symbols->scope;
    Symbols symbols(frame.symbols, scope);
    if (statement.uses_loop) statement.loop_slot = symbols.declare_parameter("loop");
    FrameVisitor visitor(symbols);
    visitor.visit(*statement.target, true);
    visitor.visit(statement.body);
    const Frame inside{&symbols, true, false, false};
    resolve(*statement.target, inside);
    resolve(statement.body, inside);
    statement.frame = loads_of(symbols);

    if (statement.test != nullptr) {
      Symbols of_test(frame.symbols, scope);
      statement.test_target = copy_target(*statement.target);
      FrameVisitor test_visitor(of_test);
      test_visitor.visit(*statement.test_target, true);
      test_visitor.visit(*statement.test);
      const Frame test_frame{&of_test, false, false, false};
      resolve(*statement.test_target, test_frame);
      resolve(*statement.test, test_frame);
      statement.test_frame = loads_of(of_test);
    }
    Symbols of_else(frame.symbols, scope);
    FrameVisitor(of_else).visit(statement.else_body);
    // A recursive loop's else is inside its function, where no outer loop is.
    const Frame else_frame{&of_else, frame.is_in_loop && !statement.is_recursive, false, false};
    resolve(statement.else_body, else_frame);
    statement.else_frame = loads_of(of_else);
    if (statement.is_recursive) statement.num_slots = own.num_slots;
  }

  void resolve_function(Statement& statement, const Frame& frame) {
    if (statement.tag == Tag::kCallBlock) resolve(*statement.value, frame);
    if (statement.tag == Tag::kMacro) {
      statement.is_in_context = frame.is_top && program_.has_blocks;
      const auto found = frame.symbols->find(statement.name);
      statement.place = place_of(*found, frame.symbols->scope);
    }
    Scope scope{frame.symbols->scope, 0};
    Symbols symbols(frame.symbols, &scope);
    FrameVisitor visitor(symbols);
    for (const ExpressionPtr& item : statement.parameters) visitor.visit(*item);
    for (const ExpressionPtr& item : statement.defaults) visitor.visit(*item);
    visitor.visit(statement.body);
    declare_special(statement, symbols);
    const Frame inside{&symbols, false, false, false};
    for (const ExpressionPtr& item : statement.parameters) resolve(*item, inside);
    resolve(statement.defaults, inside);
    resolve(statement.body, inside);
    statement.frame = loads_of(symbols);
    statement.num_slots = scope.num_slots;
  }

  /// The variables `caller`, `kwargs` and `varargs` of a macro that reads them.
  static void declare_special(Statement& statement, Symbols& symbols) {
    UndeclaredNames undeclared({"caller", "kwargs", "varargs"});
    undeclared.visit(statement.body);
    std::set<std::string> parameters;
    size_t index = 0;
    const size_t num_plain = statement.parameters.size() - statement.defaults.size();
    for (const ExpressionPtr& item : statement.parameters) {
      parameters.insert(item->name);
      if (item->name == "caller" && undeclared.has("caller") && index < num_plain) {
        throw Failure(
            "When defining macros or call blocks the special \"caller\" argument must be omitted "
            "or be given a default.",
            statement.line, statement.column);
      }
      ++index;
    }
    const auto declare = [&](const char* name) {
      if (!undeclared.has(name) || parameters.contains(name)) return -1;
      return symbols.declare_parameter(name);
    };
    statement.caller_slot = declare("caller");
    statement.keywords_slot = declare("kwargs");
    statement.varargs_slot = declare("varargs");
  }

  void resolve_captured(Statement& statement, const Frame& frame) {
    Symbols symbols(frame.symbols, frame.symbols->scope);
    FrameVisitor visitor(symbols);
    visitor.visit(statement.body);
    if (statement.tag == Tag::kFilterBlock) visitor.visit(*statement.value);
    const Frame inside{&symbols, frame.is_in_loop, false, false};
    resolve(statement.body, inside);
    if (statement.value != nullptr) {
      // A set block's filters are not looked at by jinja2 when it collects names.
      if (statement.tag == Tag::kSetBlock) visitor.visit(*statement.value);
      resolve(*statement.value, inside);
    }
    if (statement.tag == Tag::kSetBlock) {
      statement.is_in_context = frame.is_top && program_.has_blocks;
      resolve(*statement.target, frame);
    }
    statement.frame = loads_of(symbols);
  }

  void resolve_with(Statement& statement, const Frame& frame) {
    resolve(statement.expressions, frame);
    Symbols symbols(frame.symbols, frame.symbols->scope);
    FrameVisitor visitor(symbols);
    for (const ExpressionPtr& item : statement.targets) visitor.visit(*item);
    visitor.visit(statement.body);
    const Frame inside{&symbols, frame.is_in_loop, false, false};
    resolve(statement.targets, inside);
    resolve(statement.body, inside);
    statement.frame = loads_of(symbols);
  }

  void resolve_block(Statement& statement, const Frame& frame) {
    // A block sees what is in the context, and no variable of the frames around it.
    (void)frame;
    Scope scope;
    Symbols symbols(nullptr, &scope);
    FrameVisitor(symbols).visit(statement.body);
    const Frame inside{&symbols, false, false, false};
    resolve(statement.body, inside);
    statement.frame = loads_of(symbols);
    statement.num_slots = scope.num_slots;
  }

  Program& program_;
};

}  // namespace

void resolve_names(Program& program) {
  Resolver(program).run();
}

}  // namespace automodel::chat
