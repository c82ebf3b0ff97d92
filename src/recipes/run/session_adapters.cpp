#include "recipes/run/session_adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <optional>
#include <set>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/tensor_names.h"
#include "recipes/build/base_weights.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/read_data.h"
#include "tensor/random.h"

namespace automodel::recipes {

namespace {

using Parts = std::vector<std::shared_ptr<models::CausalLM>>;

/// The base model's weights, read from its folder or drawn again.
class BaseWeights final {
 public:
  BaseWeights(const Recipe& recipe, const Parts& parts)
      : seed_(recipe.seed),
        dtype_(storage_dtype(recipe.model)),
        transposed_(peft::transposed_weights(parts[0]->hf_config())) {
    if (!recipe.model.draws_weights()) {
      folder_.emplace(checkpoint::HfFolder::open(recipe.model.folder));
    }
    for (const auto& part : parts) {
      for (const models::ParameterInit& init : part->initial_values()) {
        rules_.emplace(init.parameter, init.rule);
      }
    }
    for (const tensor::ParameterPart& part : parts[0]->key_map()) {
      if (checkpoint::is_embedding_name(part.name)) embedding_ = part.name;
      tensors_.emplace(part.name, part);
    }
  }

  /// [end - begin]: the L2 norms, float32, of what a layer's outputs [begin, end) multiply: rows of
  /// its weight, or columns of one that is stored [in, out]. A tied head's are the embedding's
  /// rows.
  at::Tensor output_norms(const std::string& weight, int64_t begin, int64_t end) const {
    const bool is_tied = checkpoint::is_head_name(weight) && !tensors_.contains(weight);
    const std::string& name = is_tied ? embedding_ : weight;
    const tensor::ParameterPart& part = tensors_.at(name);
    if (!transposed_.contains(weight)) return rows(part, begin, end).norm(2, 1);
    return rows(part, 0, part.shape[0]).narrow(1, begin, end - begin).norm(2, 0);
  }

 private:
  /// Rows [begin, end) of a weight, float32.
  at::Tensor rows(const tensor::ParameterPart& part, int64_t begin, int64_t end) const {
    const std::string& name = part.name;
    const int64_t width = part.shape[1];
    const bool is_rounded = folder_ && folder_->quantization();  // as the run stores them
    const at::Tensor out = at::empty({(end - begin) * width},
                                     at::TensorOptions().dtype(is_rounded ? dtype_ : at::kFloat));
    const auto stored = folder_ ? checkpoint::find_name_or_tied(*folder_, name) : std::nullopt;
    if (stored) {
      folder_->read_elements(*folder_->find(*stored), begin * width, out);
    } else {
      tensor::ShardSpec spec = tensor::ShardSpec::whole(part.shape);
      spec.flat_begin = begin * width;
      spec.flat_end = end * width;
      tensor::fill_initial_values(out, spec, rules_.at(part.parameter),
                                  tensor::RandomKey(static_cast<uint64_t>(seed_), name));
    }
    return out.view({end - begin, width}).to(at::kFloat);
  }

  int64_t seed_;
  at::ScalarType dtype_;
  std::set<std::string> transposed_;
  std::optional<checkpoint::HfFolder> folder_;
  std::map<std::string, tensor::InitRule> rules_;
  std::map<std::string, tensor::ParameterPart> tensors_;
  std::string embedding_;
};

/// Sets DoRA's magnitudes to the norms of the base's outputs.
void fill_magnitudes(const Recipe& recipe, const Parts& parts, distributed::Engine& engine) {
  const BaseWeights base(recipe, parts);
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!segment.fqn.ends_with(peft::kLoraMagnitude) || segment.spec.numel() == 0) continue;
      const std::string weight =
          cat(peft::without_suffix(segment.fqn, peft::kLoraMagnitude), ".weight");
      const int64_t first = segment.spec.box_offset[0];
      shard.view(segment).copy_(base.output_norms(weight, first + segment.spec.flat_begin,
                                                  first + segment.spec.flat_end));
    }
  }
}

}  // namespace

void start_adapters(const Recipe& recipe, const Parts& parts, distributed::Engine& engine,
                    Reporter& reporter) {
  const at::NoGradGuard no_grad;
  if (const auto& folder = recipe.peft->adapter_name_or_path) {
    peft::load_adapter(*folder, *recipe.peft, *parts[0], engine.parameters());
    reporter.info(cat("adapters: from ", *folder));
    const peft::AdapterFile file(*folder, parts[0]->hf_config());
    for (const auto& [module, copy] : file.base_copies()) {
      reporter.warning(cat("adapters: ", copy->name, " is not read: the adapter of ", module,
                           " goes on upon the base's own weight"));
    }
    return;
  }
  draw_weights(parts, engine.parameters(), recipe.seed, [](const std::string& name) {
    return peft::is_adapter_tensor(name) && !name.ends_with(peft::kLoraMagnitude);
  });
  if (recipe.peft->use_dora) fill_magnitudes(recipe, parts, engine);
}

std::vector<FileRecord> export_adapters(const Recipe& recipe, const CheckpointContents& contents,
                                        const checkpoint::TensorSource& source,
                                        const std::string& folder) {
  peft::AdapterExport what;
  what.config = *recipe.peft;
  what.base = recipe.model.is_new() ? "" : recipe.model.source;
  what.architecture = contents.architecture;
  what.hf_config = contents.hf_config;
  what.saved_modules = contents.saved_modules;
  what.tied_embedding = contents.tied_embedding;
  name_pad_token(recipe, what.hf_config);
  what.merged_files = sentence_files_of(recipe, contents.hf_config);
  std::vector<FileRecord> records = peft::save_adapter(folder, source, what);
  const std::string tokenizer = tokenizer_folder(recipe, recipe.dataset);
  if (tokenizer.empty()) return records;
  const auto chat_template = recipe.dataset.plan->named_template();
  for (FileRecord& record : checkpoint::copy_tokenizer_files(tokenizer, folder, chat_template)) {
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace automodel::recipes
