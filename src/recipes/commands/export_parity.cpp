#include "recipes/commands/export_parity.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "checkpoint/hf_folder.h"
#include "checkpoint/sharded.h"
#include "checkpoint/state_files.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/conversations/conversation.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "loggers/console.h"
#include "models/block_denoiser.h"
#include "models/catalog.h"
#include "recipes/commands/kept_recipe.h"
#include "recipes/commands/loaded_model.h"
#include "recipes/read/read_data.h"

namespace automodel::recipes {

namespace {

constexpr int64_t kPiece = int64_t{1} << 22;

bool needs_tokenizer(const Recipe& recipe) {
  return recipe.dataset.plan != nullptr && recipe.dataset.plan->needs_tokenizer();
}

/// Prints the result of one comparison; returns `is_good`.
bool say(const char* what, bool is_good, const std::string& text) {
  std::cout << what << ": " << text << "; " << (is_good ? "ok" : "DIFFERENT") << "\n";
  return is_good;
}

/// Elements of a tensor of the checkpoint, rounded to `dtype`.
at::Tensor trained_piece(const checkpoint::ShardedFolder& trained, const std::string& name,
                         int64_t first, int64_t count, at::ScalarType dtype) {
  const at::Tensor out = at::empty({count}, at::TensorOptions().dtype(dtype));
  trained.read(name, first, out);
  return out;
}

bool is_same_tensor(const checkpoint::HfFolder& folder, const checkpoint::HfFolder::Place& place,
                    const checkpoint::ShardedFolder& trained, const std::string& name) {
  const int64_t numel = place.entry->numel();
  const at::ScalarType dtype = place.entry->dtype;
  for (int64_t first = 0; first < numel; first += kPiece) {
    const int64_t count = std::min(kPiece, numel - first);
    const at::Tensor exported = at::empty({count}, at::TensorOptions().dtype(dtype));
    folder.read_elements(place, first, exported);
    if (!at::equal(exported, trained_piece(trained, name, first, count, dtype))) return false;
  }
  return true;
}

bool check_weights(const checkpoint::HfFolder& folder, const checkpoint::ShardedFolder& trained) {
  std::vector<std::string> wrong;
  int64_t num_same = 0;
  for (const checkpoint::TensorInfo& tensor : trained.tensors()) {
    const auto place = folder.find(tensor.name);
    const bool is_same = place && place->entry->shape == tensor.shape &&
                         is_same_tensor(folder, *place, trained, tensor.name);
    if (is_same) {
      ++num_same;
    } else {
      wrong.push_back(place ? tensor.name : cat(tensor.name, " (missing)"));
    }
  }
  const std::string rest = wrong.empty() ? "" : cat(", not ", join(wrong, ", "));
  return say("weights", wrong.empty(),
             cat(num_same, " tensors are the checkpoint's to the last bit", rest));
}

/// Token ids below vocab_size, the same ones every time.
at::Tensor some_tokens(int64_t vocab_size) {
  constexpr int64_t kRows = 2, kTokens = 32;
  return at::arange(kRows * kTokens, at::TensorOptions().dtype(at::kLong))
      .mul(7919)
      .add(13)
      .remainder(vocab_size)
      .view({kRows, kTokens});
}

at::Tensor logits_of(models::CausalLM& model, const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  model.eval();
  tensor::Batch batch;
  batch.input_ids = ids;
  if (models::reads_sources(model.hf_config())) batch.source_ids = ids;
  return model.logits(model.hidden_states(batch));
}

bool check_logits(const std::string& path, const checkpoint::HfFolder& folder,
                  const checkpoint::ShardedFolder& trained) {
  const LoadedModel loaded = load_model(path);
  if (dynamic_cast<models::BlockDenoiser*>(loaded.model.get()) != nullptr) {
    std::cout << "logits: not compared, this model denoises blocks\n";
    return true;
  }
  const at::Tensor ids = some_tokens(loaded.model->dims().vocab_size);
  const at::Tensor of_export = logits_of(*loaded.model, ids);
  for (const tensor::FlatShard& shard : loaded.engine->parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const auto place = folder.find(segment.fqn);
      const at::ScalarType dtype = place ? place->entry->dtype : at::kFloat;
      const at::Tensor values =
          trained_piece(trained, segment.fqn, segment.spec.flat_begin, segment.spec.numel(), dtype);
      const at::NoGradGuard no_grad;
      shard.view(segment).copy_(values);
    }
  }
  const at::Tensor of_checkpoint = logits_of(*loaded.model, ids);
  const double worst = (of_export - of_checkpoint).abs().max().item<double>();
  return say(
      "logits", at::equal(of_export, of_checkpoint),
      cat("of ", ids.numel(), " tokens, worst absolute difference ", format_scientific(worst, 3)));
}

/// Conversations for both templates; one that a template refuses must be refused by the other too.
std::vector<Json> some_conversations() {
  const Json system = datasets::make_message("system", "You are brief.");
  const Json question = datasets::make_message("user", "Grüße, wie viel ist 2 + 2?");
  const Json answer = datasets::make_message("assistant", "4");
  return {Json(Json::Array{question}), Json(Json::Array{system, question}),
          Json(Json::Array{question, answer, datasets::make_message("user", "And 3 more?\n")})};
}

/// The prompt that a tokenizer's template gives and its tokens, or why there is none.
struct Prompt {
  std::string text;
  std::vector<int64_t> ids;
  std::string refusal;
  bool operator==(const Prompt&) const = default;
};

Prompt prompt_of(const datasets::TextEncoder& encoder, const std::optional<std::string>& source,
                 const Json& messages) {
  Prompt prompt;
  try {
    const datasets::ChatFormatter formatter(encoder, source, {});
    prompt.text = formatter.prompt(messages, Json(), "the conversation");
    prompt.ids = encoder.encode(prompt.text, /*add_special_tokens=*/false);
  } catch (const InputError& error) {
    // Compares what follows the template's file name, since the names differ.
    const std::string reason = error.what();
    prompt.refusal = reason.substr(std::min(reason.find("error: "), reason.size()));
  }
  return prompt;
}

bool check_chat_prompts(const datasets::TextEncoder& ours, const datasets::TextEncoder& theirs,
                        const std::optional<std::string>& named) {
  if (!theirs.has_chat_template()) return say("prompts", false, "the folder has no chat template");
  int64_t num_written = 0;
  int64_t num_different = 0;
  for (const Json& messages : some_conversations()) {
    const Prompt of_recipe = prompt_of(ours, named, messages);
    if (of_recipe != prompt_of(theirs, std::nullopt, messages)) {
      ++num_different;
    } else if (of_recipe.refusal.empty()) {
      ++num_written;
    }
  }
  const std::string rest = num_different == 0 ? "" : cat(", ", num_different, " are not");
  return say("prompts", num_different == 0 && num_written > 0,
             cat(num_written, " conversations are written and tokenized as by the recipe's ",
                 named ? "chat template" : "tokenizer", rest));
}

bool check_prompts(const Recipe& recipe, const std::string& path) {
  if (!needs_tokenizer(recipe)) {
    std::cout << "prompts: not compared, the recipe's data need no tokenizer\n";
    return true;
  }
  const std::string own = tokenizer_folder(recipe, recipe.dataset);
  if (own.empty() || !is_directory(own)) {
    throw UserError(
        "the recipe's tokenizer is not on this machine; is this the folder that the run was "
        "started in?");
  }
  const auto ours = datasets::load_text_encoder(own, recipe.dataset.encoder_options);
  const auto theirs = datasets::load_text_encoder(path, recipe.dataset.encoder_options);
  const std::optional<std::string> named = recipe.dataset.plan->named_template();
  if (named || ours->has_chat_template()) return check_chat_prompts(*ours, *theirs, named);
  const std::string text = "Grüße, wie viel ist 2 + 2?";
  return say("prompts", ours->encode(text, true) == theirs->encode(text, true),
             "no chat template; the tokens of a text are the recipe's");
}

bool check_files(const std::string& path, bool has_tokenizer, bool generates) {
  std::vector<std::string> missing;
  std::vector<std::string> wanted = {"config.json"};
  if (generates) wanted.emplace_back("generation_config.json");
  if (has_tokenizer) wanted.insert(wanted.end(), {"tokenizer.json", "tokenizer_config.json"});
  for (const std::string& name : wanted) {
    if (!path_exists(path_join(path, name))) missing.push_back(name);
  }
  return say("files", missing.empty(),
             missing.empty() ? join(wanted, ", ") : cat("missing ", join(missing, ", ")));
}

}  // namespace

int run_export_parity(const std::string& folder) {
  const auto exported = checkpoint::HfFolder::open(folder);
  const std::string model = path_join(folder, "..");
  const std::string checkpoint = path_join(model, "..");
  if (!path_exists(path_join(model, "index.json")) ||
      !path_exists(checkpoint::recipe_path(checkpoint))) {
    throw UserError(cat(folder,
                        " does not lie in a checkpoint (CHECKPOINT/model/consolidated), whose "
                        "weights and recipe it is compared with"));
  }
  const auto trained = checkpoint::ShardedFolder::open(model);
  loggers::ConsoleReporter console(0, 1);
  const Recipe recipe = read_kept_recipe(checkpoint, console);
  bool is_good = check_files(folder, needs_tokenizer(recipe), !recipe.model.makes_embeddings);
  is_good &= check_weights(exported, trained);
  is_good &= check_logits(folder, exported, trained);
  is_good &= check_prompts(recipe, folder);
  return is_good ? 0 : 1;
}

}  // namespace automodel::recipes
