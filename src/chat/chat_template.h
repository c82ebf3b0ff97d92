#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/run.h"
#include "core/error.h"
#include "core/json.h"

namespace automodel::chat {

/// A template that cannot be read, or that fails while it is rendered.
class TemplateError final : public UserError {
 public:
  TemplateError(const std::string& name, const std::string& message, int line, int column);

  /// The message alone: what raise_exception was called with, or jinja2's text.
  const std::string& message() const { return message_; }
  int line() const { return line_; }
  int column() const { return column_; }

 private:
  std::string message_;
  int line_;
  int column_;
};

/// What a template makes of a conversation.
struct Rendering {
  /// Code points [begin, end) of the text.
  struct Span {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const Span&) const = default;
  };

  std::string text;
  /// What `{% generation %}` blocks wrote, as transformers' AssistantTracker counts it.
  std::vector<Span> generation;
};

/// A Jinja template as transformers renders chat templates: trim_blocks and lstrip_blocks, loop
/// controls, generation blocks, the functions raise_exception and strftime_now, and json.dumps as
/// `tojson`. Read once, rendered by any number of threads at a time.
class ChatTemplate final {
 public:
  /// `name` begins error texts ("chat_template.jinja"). Throws TemplateError.
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Renders over variables: an object (messages, tools, bos_token, ...). `now` is the local time
  /// that strftime_now shows, as seconds since the epoch read as UTC. Throws TemplateError, also
  /// past the limits; InputError when the variables are no object. Their texts are UTF-8, as those
  /// of Json::parse.
  Rendering render(const Json& variables, int64_t now, const Limits& limits = {}) const;

  /// Whether it marks what the model writes with `{% generation %}`.
  bool has_generation() const;
  const std::string& name() const { return name_; }

 private:
  struct State;
  std::string name_;
  std::unique_ptr<const State> state_;
};

/// This machine's local time as strftime_now shows it.
int64_t local_now();

}  // namespace automodel::chat
