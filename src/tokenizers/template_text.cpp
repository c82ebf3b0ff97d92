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

/// The template of a name in a list of {"name": ..., "template": ...}.
std::optional<std::string> named_in(const Json& list, std::string_view wanted) {
  for (const Json& named : list.as_array()) {
    const Json* name = named.find("name");
    const Json* text = named.find("template");
    const bool is_pair =
        name != nullptr && name->is_string() && text != nullptr && text->is_string();
    if (is_pair && name->as_string() == wanted) return text->as_string();
  }
  return std::nullopt;
}

/// A template, or that of conversations with tools alone, which refuses others.
std::optional<TemplateText> template_of(const std::optional<std::string>& text,
                                        const std::string& name,
                                        const std::optional<std::string>& tool_use) {
  if (!text && !tool_use) return std::nullopt;
  const char* const refusal =
      "{{ raise_exception('this tokenizer has a chat template for conversations with tools alone') "
      "}}";
  return TemplateText{text.value_or(refusal), name, tool_use};
}

/// The text of a file, if it is there.
std::optional<std::string> text_of(const std::string& path) {
  return path_exists(path) ? std::optional(read_file(path)) : std::nullopt;
}

/// The template in what was read of the tokenizer_config.json at `path`.
std::optional<TemplateText> template_in(const Json& tokenizer_config, const std::string& path) {
  const Json* entry = tokenizer_config.find("chat_template");
  if (entry == nullptr) return std::nullopt;
  if (entry->is_string()) return TemplateText{entry->as_string(), path};
  if (!entry->is_array()) return std::nullopt;
  return template_of(named_in(*entry, "default"), path, named_in(*entry, "tool_use"));
}

}  // namespace

std::optional<TemplateText> find_chat_template(const std::string& folder) {
  return find_chat_template(folder, read_tokenizer_config(folder));
}

std::optional<TemplateText> find_chat_template(const std::string& folder,
                                               const Json& tokenizer_config) {
  const auto additional = [&](const char* name) {
    return path_join(folder, cat("additional_chat_templates/", name, ".jinja"));
  };
  const std::string tool_use = additional("tool_use");
  std::string file = additional("default");
  if (!path_exists(file)) file = path_join(folder, "chat_template.jinja");
  if (path_exists(file)) return template_of(read_file(file), file, text_of(tool_use));
  if (path_exists(tool_use)) return template_of(std::nullopt, tool_use, text_of(tool_use));
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
