#include "recipes/run/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/sharded.h"
#include "checkpoint/state_files.h"
#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "distributed/fsdp/copy_stream.h"
#include "recipes/build/generation_config.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/read_data.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/retrieval_section.h"
#include "recipes/read/sentence_folder.h"
#include "recipes/run/host_blocks.h"
#include "recipes/run/host_files.h"
#include "recipes/run/session_adapters.h"

namespace automodel::recipes {

namespace {

using checkpoint::NamedShards;

checkpoint::ModelSignature signature_of_model(const Recipe& recipe) {
  const bool has_name = !recipe.model.is_new() && !recipe.model.source.empty();
  // The name as written does not depend on the folder in which the run is started.
  std::string name = recipe.model.source;
  for (const char* key :
       {"config", "config.pretrained_model_name_or_path", "pretrained_model_name_or_path"}) {
    const config::Node* written = recipe.root.find_path(cat("model.", key));
    if (written != nullptr && written->is_string()) name = *written->string_value();
  }
  const auto& four_bits = recipe.quantization;
  const std::string quantization = four_bits
                                       ? cat(four_bits->bnb_4bit_quant_type,
                                             four_bits->bnb_4bit_use_double_quant ? ", double" : "")
                                       : "";
  checkpoint::ModelSignature signature(has_name ? std::optional(name) : std::nullopt,
                                       recipe.model.hf_config, recipe.peft.has_value(),
                                       quantization);
  if (recipe.model.makes_embeddings) {
    signature.add(models::kPoolingKey,
                  std::string(models::text_pooling_name(recipe.model.pooling)));
    signature.add("l2_normalize", recipe.model.normalizes_embeddings);
    signature.add("is_causal", recipe.model.hf_config.get("is_causal", false));
  }
  return signature;
}

/// Adds the weights of a model that are read whenever a run continues.
void add_base_weights(const ModelRecipe& model, checkpoint::ModelSignature& signature) {
  if (model.draws_weights() || model.folder.empty()) return;
  try {
    signature.add_files(checkpoint::ModelSignature::kBaseWeights,
                        checksum_of_weights(model.folder));
  } catch (const UserError&) {
    // Loading them says what is wrong.
  }
}

void add_tokenizer(const Recipe& recipe, checkpoint::ModelSignature& signature) {
  const std::string folder = tokenizer_folder(recipe, recipe.dataset);
  const bool is_read = recipe.dataset.plan != nullptr && recipe.dataset.plan->needs_tokenizer();
  const std::string path = path_join(folder, "tokenizer.json");
  if (!is_read || folder.empty() || !path_exists(path)) return;
  signature.add_files(checkpoint::ModelSignature::kTokenizer,
                      format_checksum(checksum_of_file(path)));
}

/// Replaces buffers by copies that are there once the stream is synchronized.
void copy_buffers(std::vector<tensor::FlatShard>& shards, HostBlocks& blocks,
                  distributed::CopyStream& copies) {
  for (tensor::FlatShard& shard : shards) {
    const at::Tensor buffer = shard.buffer.detach();
    const at::Tensor host = blocks.take(buffer.sizes(), buffer.scalar_type());
    if (buffer.is_cpu()) {
      host.copy_(buffer);
    } else {
      copies.to_host(host, buffer);
    }
    shard.buffer = host;
  }
}

/// What copies of shards take, those without a segment left out.
int64_t bytes_of(std::vector<tensor::FlatShard>& shards) {
  std::erase_if(shards, [](const tensor::FlatShard& shard) { return shard.segments.empty(); });
  int64_t bytes = 0;
  for (const tensor::FlatShard& shard : shards) {
    bytes += HostBlocks::room_of(static_cast<int64_t>(shard.buffer.nbytes()));
  }
  return bytes;
}

int64_t bytes_of(CheckpointContents& contents) {
  int64_t num_bytes = bytes_of(contents.parameters);
  for (auto& [prefix, shards] : contents.optimizer) num_bytes += bytes_of(shards);
  return num_bytes;
}

}  // namespace

at::Device device_of(const CheckpointContents& contents) {
  const auto is_elsewhere = [](const tensor::FlatShard& shard) {
    return shard.buffer.defined() && !shard.buffer.is_cpu();
  };
  const auto found = std::ranges::find_if(contents.parameters, is_elsewhere);
  return found == contents.parameters.end() ? at::Device(at::kCPU) : found->buffer.device();
}

at::Tensor memory_of_copies(CheckpointContents contents) {
  at::Tensor memory;
  const HostBlocks blocks(bytes_of(contents), device_of(contents), memory);
  return memory;
}

void copy_tensors(CheckpointContents& contents, at::Tensor& kept) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(contents);
  HostBlocks blocks(bytes_of(contents), device, kept);
  distributed::CopyStream copies(device);
  copy_buffers(contents.parameters, blocks, copies);
  for (auto& [prefix, shards] : contents.optimizer) copy_buffers(shards, blocks, copies);
  copies.synchronize();
}

checkpoint::LifecycleOptions lifecycle_options(const CheckpointSection& section,
                                               bool is_coordinator) {
  checkpoint::LifecycleOptions options;
  options.root = section.checkpoint_dir;
  options.best_metric_key = section.best_metric_key;
  options.max_recent_checkpoints = section.max_recent_checkpoints;
  options.is_coordinator = is_coordinator;
  return options;
}

checkpoint::ModelSignature signature_of(const Recipe& recipe) {
  checkpoint::ModelSignature signature = signature_of_model(recipe);
  if (recipe.peft) add_base_weights(recipe.model, signature);
  if (recipe.distillation) {
    const Recipe teacher = teacher_recipe(recipe);
    checkpoint::ModelSignature of_teacher = signature_of_model(teacher);
    add_base_weights(teacher.model, of_teacher);
    signature.add_teacher(of_teacher);
  }
  add_tokenizer(recipe, signature);
  return signature;
}

void check_base(const Recipe& recipe) {
  const std::string& base = recipe.model.folder;
  if (recipe.model.draws_weights() || checkpoint::has_weights(base)) return;
  throw InputError(cat(base,
                       " has no weights any more, from which a model is saved: its dtypes, "
                       "its files and what it has beside the trained tensors; put them back, "
                       "or set checkpoint.save_consolidated: false"));
}

CheckpointWriter::CheckpointWriter(const Recipe& recipe, std::string resolved_recipe,
                                   checkpoint::ModelSignature signature, int rank,
                                   Reporter& reporter)
    : recipe_(recipe),
      resolved_recipe_(std::move(resolved_recipe)),
      signature_(std::move(signature)),
      rank_(rank),
      reporter_(reporter) {}

void CheckpointWriter::write(const CheckpointContents& contents,
                             checkpoint::LifecycleOptions options, comm::SlowWork& work) const {
  checkpoint::Lifecycle lifecycle(std::move(options), reporter_);
  const std::string folder = lifecycle.path(contents.name);
  try {
    work.run(cat("reserving ", folder), [&] { lifecycle.reserve(contents.name); });
    work.run(cat("saving ", folder), [&] { write_rank_files(contents, folder, work.progress()); });
    // The rank that finishes the folder needs all ranks' files.
    work.run(cat("finishing ", folder), [&] {
      if (rank_ != 0) return;
      const auto known = write_shared_files(contents, folder, work.progress());
      lifecycle.publish(contents.name, contents.train_loss, contents.validation_losses, known);
    });
  } catch (const std::exception&) {
    // A failed save (e.g. a full disk) removes its half checkpoint, and the error is thrown on.
    // When a rank was lost, others may still be writing; the next save replaces what they leave.
    if (work.has_met()) abandon(lifecycle, contents.name);
    throw;
  }
}

void CheckpointWriter::abandon(checkpoint::Lifecycle& lifecycle,
                               const checkpoint::CheckpointName& name) const {
  try {
    lifecycle.abandon(name);
  } catch (const UserError& error) {
    reporter_.warning(cat("the unfinished ", lifecycle.path(name), " stays there: ", error.what()));
  }
}

void CheckpointWriter::write_rank_files(const CheckpointContents& contents,
                                        const std::string& folder, ByteCounter& progress) const {
  Json rng = Json::object();
  rng["seed"] = recipe_.seed;
  checkpoint::write_state(checkpoint::rng_path(folder, rank_), rng);
  const distributed::HeldPart& part = contents.part;
  if (!part.is_saved_here && !part.has_own_units) return;
  const std::vector<NamedShards> model = {{"", contents.parameters}};
  checkpoint::save_shards(path_join(folder, "model"), {"model", part.index, part.count}, model,
                          &progress);
  std::vector<NamedShards> optimizer;
  for (const auto& [prefix, shards] : contents.optimizer) optimizer.push_back({prefix, shards});
  checkpoint::save_shards(path_join(folder, "optim"), {"optim", part.index, part.count}, optimizer,
                          &progress);
}

std::vector<FileRecord> CheckpointWriter::write_shared_files(const CheckpointContents& contents,
                                                             const std::string& folder,
                                                             ByteCounter& progress) const {
  checkpoint::finish_shards(path_join(folder, "model"), {"model", 0, contents.part.count});
  checkpoint::finish_shards(path_join(folder, "optim"), {"optim", 0, contents.part.count});
  checkpoint::write_state(checkpoint::optimizer_path(folder), contents.optimizer_scalars);
  checkpoint::write_state(checkpoint::step_scheduler_path(folder), contents.step_scheduler);
  checkpoint::write_state(checkpoint::dataloader_path(folder, 0), contents.position);
  checkpoint::write_state(checkpoint::signature_path(folder), signature_.to_json());
  write_file_atomic(checkpoint::recipe_path(folder), resolved_recipe_);
  if (recipe_.peft) {
    const std::string target = path_join(folder, "model");
    return export_adapters(recipe_, contents, checkpoint::ShardedFolder::open(target), target);
  }
  if (contents.is_exported) return export_model(contents, folder, progress);
  return {};
}

namespace {

/// Whether an export follows the files, dtypes and further tensors of the folder that the model
/// began with; warns where that cannot be read any more.
bool has_base(const Recipe& recipe, Reporter& reporter) {
  if (recipe.model.is_new()) return false;
  const std::string& base = recipe.model.folder;
  if (recipe.model.draws_weights() && !checkpoint::has_weights(base)) return false;
  try {
    checkpoint::HfFolder::open(base);
    return true;
  } catch (const UserError& error) {
    // What was trained is saved all the same.
    reporter.warning(cat("the weights of ", base, " are not there any more (", error.what(),
                         "): the exported model is without what they had beside the trained "
                         "tensors, and has dtypes and files of its own"));
    return false;
  }
}

/// A token that ends what the model writes, and what does so in training.
struct TrainedEnd {
  int64_t token = 0;
  const char* why = "";
};

/// What ends a dataset's samples: the token with which its chat template ends turns, or that the
/// recipe adds to its texts.
std::optional<TrainedEnd> trained_end(const Recipe& recipe, const DatasetRecipe& plan,
                                      const datasets::TokenizerEncoder& encoder) {
  const auto named = plan.named_template();
  const bool takes_template = named || plan.template_use() != datasets::TemplateUse::kNone;
  if (takes_template && (named || encoder.has_chat_template())) {
    const auto end = datasets::ChatFormatter(encoder, named, {}).turn_end();
    if (end) return TrainedEnd{*end, "with which the chat template ends turns"};
  }
  const bool adds_end = recipe.dataset.encoder_options.adds_eos && plan.takes_special_tokens();
  if (!adds_end || recipe.model.classifies || !encoder.eos_token_id()) return std::nullopt;
  return TrainedEnd{*encoder.eos_token_id(), "which add_eos_token writes behind texts"};
}

/// The ends that the model is trained to write, where nothing in the exported folder would make
/// transformers stop at them.
std::vector<int64_t> missing_ends(const Recipe& recipe, const checkpoint::HfExport& what,
                                  Reporter& reporter) {
  if (what.tokenizer_folder.empty() || !recipe.dataset.plan->needs_tokenizer()) return {};
  const datasets::TokenizerEncoder encoder(tokenizers::Tokenizer::load(what.tokenizer_folder));
  // transformers goes by generation_config.json alone, which is the original's where it has one.
  const std::string& original = what.original_folder;
  const bool has_own =
      !original.empty() && path_exists(path_join(original, "generation_config.json"));
  const std::vector<int64_t> known =
      end_tokens(std::nullopt, has_own ? Json::object() : what.config, original);
  std::vector<int64_t> missing;
  for (const DatasetSection* single : recipe.dataset.single_sections()) {
    const std::optional<TrainedEnd> end = trained_end(recipe, *single->plan, encoder);
    const auto is_in = [&](const std::vector<int64_t>& tokens) {
      return std::ranges::find(tokens, end->token) != tokens.end();
    };
    if (!end || is_in(known) || is_in(missing)) continue;
    reporter.info(cat("generation_config.json of the exported folder: eos_token_id gets ",
                      end->token, " (", encoder.token_text(end->token), "), ", end->why));
    missing.push_back(end->token);
  }
  return missing;
}

}  // namespace

std::vector<checkpoint::TextFile> sentence_files_of(const Recipe& recipe, const Json& hf_config) {
  const std::string tokenizer = tokenizer_folder(recipe, recipe.dataset);
  if (!recipe.model.makes_embeddings || !sentence_obstacle(recipe).empty() || tokenizer.empty()) {
    return {};
  }
  const auto prompt = [](const std::string& prefix) {
    return prefix.empty() ? std::string() : cat(prefix, " ");
  };
  const datasets::BiEncoderCollatorConfig texts = retrieval_texts(recipe, false).format;
  SentenceFacts facts;
  facts.pooling = models::text_pooling_name(recipe.model.pooling);
  facts.normalizes = recipe.model.normalizes_embeddings;
  facts.dims =
      hf_config.get("hidden_size", hf_config.get("n_embd", hf_config.get("dim", int64_t{0})));
  facts.query_prompt = prompt(texts.query_prefix);
  facts.document_prompt = prompt(texts.passage_prefix);
  facts.most_tokens = most_sentence_tokens(recipe.model.folder, tokenizer, hf_config);
  return sentence_files(facts);
}

checkpoint::HfExport export_of(const Recipe& recipe, Json hf_config,
                               std::vector<std::string> kept_prefixes, Reporter& reporter) {
  checkpoint::HfExport what;
  what.config = std::move(hf_config);
  name_pad_token(recipe, what.config);
  if (has_base(recipe, reporter)) what.original_folder = recipe.model.folder;
  what.kept_prefixes = std::move(kept_prefixes);
  what.tokenizer_folder = tokenizer_folder(recipe, recipe.dataset);
  if (recipe.model.makes_embeddings) {
    what.generates = false;
    what.more_files = sentence_files_of(recipe, what.config);
    return what;
  }
  what.chat_template = recipe.dataset.plan->named_template();
  try {
    what.end_tokens = missing_ends(recipe, what, reporter);
  } catch (const UserError& error) {  // what was trained is saved all the same
    reporter.warning(cat("the end of turns was not looked for: ", error.what()));
  }
  return what;
}

std::vector<FileRecord> CheckpointWriter::export_model(const CheckpointContents& contents,
                                                       const std::string& folder,
                                                       ByteCounter& progress) const {
  checkpoint::HfExport what =
      export_of(recipe_, contents.hf_config, contents.kept_prefixes, reporter_);
  what.progress = &progress;
  const std::string target = path_join(folder, "model/consolidated");
  if (contents.part.count > 1) {
    const auto saved = checkpoint::ShardedFolder::open(path_join(folder, "model"));
    return checkpoint::save_hf_folder(target, saved, what);
  }
  return checkpoint::save_hf_folder(target, checkpoint::ShardSource(contents.parameters), what);
}

}  // namespace automodel::recipes
