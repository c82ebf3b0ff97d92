#include "tokenizers/template_text.h"

#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tokenizers/folder.h"

namespace automodel::tokenizers {

namespace {

/// Whether a file holds a tokenizer's configuration and not the template itself.
bool is_configuration(std::string_view text) {
  text = trim(text);
  return text.starts_with('{') && !text.starts_with("{%") && !text.starts_with("{{") &&
         !text.starts_with("{#");
}

bool is_default(const Json& named) {
  const Json* name = named.is_object() ? named.find("name") : nullptr;
  return name != nullptr && name->is_string() && name->as_string() == "default";
}

/// The template in what was read of the tokenizer_config.json at `path`.
std::optional<TemplateText> template_in(const Json& tokenizer_config, const std::string& path) {
  const Json* entry = tokenizer_config.find("chat_template");
  if (entry == nullptr) return std::nullopt;
  if (entry->is_string()) return TemplateText{entry->as_string(), path};
  if (!entry->is_array()) return std::nullopt;
  // A list of {"name": ..., "template": ...}.
  for (const Json& named : entry->as_array()) {
    const Json* text = is_default(named) ? named.find("template") : nullptr;
    if (text != nullptr && text->is_string()) return TemplateText{text->as_string(), path};
  }
  return std::nullopt;
}

}  // namespace

std::optional<TemplateText> find_chat_template(const std::string& folder) {
  return find_chat_template(folder, read_tokenizer_config(folder));
}

std::optional<TemplateText> find_chat_template(const std::string& folder,
                                               const Json& tokenizer_config) {
  const std::string file = path_join(folder, "chat_template.jinja");
  if (path_exists(file)) return TemplateText{read_file(file), file};
  return template_in(tokenizer_config, path_join(folder, "tokenizer_config.json"));
}

TemplateText read_chat_template(const std::string& path) {
  std::optional<TemplateText> found;
  if (is_directory(path)) {
    found = find_chat_template(path);
  } else {
    std::string text = read_file(path);
    if (!is_configuration(text)) return {std::move(text), path};
    found = template_in(Json::parse(text, path), path);
  }
  if (found) return *std::move(found);
  throw InputError(cat(path, is_directory(path)
                                 ? ": neither chat_template.jinja nor tokenizer_config.json has a "
                                   "chat template"
                                 : ": there is no chat_template in it"));
}

}  // namespace automodel::tokenizers
