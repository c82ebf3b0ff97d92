#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "datasets/samples/format.h"
#include "datasets/samples/text_encoder.h"
#include "tokenizers/template_text.h"

namespace automodel::datasets {

/// How a conversation becomes a sample.
struct ChatFormatOptions {
  FormatOptions format;
  bool mask_history = false;            ///< loss only on the assistant's last run of tokens
  bool allows_special_tokens = false;   ///< messages may contain texts of special tokens
  bool mask_reasoning_content = false;  ///< no loss on reasoning_content
  bool mask_generation_prompt = false;  ///< no loss on the generation prompt's tokens
};

/// The chat template that a dataset uses.
enum class TemplateUse {
  kNone,             ///< none, or the one that its options name
  kTokenizersIfAny,  ///< the tokenizer's, when it has one
  kTokenizers,       ///< the tokenizer's, which must have one
};

/// The use for a dataset whose options may name a template.
TemplateUse use_of_template(const std::optional<std::string>& named, bool is_required);

using tokenizers::TemplateText;

/// The template that options name: a template's text, or a file or folder that contains one. Throws
/// UserError.
TemplateText named_template(const std::string& source);

/// Parses the template that options name: a text, or a file (also a tokenizer's configuration).
/// Throws UserError, TemplateError.
void check_template(const std::optional<std::string>& named);

/// Parses the template of the tokenizer at `folder` that a dataset would use. Throws UserError when
/// a template is required and missing, TemplateError.
void check_template(TemplateUse use, const std::optional<TemplateText>& own,
                    const std::string& folder);

/// A tokenized conversation, and which tokens the assistant wrote.
struct ChatTokens {
  std::string text;
  std::vector<int64_t> ids;
  std::vector<bool> is_assistant;  ///< for every id
  std::vector<bool> is_left_out;   ///< for every id: excluded from the loss as reasoning
  /// Why something that an option excludes from the loss could not be found or is not written.
  std::optional<std::string> note = std::nullopt;
};

/// Whether a conversation has answers, all of them marked as none to learn (`weight: 0` or `train:
/// false`).
bool has_only_untrained_answers(const Json& messages);

/// Throws InputError for a conversation without a message of the assistant.
void check_for_answers(const Json& messages, const std::string& origin);

/// Writes conversations with a chat template. Thread-safe.
class ChatFormatter final {
 public:
  /// `source` replaces the tokenizer's own template: a template's text, or the path of a file. The
  /// encoder must outlive this object. Throws UserError when there is no template, TemplateError.
  ChatFormatter(const TextEncoder& encoder, const std::optional<std::string>& source,
                ChatFormatOptions options);

  /// Arguments of tool calls reach the template as objects, or as JSON texts where it takes these.
  ///
  /// The tokens of a conversation (no special tokens but those that the template writes), and which
  /// of them the assistant wrote: those of `{% generation %}` blocks or, in a template without
  /// them, for every message of the assistant the tokens that it adds to the conversation before
  /// it; what the template writes before any first message is nobody's. Conversations with tools
  /// take the template for these, where there is one. Left out of the loss are
  ///   - the generation prompt's tokens where a turn begins with all of them, found by rendering
  ///     the conversation before it with add_generation_prompt (mask_generation_prompt),
  ///   - the tokens that go when a message's reasoning_content is emptied (mask_reasoning_content).
  /// A system message is put before the user's first where the template says "System role not
  /// supported". Throws InputError "ORIGIN: ...": when a message's text holds a special token, when
  /// the template fails, when the tokens before a message are not how the whole begins, or when
  /// there is no message of the assistant.
  ChatTokens tokenize(const Json& messages, const Json& tools, const std::string& origin) const;

  /// The text of a conversation followed by the beginning of an answer, as a model is prompted.
  std::string prompt(const Json& messages, const Json& tools, const std::string& origin) const;

  /// What of a conversation's tools and tool calls the template leaves out: "tools", "tool_calls",
  /// both, or "". Calls are left out where none of their functions' names is written.
  std::string left_out(const Json& messages, const Json& tools, const std::string& origin) const;

  /// The special token behind an answer, where the template writes one; it need not be the
  /// tokenizer's end token.
  std::optional<int64_t> turn_end() const;

  /// The number of tokens of a conversation without truncation.
  int64_t num_tokens(const Json& messages, const Json& tools, const std::string& origin) const;

  /// The sample, truncated, shifted and padded as `format` says. With mask_history only the last
  /// remaining turn counts. It has no label if all were cut off.
  Sample format(const Json& messages, const Json& tools, const std::string& origin) const;
  /// The sample of a conversation that tokenize() has made tokens of.
  Sample format(ChatTokens tokens) const;

 private:
  ChatFormatter(const TextEncoder& encoder, TemplateText source, ChatFormatOptions options);

  /// A conversation of which several parts are rendered.
  struct Conversation {
    const Json& messages;
    const Json& tools;
    const std::string& origin;
  };

  /// A template's text, for what is looked for in it, and the template.
  struct Template {
    explicit Template(std::string text, const std::string& name)
        : source(std::move(text)), parsed(source, name) {}
    std::string source;
    chat::ChatTemplate parsed;
    bool takes_argument_texts = false;  ///< arguments of tool calls reach it as JSON texts
  };

  /// What a template has made of a conversation, and the messages in the form that it takes.
  struct Written {
    Json messages;
    chat::Rendering rendering;
  };

  /// Renders with the arguments of tool calls as the template takes them; as JSON texts, too, if it
  /// fails with objects.
  Written write(const Conversation& conversation, const Json& variables) const;
  const Template& template_for(const Conversation& conversation) const;
  chat::Rendering render(const Conversation& conversation, const Json& variables) const;
  std::vector<int64_t> ids_of(const Conversation& conversation, const Json& variables) const;
  void check_texts(const Json& json, const std::string& where) const;
  std::vector<bool> mask_of_assistant(const ChatTokens& tokens,
                                      const std::vector<chat::Rendering::Span>& spans,
                                      const Conversation& conversation) const;
  std::vector<bool> mask_of_spans(const ChatTokens& tokens,
                                  const std::vector<chat::Rendering::Span>& spans,
                                  const std::string& origin) const;
  /// How many tokens the template writes before the first message: those that a conversation of
  /// another one would begin with too.
  size_t num_tokens_before(const ChatTokens& tokens, const Conversation& conversation) const;
  std::vector<bool> mask_of_turns(const ChatTokens& tokens, const Conversation& conversation) const;
  size_t generation_prompt_length(const ChatTokens& tokens, const Conversation& before,
                                  const std::vector<int64_t>& before_ids) const;
  void mark_generation_prompts(const Conversation& conversation, ChatTokens& tokens) const;
  void mark_reasoning(const Conversation& conversation, ChatTokens& tokens) const;
  /// Leaves out what is more than truncation lets through; returns how many tokens that are.
  int64_t truncate(ChatTokens& tokens) const;

  const TextEncoder& encoder_;
  ChatFormatOptions options_;
  Template template_;
  std::optional<Template> tool_template_;  ///< of conversations with tools
  int64_t now_;
};

/// Makes a sample of ids and of which of them count, by the rules of format_prompt_completion;
/// nothing is cut here.
Sample pack_sample(const TextEncoder& encoder, std::vector<int64_t> ids,
                   const std::vector<bool>& counts, const FormatOptions& options);

}  // namespace automodel::datasets
