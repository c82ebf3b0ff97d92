#include "checkpoint/signature.h"

#include <algorithm>
#include <array>

#include "core/text.h"

namespace automodel::checkpoint {

namespace {

constexpr std::array<const char*, 9> kConfigKeys = {
    "architectures",     "model_type",          "hidden_size",
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "vocab_size",          "tie_word_embeddings"};

void set(Json& fields, const char* key, const Json* value) {
  if (value != nullptr && !value->is_null()) fields[key] = *value;
}

const Json& field_of(const ModelSignature& signature, const std::string& key) {
  static const Json kNull;
  const Json* value = signature.to_json().find(key);
  return value == nullptr ? kNull : *value;
}

/// The files that a field has a checksum of; "" for other fields.
std::string files_of(const std::string& key) {
  if (key == ModelSignature::kTokenizer) return "bytes of tokenizer.json";
  if (key == ModelSignature::kBaseWeights) return "the base's weights";
  // Older checkpoints have a checksum of another kind under this name, which is passed over.
  if (key.ends_with("base_weights")) return "older weights";
  return key == cat("teacher.", ModelSignature::kBaseWeights) ? "the teacher's weights" : "";
}

std::string shown(const Json& value) {
  return value.is_null() ? "absent" : value.dump();
}

}  // namespace

ModelSignature::ModelSignature(const std::optional<std::string>& pretrained, const Json& hf_config,
                               bool has_peft, const std::string& quantization) {
  if (pretrained) fields_["pretrained_model_name_or_path"] = Json(*pretrained);
  // A model beside a tower has its sizes in text_config.
  const Json* text = hf_config.find("text_config");
  const Json& sizes = text != nullptr && text->is_object() ? *text : hf_config;
  for (const char* key : kConfigKeys) {
    const Json* value = hf_config.find(key);
    set(fields_, key, value != nullptr ? value : sizes.find(key));
  }
  set(fields_, "rope_theta", sizes.find("rope_theta"));
  set(fields_, "rope_scaling", sizes.find("rope_scaling"));
  if (const Json* rope = sizes.find("rope_parameters"); rope != nullptr && rope->is_object()) {
    set(fields_, "rope_theta", rope->find("rope_theta"));
    // The new form of the plain rotary embedding states what the old one left out.
    Json scaling = *rope;
    scaling.erase("rope_theta");
    const bool is_plain = scaling.get("rope_type", "default") == "default" && scaling.size() <= 1;
    if (!is_plain) fields_["rope_scaling"] = std::move(scaling);
  }
  fields_["has_peft"] = Json(has_peft);
  if (!quantization.empty()) fields_["quantization"] = Json(quantization);
}

void ModelSignature::add_files(const std::string& key, const std::string& checksum) {
  fields_[key] = Json(checksum);
}

void ModelSignature::add_teacher(const ModelSignature& teacher) {
  for (const auto& [key, value] : teacher.fields_.as_object()) {
    if (key != "has_peft") fields_[cat("teacher.", key)] = value;
  }
}

std::vector<std::string> signature_differences(const ModelSignature& saved,
                                               const ModelSignature& current) {
  std::vector<std::string> keys;
  for (const ModelSignature* signature : {&saved, &current}) {
    if (!signature->to_json().is_object()) continue;
    for (const auto& [key, value] : signature->to_json().as_object()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::vector<std::string> differences;
  for (const std::string& key : keys) {
    const Json& before = field_of(saved, key);
    const Json& now = field_of(current, key);
    if (before == now) continue;
    if (const std::string files = files_of(key); !files.empty()) {
      const bool are_known = !before.is_null() && !now.is_null();
      if (are_known) differences.push_back(cat(files, " are others than those of the checkpoint"));
      continue;
    }
    differences.push_back(
        cat(key, " is ", shown(before), " in the checkpoint and ", shown(now), " here"));
  }
  return differences;
}

}  // namespace automodel::checkpoint
