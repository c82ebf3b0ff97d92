#pragma once

#include <optional>
#include <string>

#include "core/json.h"

namespace automodel::tokenizers {

/// A chat template's text, and the file it was read from.
struct TemplateText {
  std::string text;
  std::string name;
  std::optional<std::string> tool_use = std::nullopt;  ///< another, for conversations with tools
};

/// The chat template of a tokenizer's folder: chat_template.jinja, or
/// additional_chat_templates/default.jinja in its place, with
/// additional_chat_templates/tool_use.jinja for conversations with tools; else `chat_template` of
/// its tokenizer_config.json, a text or a list whose entry "default" is the template, and
/// "tool_use" that for tools. One for tools alone refuses conversations without. Without a value
/// when the folder has none, as in transformers. Throws InputError.
std::optional<TemplateText> find_chat_template(const std::string& folder);

/// find_chat_template() of a folder whose tokenizer_config.json has been read.
std::optional<TemplateText> find_chat_template(const std::string& folder,
                                               const Json& tokenizer_config);

/// The template at `path`: a folder of a tokenizer, a tokenizer_config.json, or a file that is the
/// template itself. Throws InputError, also where there is none.
TemplateText read_chat_template(const std::string& path);

}  // namespace automodel::tokenizers
