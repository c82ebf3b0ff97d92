#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "peft/expert_layout.h"
#include "peft/module_pattern.h"
#include "tensor/key_map.h"

namespace automodel::peft {

// The files of an adapter's folder.
inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr const char* kOwnConfigName = "automodel_peft_config.json";
/// Keys of that file which are those of a merged model's config.json, where it makes embeddings,
/// and the texts of its folder's other files, by their paths.
inline constexpr std::array kEmbeddingKeys = {"architectures", "pooling", "is_causal"};
inline constexpr const char* kMergedFiles = "merged_files";

/// The beginning of every tensor's name in adapter_model.safetensors.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

/// The value of `paramwrapper_layout` in automodel_peft_config.json when experts' adapters have
/// PEFT 0.19.1's layout.
inline constexpr const char* kLayoutStamp = "peft-0.19.1";

/// The adapter_config.json of a folder in Hugging Face PEFT's format.
struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 8;
  bool use_rslora = false;
  bool use_dora = false;
  std::string base;            ///< base_model_name_or_path, "" for none
  ModulePattern rank_pattern;  ///< ranks of linear layers; those of experts follow from shapes
  ModulePattern alpha_pattern;
  std::vector<std::string> modules_to_save;  ///< but for those of classifiers' heads
  bool ensure_weight_tying = false;          ///< a head tied to a saved embedding stays so

  /// The factor of an adapter's result: alpha / rank, for rsLoRA alpha / sqrt(rank).
  double scale() const { return scale(rank, alpha); }
  double scale(int64_t own_rank, double own_alpha) const;

  /// Rank and factor of the adapter of a linear layer, by its name in transformers' modules.
  int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
};

/// Reads and checks the file. Throws InputError for a folder without one, for another kind of
/// adapter, and for options that are not built: biases, another alpha for experts.
AdapterConfig read_adapter_config(const std::string& folder);

/// Why experts' adapters, among the model's `keys`, cannot have what alpha_pattern says; "" where
/// it says nothing of them.
std::string expert_pattern_fault(const AdapterConfig& there, const tensor::KeyMap& keys,
                                 const Json& hf_config);

/// The tensors in an adapter's folder, named by their layers' names in the base model's files.
/// Reads headers; values are read on request.
class AdapterFile final {
 public:
  /// `hf_config`: the base model's. Throws InputError when the file is missing or damaged.
  AdapterFile(const std::string& folder, const Json& hf_config);

  const checkpoint::SafetensorsFile& file() const { return file_; }
  const std::map<std::string, const checkpoint::TensorEntry*>& entries() const { return entries_; }

  /// Copies that PEFT saves of the base's heads and embeddings that have adapters, by the layer's
  /// name: what the adapter was trained on.
  const std::map<std::string, const checkpoint::TensorEntry*>& base_copies() const {
    return base_copies_;
  }

  /// Whether a head that is the base's embedding is the saved one, as of an adapter that keeps them
  /// tied; else it is as the base has it, or an entry by itself.
  bool ties_head() const { return ties_head_; }

  /// Null when there is none.
  const checkpoint::TensorEntry* find(const std::string& name) const;

  /// The layout of the experts' adapters, from their shapes and what the folder states; `keys` are
  /// the model's adapters. Throws InputError when these contradict each other or neither decides.
  ExpertLayout expert_layout(const tensor::KeyMap& keys) const;

  /// The factor of a part of experts' adapters, [E, r, in] or [E, out, r].
  at::Tensor read_factor(const tensor::ParameterPart& part, ExpertLayout layout) const;

 private:
  /// A tensor's name without what PEFT puts before it.
  static std::string name_in_modules(const checkpoint::TensorEntry& entry);
  /// Whether these are of modules with the same weights (models::twins_in_modules) and are equal.
  bool are_twins(const checkpoint::TensorEntry& a, const checkpoint::TensorEntry& b,
                 const Json& hf_config) const;
  void set_base_copies_apart();
  /// Finds out what becomes of a head that is the base's embedding, and forgets the copy of a saved
  /// embedding that PEFT writes under the name of the head.
  void settle_tied_head(const Json& hf_config);

  checkpoint::SafetensorsFile file_;
  ExpertLayout newest_;                 // PEFT's of today
  std::optional<ExpertLayout> stated_;  // the layout that the folder states
  std::map<std::string, const checkpoint::TensorEntry*> entries_;
  std::map<std::string, const checkpoint::TensorEntry*> base_copies_;
  bool ties_head_ = false;
};

/// Where an adapter's part is in a file, and what is wrong with it there.
struct PlaceInFile {
  std::string name;
  std::vector<int64_t> shape;

  PlaceInFile(const tensor::ParameterPart& part, ExpertLayout layout);

  /// "" when the file has a tensor of this name and shape.
  std::string fault(const AdapterFile& file) const;
  /// "NAME is [2, 3] in the file and [4, 3] in the model".
  std::string misshapen_text(const std::vector<int64_t>& found) const;
};

}  // namespace automodel::peft
