#include "chat/parser.h"

#include <algorithm>
#include <initializer_list>

#include "chat/lexer.h"
#include "chat/methods.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

constexpr int kMaxNesting = 120;
constexpr int kMaxDepth = 400;
constexpr size_t kMaxConstantBytes = size_t{1} << 27;

using Names = std::initializer_list<std::string_view>;

class Parser final {
 public:
  explicit Parser(std::string_view source)
      : tokens_(tokenize(source)), program_(std::make_unique<Program>(kMaxConstantBytes)) {}

  std::unique_ptr<Program> run() {
    program_->body = parse_body({});
    return std::move(program_);
  }

 private:
  /// Refuses what is nested too deep to be read without overflowing the stack.
  class Nesting final {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) parser_.fail("the template is nested too deep");
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  [[noreturn]] void fail(const std::string& text) const { fail_at(now(), text); }
  [[noreturn]] static void fail_at(const Token& token, const std::string& text) {
    throw Failure(text, token.line, token.column);
  }

  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    next();
    return true;
  }
  bool skip_operator(std::string_view symbol) {
    if (!now().is_operator(symbol)) return false;
    next();
    return true;
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    if (now().is(TokenType::kEnd)) {
      fail(cat("unexpected end of template, expected '", what, "'."));
    }
    fail(cat("expected token '", what, "', got '", describe(now()), "'"));
  }
  void expect_operator(std::string_view symbol) {
    if (!skip_operator(symbol)) fail_expected(symbol);
  }
  const Token& expect(TokenType type, std::string_view what) {
    if (!now().is(type)) fail_expected(what);
    return next();
  }

  ExpressionPtr make(Op op, const Token& token, std::vector<ExpressionPtr> items = {}) const {
    auto out = std::make_unique<Expression>();
    out->op = op;
    out->line = token.line;
    out->column = token.column;
    out->items = std::move(items);
    for (const ExpressionPtr& item : out->items) {
      if (item != nullptr) out->depth = std::max(out->depth, item->depth + 1);
    }
    if (out->depth > kMaxDepth) fail("the expression is nested too deep");
    return out;
  }
  template <typename... Items>
  ExpressionPtr make_of(Op op, const Token& token, Items... items) const {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(items)), ...);
    return make(op, token, std::move(list));
  }

  Value text_value(std::string_view text) {
    auto* out = program_->arena.make<Text>(program_->arena.copy(text));
    length_of(*out);  // counted now: threads share it
    return Value::from(out);
  }

  ExpressionPtr make_constant(const Token& token, Value value) const {
    ExpressionPtr out = make(Op::kConstant, token);
    out->constant = value;
    return out;
  }

  ExpressionPtr make_named(Op op, const Token& token, const std::string& name,
                           std::vector<ExpressionPtr> items = {}) {
    ExpressionPtr out = make(op, token, std::move(items));
    out->name = name;
    out->name_value = text_value(name);
    return out;
  }

  StatementPtr make_statement(Tag tag, const Token& token) const {
    auto out = std::make_unique<Statement>();
    out->tag = tag;
    out->line = token.line;
    out->column = token.column;
    return out;
  }

  // Statements

  bool is_any(Names names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return now().is_name(name); });
  }

  /// The parts of a sum from left to right.
  static void add_parts(const Expression& sum, std::vector<const Expression*>& parts) {
    if (sum.op == Op::kAdd) {
      add_parts(*sum.items[0], parts);
      parts.push_back(sum.items[1].get());
    } else {
      parts.push_back(&sum);
    }
  }

  /// A sum that is written out gets its pieces: constant texts behind each other are one.
  ExpressionPtr with_pieces(ExpressionPtr written) {
    if (written->op != Op::kAdd) return written;
    std::vector<const Expression*> parts;
    add_parts(*written, parts);
    const auto is_text = [](const Expression* part) {
      return part->op == Op::kConstant && part->constant.is_string();
    };
    for (auto part = parts.begin(); part != parts.end();) {
      const auto end = std::find_if_not(part, parts.end(), is_text);
      if (end == part) {
        written->pieces.push_back({*part++, {}});
        continue;
      }
      std::string text;
      for (; part != end; ++part) text += (*part)->constant.text->bytes;
      written->pieces.push_back({nullptr, text_value(text)});
    }
    return written;
  }

  Body parse_body(Names ends) {
    const Nesting nesting(*this);
    Body body;
    StatementPtr output;
    const auto add_output = [&](const Token& token, ExpressionPtr expression) {
      if (output == nullptr) output = make_statement(Tag::kOutput, token);
      output->expressions.push_back(std::move(expression));
    };
    const auto flush = [&] {
      if (output != nullptr) body.push_back(std::move(output));
    };
    while (!now().is(TokenType::kEnd)) {
      const Token& token = next();
      if (token.is(TokenType::kData)) {
        add_output(token, make_constant(token, text_value(token.text)));
      } else if (token.is(TokenType::kVariableBegin)) {
        add_output(token, with_pieces(parse_tuple({})));
        expect(TokenType::kVariableEnd, "end of print statement");
      } else {
        flush();
        if (is_any(ends)) return body;
        body.push_back(parse_statement());
        expect(TokenType::kBlockEnd, "end of statement block");
      }
    }
    flush();
    if (ends.size() > 0) {
      std::vector<std::string> names;
      for (const std::string_view name : ends) names.push_back(cat("'", name, "'"));
      fail(cat("Unexpected end of template. Jinja was looking for the following tags: ",
               automodel::join(names, " or "), ". The innermost block that needs to be closed is '",
               tags_.back(), "'."));
    }
    return body;
  }

  /// The statements between this tag and one of the ends, which is next then.
  Body parse_until(Names ends) {
    skip_operator(":");
    expect(TokenType::kBlockEnd, "end of statement block");
    return parse_body(ends);
  }
  Body parse_to(std::string_view end) {
    Body body = parse_until({end});
    next();
    return body;
  }

  StatementPtr parse_statement() {
    if (!now().is(TokenType::kName)) fail("tag name expected");
    const Token token = now();
    tags_.push_back(token.text);
    StatementPtr out = parse_tag(token);
    tags_.pop_back();
    return out;
  }

  StatementPtr parse_tag(const Token& token) {
    const std::string& name = token.text;
    if (name == "for") return parse_for();
    if (name == "if") return parse_if();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "print") return parse_print();
    if (name == "block") return parse_block();
    if (name == "generation") {
      StatementPtr out = make_statement(Tag::kGeneration, next());
      out->body = parse_to("endgeneration");
      program_->has_generation = true;
      return out;
    }
    if (name == "break") return make_statement(Tag::kBreak, next());
    if (name == "continue") return make_statement(Tag::kContinue, next());
    if (name == "include" || name == "extends" || name == "import" || name == "from") {
      StatementPtr out = make_statement(Tag::kNoLoader, next());
      while (!now().is(TokenType::kBlockEnd) && !now().is(TokenType::kEnd)) next();
      return out;
    }
    if (name == "autoescape") fail("autoescape blocks are not known here");
    fail(cat("Encountered unknown tag '", name, "'.",
             tags_.size() > 1 ? cat(" The innermost block that needs to be closed is '",
                                    tags_[tags_.size() - 2], "'.")
                              : ""));
  }

  StatementPtr parse_for() {
    StatementPtr out = make_statement(Tag::kFor, next());
    out->target = parse_target({"in"}, false);
    if (!skip_name("in")) fail_expected("in");
    out->value = parse_tuple({"recursive"}, false);
    if (skip_name("if")) out->test = parse_expression();
    out->is_recursive = skip_name("recursive");
    out->body = parse_until({"endfor", "else"});
    if (next().text == "else") out->else_body = parse_to("endfor");
    return out;
  }

  StatementPtr parse_if() {
    StatementPtr out = make_statement(Tag::kIf, next());
    for (;;) {
      Branch branch;
      branch.test = parse_tuple({}, false);
      branch.body = parse_until({"elif", "else", "endif"});
      out->branches.push_back(std::move(branch));
      const std::string& end = next().text;
      if (end == "elif") continue;
      if (end == "else") out->else_body = parse_to("endif");
      return out;
    }
  }

  StatementPtr parse_set() {
    StatementPtr out = make_statement(Tag::kSet, next());
    out->target = parse_target({}, true);
    if (skip_operator("=")) {
      out->value = parse_tuple({});
      return out;
    }
    out->tag = Tag::kSetBlock;
    out->value = parse_filters(nullptr, false);
    out->body = parse_to("endset");
    return out;
  }

  void parse_signature(Statement& out) {
    expect_operator("(");
    while (!now().is_operator(")")) {
      if (!out.parameters.empty()) expect_operator(",");
      const Token& token = expect(TokenType::kName, "name");
      check_assignable(token);
      ExpressionPtr parameter = make_named(Op::kName, token, token.text);
      parameter->role = Role::kParameter;
      if (skip_operator("=")) {
        out.defaults.push_back(parse_expression());
      } else if (!out.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
      out.parameters.push_back(std::move(parameter));
    }
    next();
  }

  StatementPtr parse_macro() {
    StatementPtr out = make_statement(Tag::kMacro, next());
    const Token& token = expect(TokenType::kName, "name");
    check_assignable(token);
    out->name = token.text;
    out->name_value = text_value(out->name);
    parse_signature(*out);
    out->body = parse_to("endmacro");
    return out;
  }

  StatementPtr parse_call_block() {
    StatementPtr out = make_statement(Tag::kCallBlock, next());
    if (now().is_operator("(")) parse_signature(*out);
    const Token& token = now();
    out->value = parse_expression();
    if (out->value->op != Op::kCall) fail_at(token, "expected call");
    out->body = parse_to("endcall");
    return out;
  }

  StatementPtr parse_filter_block() {
    StatementPtr out = make_statement(Tag::kFilterBlock, next());
    out->value = parse_filters(nullptr, true);
    out->body = parse_to("endfilter");
    return out;
  }

  StatementPtr parse_with() {
    StatementPtr out = make_statement(Tag::kWith, next());
    while (!now().is(TokenType::kBlockEnd)) {
      if (!out->targets.empty()) expect_operator(",");
      ExpressionPtr target = parse_target({}, false);
      set_role(*target, Role::kParameter);
      out->targets.push_back(std::move(target));
      expect_operator("=");
      out->expressions.push_back(parse_expression());
    }
    out->body = parse_to("endwith");
    return out;
  }

  StatementPtr parse_print() {
    StatementPtr out = make_statement(Tag::kOutput, next());
    while (!now().is(TokenType::kBlockEnd)) {
      if (!out->expressions.empty()) expect_operator(",");
      out->expressions.push_back(parse_expression());
    }
    return out;
  }

  StatementPtr parse_block() {
    StatementPtr out = make_statement(Tag::kBlock, next());
    out->name = expect(TokenType::kName, "name").text;
    if (is_any({"scoped", "required"})) fail("scoped and required blocks are not known here");
    if (std::ranges::find(blocks_, out->name) != blocks_.end()) {
      fail(cat("block '", out->name, "' defined twice"));
    }
    blocks_.push_back(out->name);
    program_->has_blocks = true;
    out->body = parse_to("endblock");
    skip_name(out->name);
    return out;
  }

  // Targets of assignments

  static void check_assignable(const Token& token) {
    for (const std::string_view name : {"true", "false", "none", "True", "False", "None"}) {
      if (token.text == name) fail_at(token, cat("can't assign to '", name, "'"));
    }
  }

  void set_role(Expression& target, Role role) const {
    if (target.op == Op::kName) {
      target.role = role;
    } else if (target.op == Op::kTuple) {
      for (const ExpressionPtr& item : target.items) set_role(*item, role);
    } else if (target.op != Op::kNamespaceRef) {
      throw Failure("can't assign to this expression", target.line, target.column);
    }
  }

  ExpressionPtr parse_target(Names ends, bool with_namespace) {
    const Token& first = now();
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (is_tuple && is_tuple_end(ends)) break;
      items.push_back(parse_primary(with_namespace));
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    ExpressionPtr out =
        is_tuple ? make(Op::kTuple, first, std::move(items)) : std::move(items.front());
    set_role(*out, Role::kStore);
    return out;
  }

  // Expressions

  bool is_tuple_end(Names ends) const {
    return now().is(TokenType::kVariableEnd) || now().is(TokenType::kBlockEnd) ||
           now().is_operator(")") || is_any(ends);
  }

  ExpressionPtr parse_tuple(Names ends, bool with_condition = true, bool has_parentheses = false) {
    const Token& first = now();
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (is_tuple_end(ends)) break;
      items.push_back(with_condition ? parse_expression() : parse_or());
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items.front());
      if (!has_parentheses) fail(cat("Expected an expression, got '", describe(now()), "'"));
    }
    return make(Op::kTuple, first, std::move(items));
  }

  ExpressionPtr parse_expression() {
    const Nesting nesting(*this);
    const Token* token = &now();
    ExpressionPtr out = parse_or();
    while (skip_name("if")) {
      ExpressionPtr test = parse_or();
      ExpressionPtr other = skip_name("else") ? parse_expression() : nullptr;
      out = make_of(Op::kCondition, *token, std::move(test), std::move(out), std::move(other));
      token = &now();
    }
    return out;
  }

  ExpressionPtr parse_or() {
    const Token* token = &now();
    ExpressionPtr left = parse_and();
    while (skip_name("or")) {
      left = make_of(Op::kOr, *token, std::move(left), parse_and());
      token = &now();
    }
    return left;
  }

  ExpressionPtr parse_and() {
    const Token* token = &now();
    ExpressionPtr left = parse_not();
    while (skip_name("and")) {
      left = make_of(Op::kAnd, *token, std::move(left), parse_not());
      token = &now();
    }
    return left;
  }

  ExpressionPtr parse_not() {
    const Nesting nesting(*this);
    if (!now().is_name("not")) return parse_compare();
    const Token& token = next();
    return make_of(Op::kNot, token, parse_not());
  }

  bool take_comparison(Comparison& out) {
    constexpr std::pair<std::string_view, Comparison> kSymbols[] = {
        {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
        {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
    for (const auto& [symbol, comparison] : kSymbols) {
      if (!skip_operator(symbol)) continue;
      out = comparison;
      return true;
    }
    if (skip_name("in")) {
      out = Comparison::kIn;
      return true;
    }
    if (now().is_name("not") && ahead().is_name("in")) {
      next();
      next();
      out = Comparison::kNotIn;
      return true;
    }
    return false;
  }

  ExpressionPtr parse_compare() {
    const Token& token = now();
    ExpressionPtr first = parse_sum();
    std::vector<ExpressionPtr> items;
    std::vector<Comparison> comparisons;
    for (Comparison comparison{}; take_comparison(comparison);) {
      comparisons.push_back(comparison);
      if (items.empty()) items.push_back(std::move(first));
      items.push_back(parse_sum());
    }
    if (items.empty()) return first;
    ExpressionPtr out = make(Op::kCompare, token, std::move(items));
    out->comparisons = std::move(comparisons);
    return out;
  }

  ExpressionPtr parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (now().is_operator("+") || now().is_operator("-")) {
      const Token& token = next();
      const Op op = token.text == "+" ? Op::kAdd : Op::kSubtract;
      left = make_of(op, token, std::move(left), parse_concatenation());
    }
    return left;
  }

  ExpressionPtr parse_concatenation() {
    const Token& token = now();
    std::vector<ExpressionPtr> items;
    items.push_back(parse_product());
    while (skip_operator("~")) items.push_back(parse_product());
    if (items.size() == 1) return std::move(items.front());
    return make(Op::kConcatenate, token, std::move(items));
  }

  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_power();
    for (;;) {
      const Token& token = now();
      const Op op = token.is_operator("*")    ? Op::kMultiply
                    : token.is_operator("/")  ? Op::kDivide
                    : token.is_operator("//") ? Op::kFloorDivide
                    : token.is_operator("%")  ? Op::kModulo
                                              : Op::kName;
      if (op == Op::kName) return left;
      next();
      left = make_of(op, token, std::move(left), parse_power());
    }
  }

  ExpressionPtr parse_power() {
    ExpressionPtr left = parse_unary(true);
    while (now().is_operator("**")) {
      const Token& token = next();
      left = make_of(Op::kPower, token, std::move(left), parse_unary(true));
    }
    return left;
  }

  ExpressionPtr parse_unary(bool with_filters) {
    const Nesting nesting(*this);
    const Token& token = now();
    ExpressionPtr out;
    if (skip_operator("-")) {
      out = make_of(Op::kNegative, token, parse_unary(false));
    } else if (skip_operator("+")) {
      out = make_of(Op::kPositive, token, parse_unary(false));
    } else {
      out = parse_primary(false);
    }
    out = parse_postfix(std::move(out));
    return with_filters ? parse_filters_and_tests(std::move(out)) : std::move(out);
  }

  ExpressionPtr parse_primary(bool with_namespace) {
    const Nesting nesting(*this);
    const Token& token = now();
    if (token.is(TokenType::kName)) return parse_name(with_namespace);
    if (token.is(TokenType::kString)) {
      std::string text;
      while (now().is(TokenType::kString)) text += next().text;
      return make_constant(token, text_value(text));
    }
    if (token.is(TokenType::kInteger) || token.is(TokenType::kFloat)) {
      next();
      return make_constant(token, token.number);
    }
    if (skip_operator("(")) {
      ExpressionPtr out = parse_tuple({}, true, true);
      expect_operator(")");
      return out;
    }
    if (token.is_operator("[")) return parse_list();
    if (token.is_operator("{")) return parse_dict();
    fail(cat("unexpected '", describe(token), "'"));
  }

  ExpressionPtr parse_name(bool with_namespace) {
    const Token& token = next();
    const std::string& name = token.text;
    if (name == "true" || name == "True") return make_constant(token, Value::from(true));
    if (name == "false" || name == "False") return make_constant(token, Value::from(false));
    if (name == "none" || name == "None") return make_constant(token, Value::none());
    if (with_namespace && skip_operator(".")) {
      ExpressionPtr out = make_named(Op::kNamespaceRef, token, name);
      out->attribute = expect(TokenType::kName, "name").text;
      out->constant = text_value(out->attribute);
      return out;
    }
    return make_named(Op::kName, token, name);
  }

  ExpressionPtr parse_list() {
    const Token& token = next();
    std::vector<ExpressionPtr> items;
    while (!now().is_operator("]")) {
      if (!items.empty()) expect_operator(",");
      if (now().is_operator("]")) break;
      items.push_back(parse_expression());
    }
    expect_operator("]");
    return make(Op::kList, token, std::move(items));
  }

  ExpressionPtr parse_dict() {
    const Token& token = next();
    std::vector<ExpressionPtr> items;
    while (!now().is_operator("}")) {
      if (!items.empty()) expect_operator(",");
      if (now().is_operator("}")) break;
      items.push_back(parse_expression());
      expect_operator(":");
      items.push_back(parse_expression());
    }
    expect_operator("}");
    return make(Op::kDict, token, std::move(items));
  }

  ExpressionPtr parse_postfix(ExpressionPtr out) {
    for (;;) {
      if (now().is_operator(".") || now().is_operator("[")) {
        out = parse_subscript(std::move(out));
      } else if (now().is_operator("(")) {
        out = parse_call(std::move(out));
      } else {
        return out;
      }
    }
  }

  ExpressionPtr parse_filters_and_tests(ExpressionPtr out) {
    for (;;) {
      if (now().is_operator("|")) {
        out = parse_filters(std::move(out), false);
      } else if (now().is_name("is")) {
        out = parse_test(std::move(out));
      } else if (now().is_operator("(")) {
        out = parse_call(std::move(out));
      } else {
        return out;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr object) {
    const Token& token = next();
    if (token.is_operator(".")) {
      const Token& name = next();
      if (name.is(TokenType::kName)) {
        std::vector<ExpressionPtr> items;
        items.push_back(std::move(object));
        ExpressionPtr out = make_named(Op::kAttribute, name, name.text, std::move(items));
        out->is_key = !is_dict_attribute(name.text);
        return out;
      }
      if (!name.is(TokenType::kInteger)) fail_at(name, "expected name or number");
      return make_of(Op::kItem, token, std::move(object), make_constant(name, name.number));
    }
    std::vector<ExpressionPtr> items;
    bool is_slice = false;
    while (!now().is_operator("]")) {
      if (!items.empty()) expect_operator(",");
      items.push_back(parse_subscribed(is_slice));
    }
    next();
    if (is_slice && items.size() == 1) {
      items.front()->items.insert(items.front()->items.begin(), std::move(object));
      std::vector<ExpressionPtr> parts = std::move(items.front()->items);
      return make(Op::kSlice, token, std::move(parts));
    }
    if (is_slice) fail_at(token, "slices beside other indices are not known here");
    ExpressionPtr key =
        items.size() == 1 ? std::move(items.front()) : make(Op::kTuple, token, std::move(items));
    const bool is_key = key->op == Op::kConstant && key->constant.is_string();
    ExpressionPtr out = make_of(Op::kItem, token, std::move(object), std::move(key));
    if (is_key) out->name = out->items[1]->constant.text->bytes;
    out->is_key = is_key;
    return out;
  }

  /// An index, or a slice's three parts.
  ExpressionPtr parse_subscribed(bool& is_slice) {
    const Token& token = now();
    const auto is_end = [&] {
      return now().is_operator(":") || now().is_operator("]") || now().is_operator(",");
    };
    ExpressionPtr start, stop, step;
    if (!now().is_operator(":")) {
      start = parse_expression();
      if (!now().is_operator(":")) return start;
    }
    next();
    if (!is_end()) stop = parse_expression();
    if (skip_operator(":") && !is_end()) step = parse_expression();
    is_slice = true;
    return make_of(Op::kSlice, token, std::move(start), std::move(stop), std::move(step));
  }

  std::unique_ptr<CallArguments> parse_arguments() {
    const Token& token = now();
    expect_operator("(");
    auto out = std::make_unique<CallArguments>();
    const auto ensure = [&](bool is_right) {
      if (!is_right) fail_at(token, "invalid syntax for function call expression");
    };
    bool needs_comma = false;
    while (!now().is_operator(")")) {
      if (needs_comma) {
        expect_operator(",");
        if (now().is_operator(")")) break;
      }
      if (skip_operator("*")) {
        ensure(out->star == nullptr && out->double_star == nullptr);
        out->star = parse_expression();
      } else if (skip_operator("**")) {
        ensure(out->double_star == nullptr);
        out->double_star = parse_expression();
      } else if (now().is(TokenType::kName) && ahead().is_operator("=")) {
        ensure(out->double_star == nullptr);
        const std::string name = next().text;
        next();
        for (const auto& [other, value] : out->named) {
          if (other == name) fail(cat("keyword argument repeated: ", name));
        }
        out->named.emplace_back(name, parse_expression());
      } else {
        ensure(out->star == nullptr && out->double_star == nullptr && out->named.empty());
        out->positional.push_back(parse_expression());
      }
      needs_comma = true;
    }
    expect_operator(")");
    return out;
  }

  /// Takes the arguments' depth into the expression's.
  void set_call(Expression& out, std::unique_ptr<CallArguments> call) const {
    const auto count = [&](const ExpressionPtr& item) {
      if (item != nullptr) out.depth = std::max(out.depth, item->depth + 1);
    };
    for (const ExpressionPtr& item : call->positional) count(item);
    for (const auto& [name, item] : call->named) count(item);
    count(call->star);
    count(call->double_star);
    if (out.depth > kMaxDepth) fail("the expression is nested too deep");
    out.call = std::move(call);
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    const Token& token = now();
    auto call = parse_arguments();
    ExpressionPtr out = make_of(Op::kCall, token, std::move(callee));
    set_call(*out, std::move(call));
    return out;
  }

  std::string parse_dotted_name() {
    std::string name = expect(TokenType::kName, "name").text;
    while (skip_operator(".")) name += "." + expect(TokenType::kName, "name").text;
    return name;
  }

  ExpressionPtr parse_filters(ExpressionPtr value, bool starts_inside) {
    while (now().is_operator("|") || starts_inside) {
      if (!starts_inside) next();
      starts_inside = false;
      const Token& token = now();
      const std::string name = parse_dotted_name();
      std::vector<ExpressionPtr> items;
      items.push_back(std::move(value));
      value = make_named(Op::kFilter, token, name, std::move(items));
      set_call(*value,
               now().is_operator("(") ? parse_arguments() : std::make_unique<CallArguments>());
    }
    return value;
  }

  bool is_test_argument() const {
    const Token& token = now();
    if (token.is(TokenType::kString) || token.is(TokenType::kInteger) ||
        token.is(TokenType::kFloat) || token.is_operator("[") || token.is_operator("{")) {
      return true;
    }
    return token.is(TokenType::kName) && !is_any({"else", "or", "and"});
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    const Token& is = next();
    const bool is_negated = skip_name("not");
    const Token& token = now();
    const std::string name = parse_dotted_name();
    std::vector<ExpressionPtr> items;
    items.push_back(std::move(value));
    ExpressionPtr out = make_named(Op::kTest, token, name, std::move(items));
    auto call = std::make_unique<CallArguments>();
    if (now().is_operator("(")) {
      call = parse_arguments();
    } else if (is_test_argument()) {
      if (now().is_name("is")) fail("You cannot chain multiple tests with is");
      call->positional.push_back(parse_postfix(parse_primary(false)));
    }
    set_call(*out, std::move(call));
    if (!is_negated) return out;
    return make_of(Op::kNot, is, std::move(out));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::vector<std::string> tags_;
  std::vector<std::string> blocks_;
  std::unique_ptr<Program> program_;
};

}  // namespace

std::unique_ptr<Program> parse_program(std::string_view source) {
  return Parser(source).run();
}

}  // namespace automodel::chat
