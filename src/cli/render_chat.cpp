#include "cli/render_chat.h"

#include <algorithm>
#include <ctime>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "chat/chat_template.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "tokenizers/template_text.h"
#include "tokenizers/tokenizer.h"

namespace automodel::cli {

namespace {

/// "2026-08-01T12:34:56" or seconds.
int64_t read_now(const Json& now, const std::string& name) {
  if (now.is_int()) return now.as_int();
  if (now.is_string()) {
    tm parts{};
    const std::string text = replace_all(now.as_string(), " ", "T");
    const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
    if (end == nullptr) {
      parts = tm{};
      end = ::strptime(text.c_str(), "%Y-%m-%d", &parts);
    }
    // What is behind the seconds (a fraction) shows in no format.
    if (end != nullptr && (*end == 0 || *end == '.')) return ::timegm(&parts);
  }
  throw InputError(cat(name, ": `now` must be a time such as \"2026-08-01T12:34:56\", or seconds"));
}

void take_object(const Json* members, const char* key, const std::string& name, Json& variables) {
  if (members == nullptr || members->is_null()) return;
  if (!members->is_object()) throw InputError(cat(name, ": `", key, "` must be an object"));
  for (const auto& [member, value] : members->as_object()) variables[member] = value;
}

/// Names of a line's members that are read, and of those that say what is expected.
constexpr std::string_view kKnown[] = {
    "messages",  "tools", "documents", "add_generation_prompt", "bos_token",
    "eos_token", "vars",  "kwargs",    "chat_template_kwargs",  "now",
    "template",  "case",  "rendered",  "generation_indices",    "generation_bytes"};

/// Warns of a member that nothing reads, once for each name.
void warn_of_unknown(const Json& line, const std::string& name, std::set<std::string>& told) {
  for (const auto& [key, value] : line.as_object()) {
    if (std::ranges::find(kKnown, key) != std::end(kKnown) || !told.insert(key).second) continue;
    std::cerr << "warning: " << name << ": `" << key
              << "` is not read; variables of the template are members of `kwargs`\n";
  }
}

/// The variables that transformers' apply_chat_template hands to the template. `tokens`: the
/// tokenizer's special ones.
Json variables_of(const Json& line, const std::string& name, const Json& tokens) {
  Json variables = tokens;
  take_object(line.find("vars"), "vars", name, variables);
  for (const char* key : {"messages", "tools", "documents"}) {
    const Json* value = line.find(key);
    variables[key] = value == nullptr ? Json() : *value;
  }
  variables["add_generation_prompt"] = Json(false);
  for (const char* key : {"add_generation_prompt", "bos_token", "eos_token"}) {
    if (const Json* value = line.find(key)) variables[key] = *value;
  }
  for (const char* key : {"chat_template_kwargs", "kwargs"}) {
    take_object(line.find(key), key, name, variables);
  }
  return variables;
}

Json to_json(const chat::Rendering& rendering) {
  Json out = Json::object();
  out["rendered"] = rendering.text;
  Json spans = Json::array();
  for (const auto& span : rendering.generation) {
    spans.push_back(Json(Json::Array{Json(span.begin), Json(span.end)}));
  }
  out["generation"] = std::move(spans);
  return out;
}

Json to_json(const chat::TemplateError& error) {
  Json out = Json::object();
  out["error"] = error.message();
  out["line"] = int64_t{error.line()};
  out["column"] = int64_t{error.column()};
  return out;
}

/// What the template makes of the variables, and how long that takes when it is repeated.
Json render(const chat::ChatTemplate& source, const Json& variables, int64_t now, int64_t repeat) {
  Json out = to_json(source.render(variables, now));
  if (repeat <= 1) return out;
  const double begin = monotonic_seconds();
  for (int64_t i = 0; i < repeat; ++i) source.render(variables, now);
  out["seconds"] = (monotonic_seconds() - begin) / static_cast<double>(repeat);
  return out;
}

/// The templates of a file or folder.
struct Templates {
  std::optional<chat::ChatTemplate> plain, tool_use;
  Json special_tokens = Json::object();  ///< of the folder's tokenizer, by their names
};

Json render_line(const Templates& of_file, const Json& line, const std::string& name,
                 int64_t repeat) {
  int64_t now = chat::local_now();
  for (const Json* place :
       {line.find("now"),
        line.find("vars") == nullptr ? nullptr : line.find("vars")->find("now")}) {
    if (place != nullptr) now = read_now(*place, name);
  }
  const Json variables = variables_of(line, name, of_file.special_tokens);
  const bool has_tools = !variables.at("tools").is_null();
  if (has_tools && of_file.tool_use) return render(*of_file.tool_use, variables, now, repeat);
  if (of_file.plain) return render(*of_file.plain, variables, now, repeat);
  const Json* source = line.find("template");
  if (source == nullptr || !source->is_string()) {
    throw InputError(cat(name, ": there is no --template, and no string `template` here"));
  }
  return render(chat::ChatTemplate(source->as_string(), "template"), variables, now, repeat);
}

}  // namespace

int render_chat_lines(const std::string& path, int64_t repeat) {
  Templates of_file;
  if (!path.empty()) {
    const tokenizers::TemplateText source = tokenizers::read_chat_template(path);
    of_file.plain.emplace(source.text, source.name);
    if (source.tool_use) of_file.tool_use.emplace(*source.tool_use, source.name);
    if (path_exists(path_join(path, "tokenizer.json"))) {
      const auto tokenizer = tokenizers::Tokenizer::load(path);
      for (const auto& [key, token] : tokenizer.named_tokens()) of_file.special_tokens[key] = token;
    }
  }
  std::set<std::string> told;
  std::ios::sync_with_stdio(false);
  std::string text;
  for (int64_t number = 1; std::getline(std::cin, text); ++number) {
    if (trim(text).empty()) continue;
    const std::string name = cat("line ", number);
    const Json line = Json::parse(text, name);
    if (!line.is_object()) throw InputError(cat(name, ": expected an object, found ", line.kind()));
    warn_of_unknown(line, name, told);
    Json out;
    try {
      out = render_line(of_file, line, name, repeat);
    } catch (const chat::TemplateError& error) {
      out = to_json(error);
    }
    std::cout << out.dump() << "\n";
  }
  return 0;
}

}  // namespace automodel::cli
