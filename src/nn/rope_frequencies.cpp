#include "nn/rope_frequencies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace automodel::nn {

namespace {

// Float32 with transformers' roundings: at far positions the last bits of a frequency show in
// logits.

/// theta^(2i / d) in float32.
std::vector<float> position_wavelengths(double theta, int64_t rotary_dim) {
  std::vector<float> values;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    values.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return values;
}

std::vector<float> plain(double theta, int64_t rotary_dim) {
  std::vector<float> values = position_wavelengths(theta, rotary_dim);
  for (float& value : values) value = 1.0f / value;
  return values;
}

RopeFrequencies dynamic(const RopeOptions& options, int64_t length) {
  const double factor = options.factor.value_or(1.0);
  const auto dim = static_cast<double>(options.rotary_dim);
  const auto max_positions = static_cast<double>(options.max_positions);
  const double reached = std::max(static_cast<double>(length), max_positions);
  const double growth = factor * reached / max_positions - (factor - 1.0);
  const double theta = options.theta * std::pow(growth, dim / (dim - 2.0));
  return {plain(static_cast<float>(theta), options.rotary_dim), 1.0};
}

/// A number divided by a tensor is, in PyTorch, the tensor's reciprocal times the number.
RopeFrequencies llama3(const RopeOptions& options) {
  const auto factor = static_cast<float>(options.factor.value_or(1.0));
  const auto original = static_cast<double>(options.original_max_positions);
  const auto low_wavelength = static_cast<float>(original / options.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / options.high_freq_factor);
  const auto low = static_cast<float>(options.low_freq_factor);
  const auto band = static_cast<float>(options.high_freq_factor - options.low_freq_factor);
  RopeFrequencies out{plain(options.theta, options.rotary_dim), 1.0};
  for (float& value : out.values) {
    const float wavelength = 1.0f / value * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > low_wavelength) {
      value /= factor;
    } else if (wavelength >= high_wavelength) {
      const float smooth = (1.0f / wavelength * static_cast<float>(original) - low) / band;
      value = (1.0f - smooth) * value / factor + smooth * value;
    }
  }
  return out;
}

/// The dim that makes `rotations` turns over `length` positions.
double correction_dim(double rotations, const RopeOptions& options) {
  const auto length = static_cast<double>(options.original_max_positions);
  return static_cast<double>(options.rotary_dim) *
         std::log(length / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(options.theta));
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double extension(const RopeOptions& options) {
  if (options.factor) return *options.factor;
  return static_cast<double>(options.max_positions) /
         static_cast<double>(options.original_max_positions);
}

RopeFrequencies yarn(const RopeOptions& options) {
  const double factor = extension(options);
  RopeFrequencies out;
  if (options.attention_factor) {
    out.attention_factor = *options.attention_factor;
  } else if (options.mscale != 0 && options.mscale_all_dim != 0) {
    out.attention_factor =
        yarn_mscale(factor, options.mscale) / yarn_mscale(factor, options.mscale_all_dim);
  } else {
    out.attention_factor = yarn_mscale(factor, 1.0);
  }
  double low = correction_dim(options.beta_fast, options);
  double high = correction_dim(options.beta_slow, options);
  if (options.is_truncated) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(options.rotary_dim - 1));
  if (low == high) high += 0.001;
  out.values = position_wavelengths(options.theta, options.rotary_dim);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const float place = static_cast<float>(i) - static_cast<float>(low);
    const float keep = 1.0f - std::clamp(place / static_cast<float>(high - low), 0.0f, 1.0f);
    const float interpolated = 1.0f / (static_cast<float>(factor) * out.values[i]);
    out.values[i] = interpolated * (1.0f - keep) + 1.0f / out.values[i] * keep;
  }
  return out;
}

RopeFrequencies longrope(const RopeOptions& options, int64_t length) {
  const bool is_long = length > options.original_max_positions;
  const std::vector<double>& divisors = is_long ? options.long_factor : options.short_factor;
  RopeFrequencies out;
  if (options.attention_factor) {
    out.attention_factor = *options.attention_factor;
  } else if (const double factor = extension(options); factor > 1.0) {
    const auto original = static_cast<double>(options.original_max_positions);
    out.attention_factor = std::sqrt(1.0 + std::log(factor) / std::log(original));
  }
  out.values = position_wavelengths(options.theta, options.rotary_dim);
  AM_CHECK(divisors.size() == out.values.size(), divisors.size(), " longrope divisors");
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = 1.0f / (static_cast<float>(divisors[i]) * out.values[i]);
  }
  return out;
}

/// Frequencies as if all pairs rotated; zero for those that do not.
RopeFrequencies proportional(const RopeOptions& options) {
  RopeFrequencies out{plain(options.theta, options.rotary_dim), 1.0};
  for (size_t i = 0; i < out.values.size(); ++i) {
    const bool is_turning = static_cast<int64_t>(i) < options.num_turning_pairs;
    out.values[i] = is_turning ? out.values[i] / static_cast<float>(options.factor.value_or(1)) : 0;
  }
  return out;
}

/// The frequencies of a type, all turning one way.
RopeFrequencies frequencies_of_type(const RopeOptions& options, int64_t length) {
  switch (options.type) {
    case RopeType::kDefault:
      return {plain(options.theta, options.rotary_dim), 1.0};
    case RopeType::kLinear: {
      RopeFrequencies out{plain(options.theta, options.rotary_dim), 1.0};
      for (float& value : out.values) value /= static_cast<float>(options.factor.value_or(1.0));
      return out;
    }
    case RopeType::kDynamic:
      return dynamic(options, length);
    case RopeType::kLlama3:
      return llama3(options);
    case RopeType::kYarn:
      return yarn(options);
    case RopeType::kLongrope:
      return longrope(options, length);
    case RopeType::kProportional:
      return proportional(options);
  }
  AM_CHECK(false);
}

}  // namespace

std::optional<RopeType> parse_rope_type(std::string_view name) {
  using Entry = std::pair<std::string_view, RopeType>;
  static constexpr std::array<Entry, 7> kTypes = {{{"default", RopeType::kDefault},
                                                   {"linear", RopeType::kLinear},
                                                   {"dynamic", RopeType::kDynamic},
                                                   {"llama3", RopeType::kLlama3},
                                                   {"yarn", RopeType::kYarn},
                                                   {"longrope", RopeType::kLongrope},
                                                   {"proportional", RopeType::kProportional}}};
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return std::nullopt;
}

RopeFrequencies rope_frequencies(const RopeOptions& options, int64_t length) {
  AM_CHECK(options.rotary_dim > 0);
  RopeFrequencies out = frequencies_of_type(options, length);
  if (options.is_reversed) {
    for (float& value : out.values) value = -value;
  }
  return out;
}

int64_t rope_length_class(const RopeOptions& options, int64_t length) {
  switch (options.type) {
    case RopeType::kDynamic:
      return std::max(length, options.max_positions);
    case RopeType::kLongrope:
      return length > options.original_max_positions ? 1 : 0;
    case RopeType::kDefault:
    case RopeType::kLinear:
    case RopeType::kLlama3:
    case RopeType::kYarn:
    case RopeType::kProportional:
      return 0;
  }
  AM_CHECK(false);
}

}  // namespace automodel::nn
