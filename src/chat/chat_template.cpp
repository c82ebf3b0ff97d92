#include "chat/chat_template.h"

#include <array>
#include <ctime>
#include <optional>

#include "chat/characters.h"
#include "chat/interpreter.h"
#include "chat/parser.h"
#include "chat/scope.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

std::string error_text(const std::string& name, const std::string& message, int line, int column) {
  if (line == 0) return cat(name, ": error: ", message);
  return cat(name, ":", line, ":", column, ": error: ", message);
}

/// JSON as values that point to it.
class Importer final {
 public:
  explicit Importer(Arena& arena) : arena_(arena) {}

  Value value(const Json& json) {
    // What conversations are made of comes first.
    if (json.is_string()) return text(json.as_string());
    if (json.is_object()) return Value::from(Kind::kDict, dict(json));
    if (json.is_array()) {
      const Json::Array& items = json.as_array();
      List* list = arena_.make<List>();
      list->capacity = items.size();
      list->items = arena_.make_array<Value>(list->capacity);
      for (const Json& item : items) list->items[list->size++] = value(item);
      return Value::from(Kind::kList, list);
    }
    if (json.is_null()) return Value::none();
    if (json.is_bool()) return Value::from(json.as_bool());
    if (json.is_int()) return Value::from(json.as_int());
    if (json.is_big_integer()) throw Failure("an integer of the data does not fit into 64 bits");
    return Value::from(json.as_double());
  }

  Dict* dict(const Json& json) {
    const Json::Object& members = json.as_object();
    Dict* out = arena_.make<Dict>();
    out->capacity = members.size();
    out->entries = arena_.make_array<Dict::Entry>(out->capacity);
    Text* keys = arena_.make_array<Text>(out->capacity);
    for (const auto& [key, member] : members) {
      const Text* name = new (keys++) Text{std::string_view(key)};
      out->entries[out->size++] = {Value::from(name), value(member)};
    }
    return out;
  }

 private:
  Value text(const std::string& bytes) {
    return Value::from(arena_.make<Text>(std::string_view(bytes)));
  }

  Arena& arena_;
};

std::vector<Rendering::Span> spans_of(const std::string& text,
                                      const std::vector<Run::Generation>& generations) {
  std::vector<Rendering::Span> spans;
  size_t at = 0;
  int64_t points = 0;
  for (const Run::Generation& generation : generations) {
    if (generation.begin_byte < at) {
      at = 0;
      points = 0;
    }
    points += count_code_points(std::string_view(text).substr(at, generation.begin_byte - at));
    at = generation.begin_byte;
    spans.push_back({points, points + generation.num_points});
  }
  return spans;
}

}  // namespace

TemplateError::TemplateError(const std::string& name, const std::string& message, int line,
                             int column)
    : UserError(error_text(name, message, line, column), ExitCode::kInput),
      message_(message),
      line_(line),
      column_(column) {}

struct ChatTemplate::State {
  std::unique_ptr<Program> program;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  if (!is_utf8(source)) throw TemplateError(name_, "the template is not UTF-8", 0, 0);
  try {
    auto state = std::make_unique<State>();
    state->program = parse_program(source);
    resolve_names(*state->program);
    state_ = std::move(state);
  } catch (const Failure& failure) {
    throw TemplateError(name_, failure.text, failure.line, failure.column);
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Rendering ChatTemplate::render(const Json& variables, int64_t now, const Limits& limits) const {
  if (!variables.is_object()) throw InputError("a template's variables must be an object");
  Rendering out;
  try {
    Run run(limits, now);
    const Dict* dict = Importer(run.arena).dict(variables);
    std::array<char, 8192> memory;  // short renderings need no other
    Output text(memory);
    execute(run, *state_->program, *dict, text);
    out.text = text.view();
    if (!run.generations.empty()) out.generation = spans_of(out.text, run.generations);
  } catch (const Failure& failure) {
    throw TemplateError(name_, failure.text, failure.line, failure.column);
  }
  return out;
}

bool ChatTemplate::has_generation() const {
  return state_->program->has_generation;
}

int64_t local_now() {
  const time_t now = std::time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  return timegm(&parts);
}

}  // namespace automodel::chat
