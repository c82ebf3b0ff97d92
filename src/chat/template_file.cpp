#include "chat/template_file.h"

#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

/// Whether a file holds a tokenizer's configuration and not the template itself.
bool is_configuration(std::string_view text) {
  text = trim(text);
  return text.starts_with('{') && !text.starts_with("{%") && !text.starts_with("{{") &&
         !text.starts_with("{#");
}

}  // namespace

TemplateText read_template(const std::string& path) {
  if (is_directory(path)) {
    const std::string own = path_join(path, "chat_template.jinja");
    return read_template(path_exists(own) ? own : path_join(path, "tokenizer_config.json"));
  }
  std::string text = read_file(path);
  if (!is_configuration(text)) return {std::move(text), path};
  const Json config = Json::parse(text, path);
  const Json* found = config.find("chat_template");
  if (found == nullptr || !found->is_string()) {
    throw InputError(cat(path, ": there is no chat_template in it that is a text"));
  }
  return {found->as_string(), path};
}

}  // namespace automodel::chat
