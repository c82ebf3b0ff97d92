#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

/// Reads a config.json, checking types and ranges. Findings are collected, one text each, and
/// reading continues, so that all are known at once. A null counts as absent, but in flag().
class ConfigReader final {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  const Json& json() const { return json_; }
  /// The member, or nullptr when it is absent or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// A required whole number of at least 1; returns 1 after a finding.
  int64_t size(std::string_view key);
  int64_t size(std::string_view key, int64_t fallback);
  /// A whole number of at least 0.
  int64_t count(std::string_view key, int64_t fallback);
  /// A finite number.
  double number(std::string_view key, double fallback);
  /// A number of at least 0: a norm's epsilon, a cap of scores or logits (0: none).
  double not_negative(std::string_view key, double fallback);
  /// A number in [0, 1).
  double probability(std::string_view key, double fallback);
  /// A null is false, as None is to Python.
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  kernels::Activation activation(std::string_view key, std::string_view fallback);

  void problem(std::string text) { problems_.push_back(std::move(text)); }
  const std::vector<std::string>& problems() const { return problems_; }
  /// Adds the findings of another reader, of this config.json in another form.
  void add_problems_of(const ConfigReader& other) {
    problems_.insert(problems_.end(), other.problems_.begin(), other.problems_.end());
  }

 private:
  void wrong_kind(std::string_view key, std::string_view wanted, const Json& found);

  const Json& json_;
  std::vector<std::string> problems_;
};

/// A number of layers that was read from `key`. More than 10,000 are a slip, and would fill the
/// memory: a finding, and 1 is returned.
int64_t checked_layers(ConfigReader& reader, std::string_view key, int64_t num_layers);

/// The key that transformers writes, or another name of it where that is there. Both with different
/// values are a finding.
std::string_view either(ConfigReader& reader, std::string_view key, std::string_view other);

/// A key of config.json and the name by which other families have it.
struct RenamedKey {
  std::string_view own;
  std::string_view common;
};

/// config.json with each of `keys` that is there under its common name too.
Json with_renamed_keys(const ConfigReader& reader, const std::vector<RenamedKey>& keys);

/// The defaults in which families of the Llama kind differ; values are those of transformers'
/// config classes.
struct CommonDefaults {
  bool requires_kv_heads = true;  ///< absent num_key_value_heads is an error; else num_heads
  int64_t head_dim = 0;           ///< 0: hidden_size / num_attention_heads
  int64_t vocab_size = 0;         ///< 0: the key is required, as of the next three
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 2048;
  double norm_eps = 1e-6;
  bool is_head_tied = false;
  bool has_attention_dropout = true;  ///< false: the class does not read attention_dropout
  int64_t padding_idx = -1;
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
};

/// Reads the sizes, norm epsilon, dropout, initializer range, padding row and activation of a
/// Llama-like config.json, with all layers alike and no rotary embedding yet.
DecoderConfig read_common(ConfigReader& reader, const CommonDefaults& defaults);

/// Refuses attention in both directions (is_causal), which read_common() does by itself.
void check_causal(ConfigReader& reader);

struct RopeDefaults {
  double theta = 10000.0;
  std::string_view theta_key = "rope_theta";  ///< the old form's key of theta; "": none
  /// The key of partial_rotary_factor beside the object; "": none
  std::string_view partial_key = "partial_rotary_factor";
  bool has_partial_default = false;  ///< the default type reads partial_rotary_factor
  double partial_default = 1.0;      ///< partial_rotary_factor where it is absent
  bool scales_queries = false;       ///< llama_4_scaling_beta has an effect
};

/// Options of one rotary embedding. `parameters` is a `rope_parameters` or `rope_scaling` object,
/// or nullptr.
nn::RopeOptions read_rope(ConfigReader& reader, const Json* parameters, const DecoderConfig& config,
                          const RopeDefaults& defaults);

/// Reads `rope_scaling` / `rope_parameters` in the old or new form and sets it for every layer.
void add_rope(ConfigReader& reader, DecoderConfig& config, const RopeDefaults& defaults);

/// add_rope() with `absent` in the place of the object where config.json has neither.
void add_rope_or(ConfigReader& reader, DecoderConfig& config, const Json& absent,
                 const RopeDefaults& defaults);

/// Whether the list `key` has each layer's number; all are false, with a finding for what is no
/// list of numbers of layers, or without one where it is absent.
std::vector<bool> read_layer_indices(ConfigReader& reader, std::string_view key,
                                     int64_t num_layers);

/// Which layers rotate: those with a 1 in `no_rope_layers`, or without that list all but every
/// `no_rope_layer_interval`-th. `is_empty_absent`: an empty list is none.
std::vector<bool> read_rotated_layers(ConfigReader& reader, int64_t num_layers,
                                      bool is_empty_absent = false);

/// Sets the window in the layers that `layer_types` calls sliding_attention, or without
/// `layer_types` in those for which `is_sliding(layer)` is true. Returns which layers slide.
template <typename IsSliding>
std::vector<bool> add_windows(ConfigReader& reader, DecoderConfig& config, int64_t window,
                              IsSliding&& is_sliding);

/// The window if `use_sliding_window` is set (`absent` when `sliding_window` is missing); else 0.
int64_t read_requested_window(ConfigReader& reader, int64_t absent);

/// Windows of Qwen 2 and Qwen 3: if requested, in the layers from `max_window_layers` on.
void add_upper_windows(ConfigReader& reader, DecoderConfig& config);

/// Sets the window in the layers for which `sliding` is true.
void set_windows(DecoderConfig& config, int64_t window, const std::vector<bool>& sliding);

/// Takes the rotation from the layers for which `sliding` is false.
void rotate_windows_alone(DecoderConfig& config, const std::vector<bool>& sliding);

/// Gives the layers for which `sliding` is true rope 1, the others rope 0.
void set_ropes_by_window(DecoderConfig& config, const std::vector<bool>& sliding);

/// Sets the window in every layer; 0: none.
void set_window(DecoderConfig& config, int64_t window);

/// `layer_types`: whether each layer is of kind `other` rather than full_attention; nullopt when
/// absent.
std::optional<std::vector<bool>> read_layer_types(ConfigReader& reader, int64_t num_layers,
                                                  std::string_view other = "sliding_attention");

template <typename IsSliding>
std::vector<bool> add_windows(ConfigReader& reader, DecoderConfig& config, int64_t window,
                              IsSliding&& is_sliding) {
  std::vector<bool> sliding;
  if (auto listed = read_layer_types(reader, config.num_layers())) {
    sliding = std::move(*listed);
  } else {
    for (int64_t i = 0; i < config.num_layers(); ++i) sliding.push_back(is_sliding(i));
  }
  if (window == 0 && reader.has("layer_types") &&
      std::ranges::find(sliding, true) != sliding.end()) {
    reader.problem("layer_types holds sliding_attention, but no sliding_window is in force");
  }
  set_windows(config, window, sliding);
  return sliding;
}

}  // namespace automodel::models::decoder
