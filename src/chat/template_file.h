#pragma once

#include <string>

namespace automodel::chat {

/// A template's text, and its name in errors.
struct TemplateText {
  std::string text;
  std::string name;
};

/// The template in a file: its text, or chat_template of a tokenizer_config.json; or in a folder of
/// a tokenizer. Throws InputError.
TemplateText read_template(const std::string& path);

}  // namespace automodel::chat
