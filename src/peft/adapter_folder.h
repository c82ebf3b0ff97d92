#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hf_export.h"
#include "checkpoint/tensor_source.h"
#include "core/checksum.h"
#include "core/file.h"
#include "models/causal_lm.h"
#include "peft/peft_config.h"
#include "tensor/shard_spec.h"

namespace automodel::peft {

/// The contents of an adapter's folder besides the values.
struct AdapterExport {
  PeftConfig config;
  std::string base;              ///< name or folder of the base model
  std::string architecture;      ///< "LlamaForCausalLM"
  std::string tokenizer_folder;  ///< tokenizer files are copied from here, "" for none
  Json hf_config = {};           ///< of the base model; its family names the modules
  std::vector<std::string> saved_modules = {};  ///< CausalLM::saved_modules()
  std::string tied_embedding = {};              ///< tied_saved_embedding()
  /// What a merged model's folder has besides, of a model that makes embeddings.
  std::vector<checkpoint::TextFile> merged_files = {};
};

/// Whether a layer's name is one that PEFT 0.21 takes for experts' (`gate_proj`, `up_proj` and
/// `down_proj` in families whose files hold an expert's matrices apart, of which transformers 5
/// makes one parameter): it looks for parameters of experts then, and leaves the layer out. From
/// `_MODEL_TO_CONVERSION_PATTERN` of transformers.
bool is_taken_for_experts(const Json& hf_config, std::string_view module);

/// Writes adapter_model.safetensors, adapter_config.json, automodel_peft_config.json and the
/// tokenizer's files into an existing folder, which PEFT can load. Ignores the source's other
/// tensors. One rank calls it. Throws InputError (e.g. disk full).
std::vector<FileRecord> save_adapter(const std::string& folder,
                                     const checkpoint::TensorSource& source,
                                     const AdapterExport& what);

/// The section that gives a model the adapters of a folder, which load_adapter() then fills. The
/// model has none. Throws InputError for a folder without an adapter.
PeftConfig config_of_adapter(const std::string& folder, const models::CausalLM& model);

/// Fills a rank's shards of adapters from a folder. Throws InputError with the first names when the
/// adapter's layers, ranks, sizes or scale differ from the model's. Every rank finds the same
/// faults.
void load_adapter(const std::string& folder, const PeftConfig& config,
                  const models::CausalLM& model, std::span<const tensor::FlatShard> shards);

/// Why load_adapter() cannot load a folder; "" if it can. Reads headers only.
std::string find_adapter_fault(const std::string& folder, const PeftConfig& config,
                               const models::CausalLM& model);

}  // namespace automodel::peft
