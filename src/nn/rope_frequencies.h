#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace automodel::nn {

/// Kinds of rotary embeddings, named as Hugging Face's `rope_type`.
enum class RopeType {
  kDefault,
  kLinear,        ///< positions divided by `factor`
  kDynamic,       ///< NTK: a larger theta beyond max_positions
  kLlama3,        ///< low frequencies divided, with a smooth transition
  kYarn,          ///< NTK by parts (Peng et al. 2023)
  kLongrope,      ///< a divisor per frequency, with another list for long sequences (Phi-3)
  kProportional,  ///< only the first of rotary_dim / 2 pairs rotate (Gemma 4)
};

/// nullopt for an unknown name.
std::optional<RopeType> parse_rope_type(std::string_view name);

/// The options of rotary frequencies. Those that a type does not read are ignored.
struct RopeOptions {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  int64_t rotary_dim = 0;  ///< number of leading dims of a head that rotate; 0: queries are scaled
                           ///< and nothing rotates
  int64_t max_positions = 0;           ///< max_position_embeddings
  int64_t original_max_positions = 0;  ///< llama3, yarn, longrope: before extension
  std::optional<double> factor;        ///< yarn, longrope: max / original when absent
  double low_freq_factor = 1.0;        ///< llama3
  double high_freq_factor = 4.0;       ///< llama3
  double beta_fast = 32.0;             ///< yarn
  double beta_slow = 1.0;              ///< yarn
  double mscale = 0;                   ///< yarn; 0: absent
  double mscale_all_dim = 0;           ///< yarn; 0: absent
  bool is_truncated = true;            ///< yarn: the band's borders are whole numbers
  std::optional<double> attention_factor;
  /// Queries at position p are multiplied by 1 + beta * log(1 + floor((p + first) / period))
  /// (Llama 4, Ministral 3).
  double query_scaling_beta = 0;
  int64_t query_scaling_period = 1;
  int64_t query_scaling_first = 0;   ///< what the first position counts as: 0 or 1
  bool is_reversed = false;          ///< all turn the other way (nanochat)
  int64_t num_turning_pairs = 0;     ///< proportional
  std::vector<double> short_factor;  ///< longrope, rotary_dim / 2 numbers
  std::vector<double> long_factor;   ///< longrope, used beyond original_max_positions
};

/// Angle per position, and the factor of cosines and sines.
struct RopeFrequencies {
  std::vector<float> values;  ///< rotary_dim / 2
  double attention_factor = 1.0;
};

/// The frequencies for sequences of `length` positions (which dynamic and longrope depend on), in
/// float32, as computed by transformers' ROPE_INIT_FUNCTIONS.
RopeFrequencies rope_frequencies(const RopeOptions& options, int64_t length);

/// A number that is different for lengths with different frequencies.
int64_t rope_length_class(const RopeOptions& options, int64_t length);

}  // namespace automodel::nn
