#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "datasets/format.h"
#include "datasets/text_encoder.h"

namespace automodel::datasets {

/// How a conversation becomes a sample.
struct ChatFormatOptions {
  FormatOptions format;
  bool mask_history = false;           ///< loss on the last run of the assistant's tokens only
  bool allows_special_tokens = false;  ///< messages may hold the text of special tokens
};

/// A conversation, tokenized, with what the assistant wrote.
struct ChatTokens {
  std::string text;
  std::vector<int64_t> ids;
  std::vector<bool> is_assistant;  ///< of every id
};

/// Writes conversations with a chat template. Any number of threads may use one.
class ChatFormatter final {
 public:
  /// `source` replaces the tokenizer's own template: the text of one, or the path of a file. The
  /// encoder must outlive this. Throws UserError when there is none, TemplateError.
  ChatFormatter(const TextEncoder& encoder, const std::optional<std::string>& source,
                ChatFormatOptions options);

  /// The tokens of a conversation (no special tokens but those that the template writes), and which
  /// of them the assistant wrote: those of `{% generation %}` blocks, or, in a template without
  /// them, for every message of the assistant the tokens that it adds to the conversation before
  /// it. Throws InputError "ORIGIN: ...": when a message's text holds a special token, when the
  /// template fails, when the tokens before a message are not how the whole begins, or when there
  /// is no message of the assistant.
  ChatTokens tokenize(const Json& messages, const Json& tools, const std::string& origin) const;

  /// The sample, cut, shifted and padded as `format` says. Without a label when all was cut off.
  Sample format(const Json& messages, const Json& tools, const std::string& origin) const;

 private:
  std::string render(const Json& messages, const Json& tools, const std::string& origin) const;
  void check_texts(const Json& json, const std::string& where) const;
  std::vector<bool> mask_of_spans(const ChatTokens& tokens,
                                  const std::vector<chat::Rendering::Span>& spans,
                                  const std::string& origin) const;
  std::vector<bool> mask_of_turns(const ChatTokens& tokens, const Json& messages, const Json& tools,
                                  const std::string& origin) const;

  const TextEncoder& encoder_;
  ChatFormatOptions options_;
  chat::ChatTemplate template_;
  int64_t now_;
};

/// The sample of ids and of which of them count, by the rules of format_prompt_completion.
Sample pack_sample(const TextEncoder& encoder, std::vector<int64_t> ids,
                   const std::vector<bool>& counts, const FormatOptions& options);

}  // namespace automodel::datasets
