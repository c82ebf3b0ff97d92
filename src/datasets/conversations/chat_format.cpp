#include "datasets/conversations/chat_format.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "chat/characters.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/argument_form.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

TemplateText own_template(const std::optional<TemplateText>& own, const std::string& tokenizer) {
  if (own) return {own->text, cat("chat template of ", tokenizer), own->tool_use};
  throw UserError(cat("tokenizer ", tokenizer,
                      " has no chat template; set chat_template to one, or to a file with one"));
}

std::string tool_use_name(const TemplateText& source) {
  return cat(source.name, " (tool_use)");
}

/// Keeps the last run of ones.
void keep_last_run(std::vector<bool>& mask) {
  size_t end = mask.size();
  while (end > 0 && !mask[end - 1]) --end;
  size_t begin = end;
  while (begin > 0 && mask[begin - 1]) --begin;
  std::fill(mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(begin), false);
}

bool has_role(const Json& message, std::string_view role) {
  return message.at("role").as_string() == role;
}

bool is_prefix(const std::vector<int64_t>& ids, const std::vector<int64_t>& whole) {
  return ids.size() <= whole.size() && std::equal(ids.begin(), ids.end(), whole.begin());
}

Json first_messages(const Json& messages, size_t count) {
  const Json::Array& list = messages.as_array();
  return Json(Json::Array(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count)));
}

/// The messages with the system's text before the user's first one; nullopt when there is not
/// exactly one message of the system.
std::optional<Json> without_system(const Json& messages) {
  const Json* system = nullptr;
  Json::Array out;
  for (const Json& message : messages.as_array()) {
    if (!has_role(message, "system")) {
      out.push_back(message);
    } else if (system != nullptr) {
      return std::nullopt;
    } else {
      system = &message;
    }
  }
  if (system == nullptr) return std::nullopt;
  const std::string& text = system->at("content").as_string();
  const auto user =
      std::ranges::find_if(out, [](const Json& message) { return has_role(message, "user"); });
  if (user == out.end()) {
    out.insert(out.begin(), make_message("user", text));
  } else {
    (*user)["content"] = cat(text, "\n", user->at("content").as_string());
  }
  return Json(std::move(out));
}

/// Where `with` has tokens that `without` has not: behind all that they begin with and before all
/// that they end with; nullopt when there are none.
std::optional<std::pair<size_t, size_t>> added_range(const std::vector<int64_t>& with,
                                                     const std::vector<int64_t>& without) {
  const size_t shorter = std::min(with.size(), without.size());
  size_t begin = 0;
  while (begin < shorter && with[begin] == without[begin]) ++begin;
  size_t num_same = 0;
  while (num_same < shorter - begin &&
         with[with.size() - 1 - num_same] == without[without.size() - 1 - num_same]) {
    ++num_same;
  }
  const size_t end = with.size() - num_same;
  if (end <= begin) return std::nullopt;
  return std::pair{begin, end};
}

}  // namespace

TemplateText named_template(const std::string& source) {
  const bool is_text = source.find("{%") != std::string::npos ||
                       source.find("{{") != std::string::npos ||
                       source.find('\n') != std::string::npos;
  if (is_text) return {source, "chat_template"};
  if (!path_exists(source)) {
    throw UserError(
        cat("chat_template: '", source, "' is neither a template nor the path of a file"));
  }
  return tokenizers::read_chat_template(source);
}

TemplateUse use_of_template(const std::optional<std::string>& named, bool is_required) {
  if (named) return TemplateUse::kNone;
  return is_required ? TemplateUse::kTokenizers : TemplateUse::kTokenizersIfAny;
}

namespace {

void parse(const TemplateText& source) {
  const chat::ChatTemplate plain(source.text, source.name);
  if (source.tool_use) const chat::ChatTemplate tools(*source.tool_use, tool_use_name(source));
}

}  // namespace

void check_template(const std::optional<std::string>& named) {
  if (named) parse(named_template(*named));
}

void check_template(TemplateUse use, const std::optional<TemplateText>& own,
                    const std::string& folder) {
  if (use == TemplateUse::kNone || (use == TemplateUse::kTokenizersIfAny && !own)) return;
  parse(own_template(own, folder));
}

ChatFormatter::ChatFormatter(const TextEncoder& encoder, const std::optional<std::string>& source,
                             ChatFormatOptions options)
    : ChatFormatter(
          encoder,
          source ? named_template(*source) : own_template(encoder.chat_template(), encoder.name()),
          options) {}

ChatFormatter::ChatFormatter(const TextEncoder& encoder, TemplateText source,
                             ChatFormatOptions options)
    : encoder_(encoder),
      options_(options),
      template_(source.text, source.name),
      now_(chat::local_now()) {
  if (source.tool_use) tool_template_.emplace(*source.tool_use, tool_use_name(source));
  const auto takes_texts = [this](const Template& asked, bool has_tools) {
    return datasets::takes_argument_texts(asked.parsed, encoder_.template_variables(), has_tools,
                                          now_);
  };
  // Some templates write no call without tools.
  template_.takes_argument_texts =
      takes_texts(template_, false) || (!tool_template_ && takes_texts(template_, true));
  if (tool_template_) tool_template_->takes_argument_texts = takes_texts(*tool_template_, true);
}

const ChatFormatter::Template& ChatFormatter::template_for(const Conversation& conversation) const {
  return tool_template_ && !conversation.tools.is_null() ? *tool_template_ : template_;
}

void ChatFormatter::check_texts(const Json& json, const std::string& where) const {
  if (json.is_string()) {
    if (const std::optional<int64_t> id = encoder_.find_special(json.as_string())) {
      throw InputError(cat(where, ": the text holds the special token ", encoder_.token_text(*id),
                           ", which would end or begin a turn; remove it, or set "
                           "allow_special_tokens_in_text: true to have it read as that token"));
    }
  } else if (json.is_array()) {
    for (const Json& item : json.as_array()) check_texts(item, where);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.as_object()) {
      check_texts(Json(key), where);
      check_texts(value, where);
    }
  }
}

chat::Rendering ChatFormatter::render(const Conversation& conversation,
                                      const Json& variables) const {
  Json all = encoder_.template_variables();
  all["messages"] = conversation.messages;
  all["tools"] = conversation.tools;
  all["documents"] = Json();
  all["add_generation_prompt"] = Json(false);
  for (const auto& [name, value] : variables.as_object()) all[name] = value;
  try {
    return template_for(conversation).parsed.render(all, now_);
  } catch (const chat::TemplateError& error) {
    const bool refuses_system =
        error.message().find("System role not supported") != std::string::npos;
    const auto merged = refuses_system ? without_system(conversation.messages) : std::nullopt;
    if (!merged) throw InputError(cat(conversation.origin, ": ", error.what()));
    return render({*merged, conversation.tools, conversation.origin}, variables);
  }
}

ChatFormatter::Written ChatFormatter::write(const Conversation& conversation,
                                            const Json& variables) const {
  const auto rendered = [&](Json messages) {
    chat::Rendering rendering =
        render({messages, conversation.tools, conversation.origin}, variables);
    return Written{std::move(messages), std::move(rendering)};
  };
  std::exception_ptr failure;
  if (!template_for(conversation).takes_argument_texts) {
    try {
      return rendered(with_parsed_arguments(conversation.messages));
    } catch (const InputError&) {
      if (!has_calls(conversation.messages)) throw;
      failure = std::current_exception();
    }
  }
  try {
    return rendered(with_argument_texts(conversation.messages));
  } catch (const InputError&) {
    if (!failure) throw;
  }
  std::rethrow_exception(failure);  // what the template says to objects
}

std::vector<int64_t> ChatFormatter::ids_of(const Conversation& conversation,
                                           const Json& variables) const {
  return encoder_.encode(render(conversation, variables).text, /*add_special_tokens=*/false);
}

std::string ChatFormatter::prompt(const Json& messages, const Json& tools,
                                  const std::string& origin) const {
  Json variables = Json::object();
  variables["add_generation_prompt"] = true;
  return write({messages, tools, origin}, variables).rendering.text;
}

std::string ChatFormatter::left_out(const Json& messages, const Json& tools,
                                    const std::string& origin) const {
  const bool has_tools = tools.is_array() && tools.size() > 0;
  std::vector<std::string> called;
  for (const Json& message : messages.as_array()) {
    const Json* calls = message.find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (const Json& call : calls->as_array()) {
      const Json* function = call.find("function");
      const std::string name = (function == nullptr ? call : *function).get("name", "");
      if (!name.empty()) called.push_back(name);
    }
  }
  if (!has_tools && called.empty()) return "";
  const auto text_with = [&](const Json& given) {
    return write({messages, given, origin}, Json::object()).rendering.text;
  };
  const std::string text = text_with(tools);
  const auto is_written = [&](const std::string& name) {
    return text.find(name) != std::string::npos;
  };
  std::vector<std::string> out;
  if (has_tools && text_with(Json()) == text) out.emplace_back("tools");
  if (!called.empty() && std::ranges::none_of(called, is_written)) out.emplace_back("tool_calls");
  return join(out, " and ");
}

std::optional<int64_t> ChatFormatter::turn_end() const {
  const std::string answer = "answer";
  std::string text;
  try {
    text = tokenize(question_and_answer("question", answer), Json(), "the chat template").text;
  } catch (const InputError&) {
    return std::nullopt;  // a template of prompts alone
  }
  const size_t found = text.rfind(answer);
  if (found == std::string::npos) return std::nullopt;
  const auto ids = encoder_.encode(text.substr(found + answer.size()), false);
  return !ids.empty() && encoder_.is_special(ids[0]) ? std::optional(ids[0]) : std::nullopt;
}

int64_t ChatFormatter::num_tokens(const Json& messages, const Json& tools,
                                  const std::string& origin) const {
  const std::string text = write({messages, tools, origin}, Json::object()).rendering.text;
  return std::ssize(encoder_.encode(text, /*add_special_tokens=*/false));
}

namespace {

[[noreturn]] void refuse_without_answers(const std::string& origin) {
  throw InputError(cat(origin,
                       ": nothing in this conversation is the assistant's, so nothing of it can be "
                       "learned"));
}

/// False for an answer that is marked as none to learn: `weight: 0`, as OpenAI's files have it, or
/// `train: false`.
bool is_trained(const Json& message) {
  const Json* weight = message.find("weight");
  const Json* train = message.find("train");
  const bool is_weightless = weight != nullptr && weight->is_number() && weight->as_double() == 0;
  return !is_weightless && !(train != nullptr && train->is_bool() && !train->as_bool());
}

}  // namespace

bool has_only_untrained_answers(const Json& messages) {
  bool has_answers = false;
  for (const Json& message : messages.as_array()) {
    if (!has_role(message, "assistant")) continue;
    if (is_trained(message)) return false;
    has_answers = true;
  }
  return has_answers;
}

void check_for_answers(const Json& messages, const std::string& origin) {
  for (const Json& message : messages.as_array()) {
    if (has_role(message, "assistant")) return;
  }
  refuse_without_answers(origin);
}

ChatTokens ChatFormatter::tokenize(const Json& messages, const Json& tools,
                                   const std::string& origin) const {
  if (!options_.allows_special_tokens) {
    const auto check = [&](const Json& all) {
      int64_t number = 0;
      for (const Json& message : all.as_array()) {
        check_texts(message, cat(origin, ": message ", ++number));
      }
    };
    check(messages);
    if (has_calls(messages)) check(with_parsed_arguments(messages));  // texts behind escapes
    check_texts(tools, cat(origin, ": tools"));
  }
  Written written = write({messages, tools, origin}, Json::object());
  const Conversation conversation{written.messages, tools, origin};
  chat::Rendering& rendering = written.rendering;
  ChatTokens tokens;
  tokens.text = std::move(rendering.text);
  tokens.ids = encoder_.encode(tokens.text, /*add_special_tokens=*/false);
  tokens.is_assistant = mask_of_assistant(tokens, rendering.generation, conversation);
  const bool has_answer = std::ranges::find(tokens.is_assistant, true) != tokens.is_assistant.end();
  if (!has_answer && !has_only_untrained_answers(messages)) {
    refuse_without_answers(origin);
  }
  tokens.is_left_out.assign(tokens.ids.size(), false);
  if (options_.mask_generation_prompt) mark_generation_prompts(conversation, tokens);
  mark_reasoning(conversation, tokens);
  return tokens;
}

namespace {

/// The generation blocks of the answers to learn. Throws InputError where some are marked and the
/// template does not write one block for each answer.
std::vector<chat::Rendering::Span> trained_spans(const std::vector<chat::Rendering::Span>& spans,
                                                 const Json& messages, const std::string& origin) {
  std::vector<const Json*> answers;
  for (const Json& message : messages.as_array()) {
    if (has_role(message, "assistant")) answers.push_back(&message);
  }
  const bool are_all_trained =
      std::ranges::all_of(answers, [](const Json* answer) { return is_trained(*answer); });
  if (are_all_trained) return spans;
  if (spans.size() != answers.size()) {
    throw InputError(cat(origin, ": the template writes ", spans.size(), " generation blocks for ",
                         answers.size(),
                         " messages of the assistant, so those with weight 0 cannot be told"));
  }
  std::vector<chat::Rendering::Span> kept;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (is_trained(*answers[i])) kept.push_back(spans[i]);
  }
  return kept;
}

}  // namespace

std::vector<bool> ChatFormatter::mask_of_assistant(const ChatTokens& tokens,
                                                   const std::vector<chat::Rendering::Span>& spans,
                                                   const Conversation& conversation) const {
  if (template_for(conversation).parsed.has_generation()) {
    return mask_of_spans(tokens, trained_spans(spans, conversation.messages, conversation.origin),
                         conversation.origin);
  }
  if (options_.format.answer_only_loss_mask) return mask_of_turns(tokens, conversation);
  return std::vector<bool>(tokens.ids.size(), true);
}

std::vector<bool> ChatFormatter::mask_of_spans(const ChatTokens& tokens,
                                               const std::vector<chat::Rendering::Span>& spans,
                                               const std::string& origin) const {
  std::vector<bool> mask(tokens.ids.size(), false);
  if (spans.empty()) return mask;
  const auto refuse = [&] {
    throw InputError(cat(origin, ": cannot tell where in the text each token of tokenizer ",
                         encoder_.name(),
                         " lies, so the template's generation blocks cannot be "
                         "found again; is the text normalized by the tokenizer?"));
  };
  auto ends = encoder_.token_ends(tokens.text, tokens.ids);
  std::string normalized;
  if (!ends) {
    normalized = encoder_.normalized(tokens.text);
    ends = encoder_.token_ends(normalized, tokens.ids);
    if (!ends) refuse();
  }
  // Where a code point lies in the text that the tokens stand for.
  const auto place = [&](int64_t code_point) {
    const size_t byte = chat::byte_of_code_point(tokens.text, code_point);
    if (normalized.empty()) return byte;
    const std::string before = encoder_.normalized(std::string_view(tokens.text).substr(0, byte));
    if (!normalized.starts_with(before)) refuse();
    return before.size();
  };
  for (const chat::Rendering::Span& span : spans) {
    const size_t begin = place(span.begin);
    const size_t end = place(span.end);
    for (size_t i = 0; i < mask.size(); ++i) {
      const size_t token_begin = i == 0 ? 0 : (*ends)[i - 1];
      if (token_begin < end && (*ends)[i] > begin) mask[i] = true;
    }
  }
  return mask;
}

size_t ChatFormatter::num_tokens_before(const ChatTokens& tokens,
                                        const Conversation& conversation) const {
  const Json other(Json::Array{make_message("user", "")});
  try {
    const std::vector<int64_t> ids =
        ids_of({other, conversation.tools, conversation.origin}, Json::object());
    const auto differ = std::mismatch(ids.begin(), ids.end(), tokens.ids.begin(), tokens.ids.end());
    return static_cast<size_t>(differ.first - ids.begin());
  } catch (const InputError&) {
    return 0;  // the template wants more than such a message
  }
}

std::vector<bool> ChatFormatter::mask_of_turns(const ChatTokens& tokens,
                                               const Conversation& conversation) const {
  std::vector<bool> mask(tokens.ids.size(), false);
  const Json::Array& list = conversation.messages.as_array();
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  // The tokens of the first `count` messages, which must be how the whole conversation begins; an
  // eos that ends them may be another token where the next message follows.
  const auto num_tokens_of = [&](size_t count) -> size_t {
    if (count == 0) return num_tokens_before(tokens, conversation);
    if (count == list.size()) return tokens.ids.size();
    const Json first = first_messages(conversation.messages, count);
    const std::string text =
        render({first, conversation.tools, conversation.origin}, Json::object()).text;
    std::vector<int64_t> ids = encoder_.encode(text, /*add_special_tokens=*/false);
    const size_t size = ids.size();
    if (is_prefix(ids, tokens.ids)) return size;
    const bool ends = size > 1 && size <= tokens.ids.size() && ids.back() == eos;
    ids.resize(size - (ends ? 1 : 0));
    if (ends && is_prefix(ids, tokens.ids)) return size;
    if (tokens.text.starts_with(text)) {
      throw InputError(cat(conversation.origin, ": a token of tokenizer ", encoder_.name(),
                           " joins the end of message ", count,
                           " with what follows, so the assistant's tokens cannot be told from the "
                           "rest; has the tokenizer the template's special tokens?"));
    }
    throw InputError(
        cat(conversation.origin, ": the template writes the first ", count,
            " messages differently when others follow (many drop earlier reasoning), so the "
            "assistant's tokens cannot be told from the rest; use a template with {% generation %} "
            "blocks, or rows whose only message of the assistant is the last"));
  };
  for (size_t i = 0; i < list.size(); ++i) {
    if (!has_role(list[i], "assistant") || !is_trained(list[i])) continue;
    const size_t begin = num_tokens_of(i);
    const size_t end = num_tokens_of(i + 1);
    for (size_t at = begin; at < end; ++at) mask[at] = true;
  }
  return mask;
}

size_t ChatFormatter::generation_prompt_length(const ChatTokens& tokens, const Conversation& before,
                                               const std::vector<int64_t>& before_ids) const {
  Json variables = Json::object();
  variables["add_generation_prompt"] = true;
  std::vector<Json> modes = {variables};
  // The data alone do not tell whether a turn was written by a model that thinks.
  if (template_for(before).source.find("enable_thinking") != std::string::npos) {
    modes.push_back(variables);
    modes[0]["enable_thinking"] = true;
    modes[1]["enable_thinking"] = false;
  }
  size_t longest = 0;
  for (const Json& mode : modes) {
    const std::vector<int64_t> prompt = ids_of(before, mode);
    // A template may write what comes before anew instead of adding to it.
    if (!is_prefix(before_ids, prompt) || !is_prefix(prompt, tokens.ids)) continue;
    longest = std::max(longest, prompt.size() - before_ids.size());
  }
  return longest;
}

void ChatFormatter::mark_generation_prompts(const Conversation& conversation,
                                            ChatTokens& tokens) const {
  const Json::Array& list = conversation.messages.as_array();
  for (size_t i = 0; i < list.size(); ++i) {
    if (!has_role(list[i], "assistant")) continue;
    if (i == 0) {
      tokens.note =
          cat(conversation.origin,
              ": message 1: mask_generation_prompt does nothing for a message that nothing "
              "comes before");
      continue;
    }
    const Json first = first_messages(conversation.messages, i);
    const Conversation before{first, conversation.tools, conversation.origin};
    const std::vector<int64_t> ids = ids_of(before, Json::object());
    if (!is_prefix(ids, tokens.ids)) {
      tokens.note = cat(conversation.origin, ": message ", i + 1,
                        ": mask_generation_prompt does nothing here, because the template writes "
                        "what comes before the message differently without it");
      continue;
    }
    const size_t end = ids.size() + generation_prompt_length(tokens, before, ids);
    for (size_t at = ids.size(); at < end; ++at) tokens.is_assistant[at] = false;
  }
}

void ChatFormatter::mark_reasoning(const Conversation& conversation, ChatTokens& tokens) const {
  const Json::Array& list = conversation.messages.as_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const Json* reasoning = list[i].find("reasoning_content");
    const bool has_reasoning = has_role(list[i], "assistant") && reasoning != nullptr &&
                               reasoning->is_string() && !reasoning->as_string().empty();
    if (!has_reasoning) continue;
    if (template_for(conversation).source.find("reasoning_content") == std::string::npos) {
      tokens.note = cat(conversation.origin, ": message ", i + 1,
                        ": the template does not write reasoning_content, so it is not trained on");
      return;
    }
    if (!options_.mask_reasoning_content) continue;
    Json without = conversation.messages;
    without.as_array()[i]["reasoning_content"] = "";
    const auto range = added_range(
        tokens.ids, ids_of({without, conversation.tools, conversation.origin}, Json::object()));
    if (!range) {
      tokens.note = cat(conversation.origin, ": message ", i + 1,
                        ": the template does not write this message's reasoning_content, so "
                        "mask_reasoning_content does nothing here");
      continue;
    }
    for (size_t at = range->first; at < range->second; ++at) tokens.is_left_out[at] = true;
  }
}

Sample ChatFormatter::format(const Json& messages, const Json& tools,
                             const std::string& origin) const {
  return format(tokenize(messages, tools, origin));
}

Sample ChatFormatter::format(ChatTokens tokens) const {
  const int64_t num_cut = truncate(tokens);
  std::vector<bool> counts = std::move(tokens.is_assistant);
  if (options_.mask_history) keep_last_run(counts);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = counts[i] && !tokens.is_left_out[i];
  Sample sample = pack_sample(encoder_, std::move(tokens.ids), counts, options_.format);
  sample.num_cut = num_cut;
  return sample;
}

int64_t ChatFormatter::truncate(ChatTokens& tokens) const {
  if (options_.format.truncation == Truncation::kNone) return 0;
  const int64_t num_cut = std::ssize(tokens.ids) - options_.format.seq_length.value();
  if (num_cut <= 0) return 0;
  const auto cut = [&](auto& list) {
    const auto first = encoder_.truncates_left() ? list.begin() : list.end() - num_cut;
    list.erase(first, first + num_cut);
  };
  cut(tokens.ids);
  cut(tokens.is_assistant);
  cut(tokens.is_left_out);
  return num_cut;
}

Sample pack_sample(const TextEncoder& encoder, std::vector<int64_t> ids,
                   const std::vector<bool>& counts, const FormatOptions& options) {
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
