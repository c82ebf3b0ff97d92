#include "recipes/commands/generate_command.h"

#include <iostream>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/conversations/conversation.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "models/greedy_decoder.h"
#include "recipes/build/end_tokens.h"
#include "recipes/commands/loaded_model.h"

namespace automodel::recipes {

namespace {

bool has_model(const std::string& folder) {
  return path_exists(path_join(folder, "config.json"));
}

/// The folder itself, the one that a checkpoint was exported to, or that of a run's latest one.
/// Throws UserError for a checkpoint that was not exported, and for an adapter.
std::string folder_of(const std::string& model) {
  if (has_model(model)) return model;
  const std::string latest = path_join(model, "LATEST");
  const std::string checkpoint = path_exists(latest) ? latest : model;
  const std::string exported = path_join(checkpoint, "model/consolidated");
  if (has_model(exported)) return exported;
  for (const std::string& folder : {model, path_join(checkpoint, "model")}) {
    if (!path_exists(path_join(folder, "adapter_config.json"))) continue;
    throw UserError(cat(folder, " has an adapter without its model: automodel merge-lora BASE ",
                        folder, " OUT writes both as one"));
  }
  if (path_exists(path_join(checkpoint, "manifest.json"))) {
    throw UserError(cat(checkpoint, " has no exported model: automodel export ", checkpoint,
                        " OUT writes one"));
  }
  return model;
}

/// What the model is asked, and the token that the chat template writes behind an answer.
struct Questions {
  std::vector<models::TokenIds> prompts;
  std::optional<int64_t> turn_end;
};

/// The special token behind an answer, where the template writes one; it need not be the
/// tokenizer's end token.
std::optional<int64_t> turn_end(const datasets::ChatFormatter& formatter,
                                const datasets::TextEncoder& encoder) {
  const std::string answer = "answer";
  std::string text;
  try {
    const Json messages = datasets::question_and_answer("question", answer);
    text = formatter.tokenize(messages, Json(), "the chat template").text;
  } catch (const InputError&) {
    return std::nullopt;  // a template of prompts alone
  }
  const size_t found = text.rfind(answer);
  if (found == std::string::npos) return std::nullopt;
  const auto ids = encoder.encode(text.substr(found + answer.size()), false);
  return !ids.empty() && encoder.is_special(ids[0]) ? std::optional(ids[0]) : std::nullopt;
}

Questions questions_of(const datasets::TextEncoder& encoder, const GenerateOptions& options) {
  Questions asked;
  if (options.is_raw || !encoder.has_chat_template()) {
    for (const std::string& text : options.prompts) {
      asked.prompts.push_back(encoder.encode(text, true));
    }
    return asked;
  }
  const datasets::ChatFormatter formatter(encoder, std::nullopt, {.allows_special_tokens = true});
  for (const std::string& text : options.prompts) {
    Json messages = Json::array();
    messages.push_back(datasets::make_message("user", text));
    asked.prompts.push_back(
        encoder.encode(formatter.prompt(messages, Json(), "the prompt"), false));
  }
  asked.turn_end = turn_end(formatter, encoder);
  return asked;
}

}  // namespace

int run_generate_command(const std::string& model, const GenerateOptions& options) {
  const std::string folder = folder_of(model);
  const datasets::TokenizerEncoder encoder(tokenizers::Tokenizer::load(folder));
  const auto [prompts, turn_end] = questions_of(encoder, options);
  const at::Device device = command_device(options.is_on_device);
  const LoadedModel loaded = load_model(folder, device, /*has_gradients=*/false);
  models::CausalLM& writer = *loaded.model;
  models::check_writes_text(writer);
  const auto most = models::most_positions(writer);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0) throw UserError(cat("prompt ", i + 1, " has no token"));
    if (!most || length < *most) continue;
    throw UserError(
        cat("prompt ", i + 1, " has ", length, " tokens; the model has ", *most, " positions"));
  }
  std::vector<int64_t> ends = end_tokens(encoder.eos_token_id(), writer.hf_config(), folder);
  if (turn_end) ends.push_back(*turn_end);
  writer.eval();
  models::GreedyDecoder decoder(writer, device, {options.max_new_tokens, ends});
  for (const models::TokenIds& prompt : prompts) {
    const std::vector<models::TokenIds> written = decoder.write_on({prompt}, {});
    std::cout << encoder.tokenizer().decode(written[0], /*skip_special_tokens=*/true) << std::endl;
  }
  return 0;
}

}  // namespace automodel::recipes
