#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/field.h"
#include "datasets/pretraining/megatron_index.h"
#include "datasets/pretraining/token_file.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// A part of a distribution of documents.
enum class MegatronSplit { kTrain, kValidation, kTest };

/// Token files (paths without .bin and .idx), with weights or weighted by their sizes.
struct MegatronBlend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights = std::nullopt;

  /// Megatron's list: prefixes, or weights and prefixes in turn. Throws UserError.
  static MegatronBlend parse(const std::vector<std::string>& entries);
};

/// Options of MegatronPretraining; names and defaults are upstream's.
struct MegatronPretrainingConfig {
  std::optional<MegatronBlend> blend = std::nullopt;  ///< one distribution, cut by `split`
  /// Used without `blend`: a separate distribution for each part.
  std::array<std::optional<MegatronBlend>, 3> blend_per_split = {};
  int64_t seq_length = 2048;
  uint32_t seed = 1234;
  std::string split = "900,50,50";
  MegatronSplit part = MegatronSplit::kTrain;
  std::array<std::optional<int64_t>, 3> num_samples = {};
  /// Batches of a validation; nullopt: all samples, once.
  std::optional<int64_t> limit_val_batches = 1;
};

/// The step scheduler's settings that determine how many samples are needed.
struct TrainingSchedule {
  std::optional<int64_t> max_steps = std::nullopt;
  int64_t global_batch_size = 1;
  std::optional<int64_t> val_every_steps = std::nullopt;
};

/// The number of samples that the part must have; nullopt: one epoch. Throws UserError.
std::optional<int64_t> wanted_samples(const MegatronPretrainingConfig& config,
                                      const TrainingSchedule& schedule);

/// Sets the blend of a single path: a JSON file with one blend or one each for train, validation
/// (valid, val, dev) and test, a glob of .bin and .idx files, or a prefix. Throws UserError.
void read_blend_path(const std::string& path, MegatronPretrainingConfig& config);

/// Sets the blend of a part, given by its name or alias. Throws UserError.
void set_blend_of_part(const std::string& part, const std::vector<std::string>& entries,
                       MegatronPretrainingConfig& config);

/// Checks the options and opens the part's files. Throws UserError, InputError.
void check(const MegatronPretrainingConfig& config);

/// Tokenized documents for pretraining, like Megatron's GPTDataset and BlendedDataset: samples of
/// seq_length + 1 tokens from documents in a shuffled order. As upstream, every label counts in the
/// loss, and tokens equal to the tokenizer's pad token become 0.
class MegatronPretraining final : public Dataset {
 public:
  /// Throws UserError, InputError.
  MegatronPretraining(const MegatronPretrainingConfig& config, const TrainingSchedule& schedule,
                      const TextEncoder& encoder);

  int64_t size() const override;
  Sample at(int64_t index) const override;
  /// "PREFIX sample 17".
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override;
  uint64_t order_checksum() const override { return order_checksum_; }

 private:
  /// One file's documents.
  struct Source {
    std::unique_ptr<const TokenFile> tokens;
    SampleIndex index;
    std::optional<int64_t> num_samples;  ///< no more than these
    int64_t size() const;
  };
  static Source open(const std::string& prefix, const std::pair<double, double>& bounds,
                     std::optional<int64_t> num_samples, const MegatronPretrainingConfig& config);
  void open_blend(const MegatronBlend& blend, const std::pair<double, double>& bounds,
                  std::optional<int64_t> num_samples, const MegatronPretrainingConfig& config);
  std::pair<const Source*, int64_t> locate(int64_t index) const;
  uint64_t checksum_of_order() const;

  int64_t seq_length_;
  int64_t pad_id_;
  std::optional<int64_t> eos_id_;
  std::vector<Source> sources_;
  std::vector<BlendedSample> blend_;  ///< empty: the one source's samples
  uint64_t order_checksum_ = 0;
};

}  // namespace automodel::datasets

template <>
struct automodel::EnumNames<automodel::datasets::MegatronSplit> {
  using MegatronSplit = automodel::datasets::MegatronSplit;
  static constexpr std::array<std::pair<std::string_view, MegatronSplit>, 3> values = {
      {{"train", MegatronSplit::kTrain},
       {"validation", MegatronSplit::kValidation},
       {"test", MegatronSplit::kTest}}};
};
