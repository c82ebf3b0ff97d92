#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::checkpoint {

/// Identifies the model of a recipe, to decide whether a checkpoint belongs to it: pretrained name,
/// architecture, main sizes, rotary settings, whether there are adapters, and how weights in 4 bits
/// are held.
class ModelSignature final {
 public:
  ModelSignature() = default;
  /// `pretrained`: pretrained_model_name_or_path, absent for from_config. `quantization`: format of
  /// the weights under adapters, "" for floats.
  ModelSignature(const std::optional<std::string>& pretrained, const Json& hf_config, bool has_peft,
                 const std::string& quantization = "");

  /// Adds a checksum of files that a run reads and its checkpoints do not have: kBaseWeights,
  /// kTokenizer. Signatures are compared by it where both have it.
  void add_files(const std::string& key, const std::string& checksum);
  static constexpr const char* kBaseWeights = "base_tensors";
  static constexpr const char* kTokenizer = "tokenizer";

  /// Adds a fact of the model by which checkpoints are told apart.
  void add(const std::string& key, Json value) { fields_[key] = std::move(value); }

  /// Adds the signature of the model that this one is distilled from.
  void add_teacher(const ModelSignature& teacher);

  static ModelSignature from_json(const Json& json) { return ModelSignature(json); }
  const Json& to_json() const { return fields_; }

 private:
  explicit ModelSignature(Json fields) : fields_(std::move(fields)) {}

  Json fields_ = Json::object();
};

/// One text per different field: "hidden_size is 64 in the checkpoint and 128 here".
std::vector<std::string> signature_differences(const ModelSignature& saved,
                                               const ModelSignature& current);

}  // namespace automodel::checkpoint
