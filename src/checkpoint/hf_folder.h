#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/quantized_tensor.h"
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/json.h"
#include "core/reporter.h"
#include "tensor/key_map.h"
#include "tensor/shard_spec.h"

namespace automodel::checkpoint {

/// A Hugging Face model folder: config.json and safetensors weights, one file or several with an
/// index. Opening reads headers only. Weights that config.json's `quantization_config` says are
/// quantized appear as the floats that they stand for, and are dequantized while they are read.
/// Experts that are stacked in two tensors of a layer, `experts.gate_up_proj` [E, 2 I, D] and
/// `experts.down_proj` [E, D, I], are found under the names of single ones too
/// (`experts.3.gate_proj.weight`).
class HfFolder final {
 public:
  /// The location of a tensor.
  struct Place {
    size_t file = 0;
    const TensorEntry* entry = nullptr;  ///< name (of a single expert: the stack's), shape, dtype
    const QuantizedTensor* quantized =
        nullptr;  ///< how it is stored when it is not as `entry` says

    /// Bytes in the file of this number of its elements, without scales.
    uint64_t num_stored_bytes(int64_t num_elements) const;
  };

  /// Throws InputError for a folder without config.json or weights, with pickled *.bin weights
  /// only, with an index that names missing files or tensors, or with quantized weights without
  /// scales; UnsupportedError for a quantization method that cannot be read.
  static HfFolder open(const std::string& path);

  const std::string& path() const { return path_; }
  const Json& config() const { return config_; }
  /// Names of the weight files in the folder, in the order of the index's numbering.
  const std::vector<std::string>& file_names() const { return file_names_; }
  const SafetensorsFile& file(size_t index) const { return files_[index]; }
  std::optional<Place> find(std::string_view name) const;
  /// Reads elements [first, first + out.numel()) of a tensor into `out` (contiguous, any device),
  /// converted to its dtype. Throws InputError.
  void read_elements(const Place& place, int64_t first, at::Tensor out) const;
  /// Reads a shard of a tensor, as SafetensorsFile::read_shard does.
  void read_shard(const Place& place, const tensor::ShardSpec& spec, at::Tensor out) const;
  /// How config.json says that weights are quantized; nullopt for plain floats.
  const std::optional<Quantization>& quantization() const { return quantization_; }
  /// The names of all tensors, sorted.
  const std::vector<std::string>& names() const { return names_; }

  /// The dtype that "auto" means: config.json's `dtype` or `torch_dtype`, else that of the first
  /// floating-point tensor that is not quantized.
  at::ScalarType storage_dtype() const;

 private:
  HfFolder() = default;
  void open_files();
  void find_quantized_tensors();
  void find_stacked_experts();
  void index_from_map(const Json& index, const std::string& index_path);

  std::string path_;
  Json config_;
  std::vector<std::string> file_names_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> places_;
  std::deque<TensorEntry> expert_entries_;
  std::unordered_map<std::string, Place> experts_;  // single ones of stacks, by their names
  std::vector<std::string> names_;
  std::optional<Quantization> quantization_;
  std::map<std::string, QuantizedTensor> quantized_;
};

/// The name in a folder of a model's tensor: its own, or with or without the base model's prefix;
/// nullopt when the folder lacks it.
std::optional<std::string> find_name(const HfFolder& folder, const std::string& name);

/// As find_name(); a head that the folder lacks is its embedding, and an embedding that it lacks is
/// its head, as of models whose head is tied.
std::optional<std::string> find_name_or_tied(const HfFolder& folder, const std::string& name);

/// The dtype that a config.json states for weights, at its top or in `text_config`; nullopt when it
/// states none, or one that no weights are trained in.
std::optional<at::ScalarType> stated_dtype(const Json& hf_config);

/// Whether a tensor is a language model's head, or its embedding; also beside a tower.
bool is_head_name(std::string_view name);
bool is_embedding_name(std::string_view name);

/// Whether a name begins with one of the prefixes.
bool has_prefix(std::string_view name, const std::vector<std::string>& prefixes);

/// True when the folder has weights that HfFolder can read (with config.json alone a model can be
/// built from it, not loaded).
bool has_weights(const std::string& folder);

/// ", but a checkpoint, whose model is FOLDER/model/consolidated" and the like for a folder without
/// a config.json; "" when it is nothing that is known.
std::string what_it_is_instead(const std::string& folder);

struct LoadOptions {
  Reporter* reporter = nullptr;  ///< gets warnings of weights made up or left out; may be null
  int num_threads = 4;
  /// Tensors whose names begin with one of these are not loaded and not reported as missing.
  std::vector<std::string> skipped_prefixes;
  /// For tensors that a folder may lack: names of the tensors to read instead.
  std::map<std::string, std::string> stand_ins;
  ByteCounter* progress = nullptr;  ///< counts what has been read
};

struct LoadReport {
  int64_t num_tensors = 0;           ///< tensors of which this rank holds a part
  int64_t num_dequantized = 0;       ///< of these, those quantized in the folder
  uint64_t num_bytes = 0;            ///< read from the files
  std::vector<std::string> skipped;  ///< names of `keys` that options.skipped_prefixes left out
};

/// Compares a folder with a model without reading values: one text per finding, empty when the
/// weights fit. `keys`: the model's.
std::vector<std::string> check_weights(const HfFolder& folder, const tensor::KeyMap& keys,
                                       const LoadOptions& options);

/// Fills a rank's shards from a folder. Each rank reads its own bytes once, directly into their
/// place, converted to the buffer's dtype. `keys` are all tensors of the model, the same on every
/// rank, so that all ranks find the same faults. Throws InputError "weights in PATH do not fit the
/// config: ..." with the first ten names of each kind.
///
/// Accepted silently: a tied lm_head that is absent or equal to the embedding, names with or
/// without the base model's prefix (`model.`, `transformer.`, `gpt_neox.`), buffers that old
/// versions saved (rotary inv_freq, GPT-2's and GPT-NeoX's masks). With a warning: an absent untied
/// lm_head is made from the embedding, as upstream does.
LoadReport load_weights(const HfFolder& folder, const tensor::KeyMap& keys,
                        std::span<const tensor::FlatShard> shards, const LoadOptions& options);

}  // namespace automodel::checkpoint
