#include "recipes/commands/generate_command.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/conversations/conversation.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "hub/hub_error.h"
#include "hub/repository.h"
#include "models/text_generator.h"
#include "peft/adapter_file.h"
#include "recipes/build/generation_config.h"
#include "recipes/commands/loaded_model.h"
#include "recipes/commands/named_model.h"

namespace automodel::recipes {

namespace {

bool has_model(const std::string& folder) {
  return path_exists(path_join(folder, "config.json"));
}

/// A run's latest checkpoint; a checkpoint itself.
std::string checkpoint_of(const std::string& folder) {
  const std::string latest = path_join(folder, "LATEST");
  return path_exists(latest) ? latest : folder;
}

bool has_adapter(const std::string& folder) {
  return path_exists(path_join(folder, peft::kAdapterConfigName));
}

/// The folder itself, the one that a checkpoint was exported to, or that of a run's latest one.
/// Throws UserError for a checkpoint that was not exported.
std::string folder_of(const std::string& named) {
  const std::string model = local_model(named);
  if (!path_exists(model)) throw InputError(cat(model, " is not there"));
  if (has_model(model)) return model;
  const std::string checkpoint = checkpoint_of(model);
  const std::string exported = path_join(checkpoint, "model/consolidated");
  if (has_model(exported)) return exported;
  if (path_exists(path_join(checkpoint, "manifest.json"))) {
    throw UserError(cat(checkpoint, " has no exported model: automodel export ", checkpoint,
                        " OUT writes one"));
  }
  return model;
}

/// The model of an adapter: the one that is given, or that the adapter's configuration names, as a
/// path or on the hub. Throws UserError where there is none.
std::string base_of(const std::string& adapter, const std::string& given) {
  if (!given.empty()) return folder_of(given);
  const std::string named = peft::read_adapter_config(adapter).base;
  const char* const right = "give the model that it was trained with by --base";
  if (named.empty()) throw UserError(cat(adapter, " does not say which model it is of: ", right));
  if (!path_exists(named) && !hub::looks_like_hub_name(named)) {
    throw UserError(cat(adapter, " names ", named, ", which is not here: ", right));
  }
  try {
    return local_model(named);
  } catch (const hub::HubError& error) {
    throw hub::HubError(error.failure(), cat(error.what(), "; ", adapter, " names it: ", right));
  }
}

/// Where a model's files are.
struct Sources {
  std::string model;      ///< config.json and weights
  std::string adapter;    ///< "": none
  std::string tokenizer;  ///< the adapter's, if it has one
};

Sources sources_of_adapter(const std::string& adapter, const std::string& base) {
  const bool has_tokenizer = path_exists(path_join(adapter, "tokenizer.json"));
  const std::string model = base_of(adapter, base);
  return {model, adapter, has_tokenizer ? adapter : model};
}

/// The files of what is named: a folder, a name on the hub, a run or its checkpoint. An adapter
/// comes before the weights that may lie beside it, as in transformers. `base`: the model under it,
/// "" for the one that it names.
Sources sources_of(const std::string& named, const std::string& base) {
  const std::string folder = local_model(named);
  for (const std::string& adapter : {folder, path_join(checkpoint_of(folder), "model")}) {
    if (has_adapter(adapter)) return sources_of_adapter(adapter, base);
  }
  const std::string model = folder_of(folder);
  if (!base.empty()) {
    throw UserError(
        cat("--base is the model under an adapter, and ", model, " is a model of its own"));
  }
  return {model, "", model};
}

/// How tokens are chosen: as the model's folder says, but for what the options say.
models::TokenChoice choice_of(const std::string& folder, const GenerateOptions& options) {
  const bool is_greedy = options.temperature == 0.0;
  const bool does_sample =
      !is_greedy && (options.does_sample || options.temperature || options.top_k || options.top_p);
  FolderChoice found = folder_choice(folder, does_sample);
  for (const std::string& key : found.without_effect) {
    warn(cat(path_join(folder, "generation_config.json"), ": ", key, " has no effect here"));
  }
  models::TokenChoice& choice = found.choice;
  if (options.seed && !does_sample) warn("--seed has no effect: nothing is drawn (--sample draws)");
  choice.seed = static_cast<uint64_t>(options.seed.value_or(42));
  choice.temperature = options.temperature.value_or(choice.temperature);
  choice.top_k = options.top_k.value_or(choice.top_k);
  choice.top_p = options.top_p.value_or(choice.top_p);
  return choice;
}

/// What the model is asked, and the token that the chat template writes behind an answer.
struct Questions {
  std::vector<models::TokenIds> prompts;
  std::optional<int64_t> turn_end;
};

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
  asked.turn_end = formatter.turn_end();
  return asked;
}

}  // namespace

int run_generate_command(const std::string& model, const GenerateOptions& options) {
  const Sources sources = sources_of(model, options.base);
  const models::TokenChoice choice = choice_of(sources.model, options);
  const datasets::TokenizerEncoder encoder(tokenizers::Tokenizer::load(sources.tokenizer));
  const auto [prompts, turn_end] = questions_of(encoder, options);
  const at::Device device = command_device(options.is_on_device);
  const LoadedModel loaded = load_model(
      sources.model, {.device = device, .has_gradients = false, .adapter = sources.adapter});
  models::CausalLM& writer = *loaded.model;
  models::check_writes_text(writer);
  const auto most = models::most_positions(writer);
  const int64_t vocab_size = writer.dims().vocab_size;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0) throw UserError(cat("prompt ", i + 1, " has no token"));
    const int64_t largest = std::ranges::max(prompts[i]);
    if (largest >= vocab_size) {
      throw InputError(cat("prompt ", i + 1, ": the tokenizer makes token ", largest,
                           " of its vocabulary; the model's has ", vocab_size));
    }
    const int64_t usual = writer.dims().max_positions;
    if (!most && usual > 0 && length + options.max_new_tokens > usual) {
      warn(cat("prompt ", i + 1, " and what may be written, ", length + options.max_new_tokens,
               " tokens, are more than the ", usual, " positions that the model was made for"));
    }
    if (!most || length < *most) continue;
    throw UserError(
        cat("prompt ", i + 1, " has ", length, " tokens; the model has ", *most, " positions"));
  }
  std::vector<int64_t> ends = end_tokens(encoder.eos_token_id(), writer.hf_config(), sources.model);
  if (turn_end) ends.push_back(*turn_end);
  writer.eval();
  models::TextGenerator generator(writer, device, {options.max_new_tokens, ends, choice});
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<models::TokenIds> written = generator.write_on({prompts[i]}, {}, {i});
    std::cout << encoder.tokenizer().decode(written[0], /*skip_special_tokens=*/true) << std::endl;
  }
  return 0;
}

}  // namespace automodel::recipes
