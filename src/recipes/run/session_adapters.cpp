#include "recipes/run/session_adapters.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "peft/apply_lora.h"
#include "peft/tensor_names.h"
#include "recipes/build/base_weights.h"
#include "recipes/read/read_data.h"
#include "tensor/random.h"

namespace automodel::recipes {

namespace {

using Parts = std::vector<std::shared_ptr<models::CausalLM>>;

/// Rows of the base model's weights, read from its folder or drawn again.
class BaseRows final {
 public:
  BaseRows(const Recipe& recipe, const Parts& parts)
      : seed_(recipe.seed), dtype_(storage_dtype(recipe.model)) {
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

  /// Rows [begin, end) of a weight, float32. A tied head's are the embedding's.
  at::Tensor rows(const std::string& weight, int64_t begin, int64_t end) const {
    const bool is_tied = checkpoint::is_head_name(weight) && !tensors_.contains(weight);
    const std::string& name = is_tied ? embedding_ : weight;
    const tensor::ParameterPart& part = tensors_.at(name);
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

 private:
  int64_t seed_;
  at::ScalarType dtype_;
  std::optional<checkpoint::HfFolder> folder_;
  std::map<std::string, tensor::InitRule> rules_;
  std::map<std::string, tensor::ParameterPart> tensors_;
  std::string embedding_;
};

/// Sets DoRA's magnitudes to the lengths of the base's rows.
void fill_magnitudes(const Recipe& recipe, const Parts& parts, distributed::Engine& engine) {
  const BaseRows base(recipe, parts);
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!segment.fqn.ends_with(peft::kLoraMagnitude) || segment.spec.numel() == 0) continue;
      const std::string weight =
          cat(peft::without_suffix(segment.fqn, peft::kLoraMagnitude), ".weight");
      const int64_t first = segment.spec.box_offset[0];
      const at::Tensor rows =
          base.rows(weight, first + segment.spec.flat_begin, first + segment.spec.flat_end);
      shard.view(segment).copy_(rows.norm(2, 1));
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

std::vector<FileRecord> export_adapters(const Recipe& recipe, const std::string& architecture,
                                        const Json& hf_config,
                                        const checkpoint::TensorSource& source,
                                        const std::string& folder) {
  peft::AdapterExport what;
  what.config = *recipe.peft;
  what.base = recipe.model.is_new() ? "" : recipe.model.source;
  what.architecture = architecture;
  what.hf_config = hf_config;
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
