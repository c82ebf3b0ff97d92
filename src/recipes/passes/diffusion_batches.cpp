#include "recipes/passes/diffusion_batches.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace automodel::recipes {

namespace {

constexpr int64_t kCorruptionStream = int64_t{2} << 42;
constexpr uint64_t kSampleMultiplier = 2654435761;
constexpr uint64_t kSeedMask = (uint64_t{1} << 63) - 1;

}  // namespace

int64_t corruption_sample_seed(int64_t base_seed, const MicroBatchPlace& place,
                               int64_t local_batch_size, int64_t offset) {
  const int64_t per_step = local_batch_size * place.dp_size * place.grad_acc_steps;
  const int64_t index = place.step * per_step + place.dp_rank +
                        (place.micro_batch * local_batch_size + offset) * place.dp_size;
  const uint64_t seed = static_cast<uint64_t>(base_seed + kCorruptionStream) +
                        kSampleMultiplier * static_cast<uint64_t>(index);
  return static_cast<int64_t>(seed & kSeedMask);
}

at::Generator seeded_generator(int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

/// The largest seq_length of a section's datasets; nullopt where one of them has none.
static std::optional<int64_t> longest_sample(const DatasetSection& section) {
  int64_t longest = 0;
  for (const DatasetSection* single : section.single_sections()) {
    const config::Node* const node = single->node.find("seq_length");
    const std::optional<int64_t> length = node == nullptr ? std::nullopt : node->int_value();
    if (!length) return std::nullopt;
    longest = std::max(longest, *length);
  }
  return longest;
}

datasets::WindowCollaterConfig window_collater_of(const Recipe& recipe,
                                                  const datasets::TextEncoder& encoder) {
  datasets::WindowCollaterConfig config;
  config.pad_id = encoder.pad_token_id().value_or(0);
  config.eos_id = encoder.eos_token_id().value_or(config.pad_id);
  config.block_size = recipe.dllm->pad_block_size;
  config.pad_seq_len_divisible = recipe.dllm->pad_seq_len_divisible;
  config.supervises_padding = recipe.dllm->supervise_padding;
  config.has_responses = recipe.dllm->is_block_diffusion();
  config.max_length = longest_sample(recipe.dataset);
  return config;
}

void describe_diffusion(Json& record, double dllm_loss, const std::string& mode) {
  Json out = Json::object();
  for (const auto& [key, value] : record.as_object()) {
    if (key == "num_tokens_per_step") {
      out["tokens_per_step"] = value;
    } else if (key == "num_label_tokens") {
      out["supervised_tokens"] = value;
    } else {
      out[key] = value;
    }
    if (key == "loss") out["dllm_loss"] = dllm_loss;
  }
  out["draft_acc"] = Json();
  out["mode"] = mode;
  record = std::move(out);
}

}  // namespace automodel::recipes
