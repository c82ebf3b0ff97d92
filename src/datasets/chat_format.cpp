#include "datasets/chat_format.h"

#include <algorithm>
#include <utility>

#include "chat/characters.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

chat::ChatTemplate read_template(const TextEncoder& encoder,
                                 const std::optional<std::string>& source) {
  if (source) {
    const bool is_text = source->find("{%") != std::string::npos ||
                         source->find("{{") != std::string::npos ||
                         source->find('\n') != std::string::npos;
    if (is_text) return {*source, "chat_template"};
    if (!path_exists(*source)) {
      throw UserError(
          cat("chat_template: '", *source, "' is neither a template nor the path of a file"));
    }
    return {read_file(*source), *source};
  }
  const std::optional<std::string> own = encoder.chat_template();
  if (!own) {
    throw UserError(cat("tokenizer ", encoder.name(),
                        " has no chat template; set chat_template to one, or to a file with one"));
  }
  return {*own, cat("chat template of ", encoder.name())};
}

/// Keeps the last run of ones.
void keep_last_run(std::vector<bool>& mask) {
  size_t end = mask.size();
  while (end > 0 && !mask[end - 1]) --end;
  size_t begin = end;
  while (begin > 0 && mask[begin - 1]) --begin;
  std::fill(mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(begin), false);
}

bool is_assistant_message(const Json& message) {
  return message.at("role").as_string() == "assistant";
}

/// Tokens before trailing padding; see format_prompt_completion.
int64_t content_length(const std::vector<int64_t>& ids, int64_t pad_id,
                       std::optional<int64_t> eos_id) {
  auto end = static_cast<int64_t>(ids.size());
  while (end > 0 && ids[static_cast<size_t>(end - 1)] == pad_id) --end;
  if (eos_id == pad_id) return std::min(end + 1, static_cast<int64_t>(ids.size()));
  return end;
}

}  // namespace

ChatFormatter::ChatFormatter(const TextEncoder& encoder, const std::optional<std::string>& source,
                             ChatFormatOptions options)
    : encoder_(encoder),
      options_(std::move(options)),
      template_(read_template(encoder, source)),
      now_(chat::local_now()) {}

void ChatFormatter::check_texts(const Json& json, const std::string& where) const {
  if (json.is_string()) {
    for (const int64_t id : encoder_.encode(json.as_string(), /*add_special_tokens=*/false)) {
      if (!encoder_.is_special(id)) continue;
      throw InputError(cat(where, ": the text holds the special token ", encoder_.token_text(id),
                           ", which would end or begin a turn; remove it, or set "
                           "allow_special_tokens_in_text: true to have it read as that token"));
    }
  } else if (json.is_array()) {
    for (const Json& item : json.as_array()) check_texts(item, where);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.as_object()) check_texts(value, where);
  }
}

std::string ChatFormatter::render(const Json& messages, const Json& tools,
                                  const std::string& origin) const {
  Json variables = encoder_.template_variables();
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = Json();
  variables["add_generation_prompt"] = Json(false);
  try {
    return template_.render(variables, now_).text;
  } catch (const chat::TemplateError& error) {
    throw InputError(cat(origin, ": ", error.what()));
  }
}

ChatTokens ChatFormatter::tokenize(const Json& messages, const Json& tools,
                                   const std::string& origin) const {
  if (!options_.allows_special_tokens) {
    int64_t number = 0;
    for (const Json& message : messages.as_array()) {
      check_texts(message, cat(origin, ": message ", ++number));
    }
    check_texts(tools, cat(origin, ": tools"));
  }
  Json variables = encoder_.template_variables();
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = Json();
  variables["add_generation_prompt"] = Json(false);
  chat::Rendering rendering;
  try {
    rendering = template_.render(variables, now_);
  } catch (const chat::TemplateError& error) {
    throw InputError(cat(origin, ": ", error.what()));
  }
  ChatTokens tokens;
  tokens.text = std::move(rendering.text);
  tokens.ids = encoder_.encode(tokens.text, /*add_special_tokens=*/false);
  if (!options_.format.answer_only_loss_mask && !template_.has_generation()) {
    tokens.is_assistant.assign(tokens.ids.size(), true);
  } else if (template_.has_generation()) {
    tokens.is_assistant = mask_of_spans(tokens, rendering.generation, origin);
  } else {
    tokens.is_assistant = mask_of_turns(tokens, messages, tools, origin);
  }
  if (std::ranges::find(tokens.is_assistant, true) == tokens.is_assistant.end()) {
    throw InputError(cat(origin,
                         ": nothing in this conversation is the assistant's, so nothing of "
                         "it can be learned"));
  }
  if (options_.mask_history) keep_last_run(tokens.is_assistant);
  return tokens;
}

std::vector<bool> ChatFormatter::mask_of_spans(const ChatTokens& tokens,
                                               const std::vector<chat::Rendering::Span>& spans,
                                               const std::string& origin) const {
  std::vector<bool> mask(tokens.ids.size(), false);
  if (spans.empty()) return mask;
  const auto ends = encoder_.token_ends(tokens.text, tokens.ids);
  if (!ends) {
    throw InputError(cat(origin, ": cannot tell where in the text each token of tokenizer ",
                         encoder_.name(),
                         " lies, so the template's generation blocks cannot be "
                         "found again; is the text normalized by the tokenizer?"));
  }
  for (const chat::Rendering::Span& span : spans) {
    const size_t begin = chat::byte_of_code_point(tokens.text, span.begin);
    const size_t end = chat::byte_of_code_point(tokens.text, span.end);
    for (size_t i = 0; i < mask.size(); ++i) {
      const size_t token_begin = i == 0 ? 0 : (*ends)[i - 1];
      if (token_begin < end && (*ends)[i] > begin) mask[i] = true;
    }
  }
  return mask;
}

std::vector<bool> ChatFormatter::mask_of_turns(const ChatTokens& tokens, const Json& messages,
                                               const Json& tools, const std::string& origin) const {
  std::vector<bool> mask(tokens.ids.size(), false);
  const Json::Array& list = messages.as_array();
  // The tokens of the first `count` messages, which must be how the whole conversation begins.
  const auto num_tokens_of = [&](size_t count) -> size_t {
    if (count == 0) return 0;
    if (count == list.size()) return tokens.ids.size();
    Json::Array first(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
    const std::string text = render(Json(std::move(first)), tools, origin);
    const std::vector<int64_t> ids = encoder_.encode(text, /*add_special_tokens=*/false);
    const bool is_prefix =
        ids.size() <= tokens.ids.size() && std::equal(ids.begin(), ids.end(), tokens.ids.begin());
    if (is_prefix) return ids.size();
    throw InputError(
        cat(origin, ": the template writes the first ", count,
            " messages differently when others follow (many drop earlier reasoning), so the "
            "assistant's tokens cannot be told from the rest; use a template with {% generation %} "
            "blocks, or rows whose only message of the assistant is the last"));
  };
  for (size_t i = 0; i < list.size(); ++i) {
    if (!is_assistant_message(list[i])) continue;
    const size_t begin = num_tokens_of(i);
    const size_t end = num_tokens_of(i + 1);
    for (size_t at = begin; at < end; ++at) mask[at] = true;
  }
  return mask;
}

Sample ChatFormatter::format(const Json& messages, const Json& tools,
                             const std::string& origin) const {
  ChatTokens tokens = tokenize(messages, tools, origin);
  return pack_sample(encoder_, std::move(tokens.ids), tokens.is_assistant, options_.format);
}

Sample pack_sample(const TextEncoder& encoder, std::vector<int64_t> ids,
                   const std::vector<bool>& counts, const FormatOptions& options) {
  if (options.truncation == Truncation::kToLength) {
    const auto limit = static_cast<size_t>(options.seq_length.value());
    if (ids.size() > limit) ids.resize(limit);
  }
  Sample sample;
  sample.pad_id = sample_pad_id(encoder);
  sample.labels = ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!counts[i]) sample.labels[i] = kIgnoreIndex;
  }
  const bool pads = options.padding == Padding::kMaxLength;
  const auto fill = [&] {
    if (pads && static_cast<int64_t>(ids.size()) < *options.seq_length) {
      ids.resize(static_cast<size_t>(*options.seq_length), sample.pad_id);
    }
    sample.labels.resize(ids.size(), kIgnoreIndex);
  };
  fill();
  sample.num_attended = content_length(ids, sample.pad_id, encoder.eos_token_id());
  if (!options.is_unshifted) {
    sample.num_attended = std::max<int64_t>(sample.num_attended - 1, 0);
    if (!ids.empty()) {
      ids.pop_back();
      sample.labels.erase(sample.labels.begin());
    }
    fill();
  }
  sample.input_ids = std::move(ids);
  return sample;
}

}  // namespace automodel::datasets
