#include "models/decoder/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/text.h"
#include "models/decoder/embedder.h"

namespace automodel::models::decoder {

namespace {

constexpr std::string_view kRopeTypes =
    "default, linear, dynamic, llama3, yarn, longrope, proportional";
constexpr std::string_view kActivations =
    "silu, swish, gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, relu2";

/// More of anything is a slip, and its products with other sizes would be no numbers.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

}  // namespace

const Json* ConfigReader::find(std::string_view key) const {
  const Json* found = json_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void ConfigReader::wrong_kind(std::string_view key, std::string_view wanted, const Json& found) {
  problem(cat(key, " must be ", wanted, ", not ", found.kind(), " (", found.dump(), ")"));
}

int64_t ConfigReader::size(std::string_view key) {
  if (!has(key)) {
    problem(cat(key, " is missing"));
    return 1;
  }
  return size(key, 1);
}

int64_t ConfigReader::size(std::string_view key, int64_t fallback) {
  const Json* found = find(key);
  if (found == nullptr) return fallback;
  if (!found->is_int()) {
    wrong_kind(key, "a whole number", *found);
    return 1;
  }
  const int64_t value = found->as_int();
  if (value >= 1 && value <= kLargest) return value;
  const std::string bound = value < 1 ? "at least 1" : cat("at most ", kLargest);
  problem(cat(key, " is ", value, "; it must be ", bound));
  return 1;
}

int64_t ConfigReader::count(std::string_view key, int64_t fallback) {
  const Json* found = find(key);
  if (found == nullptr) return fallback;
  if (found->is_int() && found->as_int() >= 0 && found->as_int() <= kLargest) {
    return found->as_int();
  }
  wrong_kind(key, cat("a whole number from 0 to ", kLargest), *found);
  return fallback;
}

double ConfigReader::number(std::string_view key, double fallback) {
  const Json* found = find(key);
  if (found == nullptr) return fallback;
  if (found->is_number() && std::isfinite(found->as_double())) return found->as_double();
  wrong_kind(key, "a number", *found);
  return fallback;
}

double ConfigReader::not_negative(std::string_view key, double fallback) {
  const double value = number(key, fallback);
  if (value >= 0) return value;
  problem(cat(key, " is ", value, "; it must be at least 0"));
  return fallback;
}

double ConfigReader::probability(std::string_view key, double fallback) {
  const double value = number(key, fallback);
  if (value >= 0 && value < 1) return value;
  problem(cat(key, " is ", value, "; a dropout probability lies in [0, 1)"));
  return 0;
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  const Json* found = json_.find(key);
  if (found == nullptr) return fallback;
  if (found->is_null()) return false;  // as None is in Python
  if (found->is_bool()) return found->as_bool();
  wrong_kind(key, "true or false", *found);
  return fallback;
}

std::string ConfigReader::text(std::string_view key, std::string_view fallback) {
  const Json* found = find(key);
  if (found == nullptr) return std::string(fallback);
  if (found->is_string()) return found->as_string();
  wrong_kind(key, "a string", *found);
  return std::string(fallback);
}

kernels::Activation ConfigReader::activation(std::string_view key, std::string_view fallback) {
  const std::string name = text(key, fallback);
  if (const auto found = kernels::parse_activation(name)) return *found;
  problem(cat(key, " '", name, "' is not an activation known here; known: ", kActivations));
  return kernels::Activation::kSilu;
}

std::string_view either(ConfigReader& reader, std::string_view key, std::string_view other) {
  const Json* const own = reader.find(key);
  const Json* const found = reader.find(other);
  if (found == nullptr) return key;
  const auto are_equal = [&] {
    const bool are_numbers = own->is_number() && found->is_number();
    return are_numbers ? own->as_double() == found->as_double() : *own == *found;
  };
  if (own != nullptr && !own->is_object() && !are_equal()) {
    reader.problem(cat(key, " ", own->dump(), " and ", other, " ", found->dump(),
                       " are two names of one value"));
  }
  return other;
}

int64_t checked_layers(ConfigReader& reader, std::string_view key, int64_t num_layers) {
  constexpr int64_t kMostLayers = 10000;
  if (num_layers <= kMostLayers) return num_layers;
  reader.problem(cat(key, " is ", num_layers, "; at most ", kMostLayers, " is right"));
  return 1;
}

void check_causal(ConfigReader& reader) {
  // The model that makes embeddings of texts reads the key itself.
  if (reader.flag("is_causal", true) || is_embedder(reader.json())) return;
  reader.problem("is_causal is false; attention to later tokens is not built for this family");
}

Json with_renamed_keys(const ConfigReader& reader, const std::vector<RenamedKey>& keys) {
  Json out = reader.json();
  for (const RenamedKey& key : keys) {
    if (const Json* value = reader.find(key.own)) out[std::string(key.common)] = *value;
  }
  return out;
}

DecoderConfig read_common(ConfigReader& reader, const CommonDefaults& defaults) {
  DecoderConfig config;
  const auto size = [&](std::string_view key, int64_t fallback) {
    return fallback == 0 ? reader.size(key) : reader.size(key, fallback);
  };
  config.vocab_size = size("vocab_size", defaults.vocab_size);
  config.hidden_size = size("hidden_size", defaults.hidden_size);
  config.intermediate_size = size("intermediate_size", defaults.intermediate_size);
  constexpr const char* kLayers = "num_hidden_layers";
  config.layers.resize(static_cast<size_t>(checked_layers(reader, kLayers, reader.size(kLayers))));
  config.num_heads = size("num_attention_heads", defaults.num_heads);
  const bool is_kv_missing = !reader.json().contains("num_key_value_heads");
  if (is_kv_missing && defaults.requires_kv_heads) reader.problem("num_key_value_heads is missing");
  config.num_kv_heads = reader.size("num_key_value_heads", config.num_heads);
  config.head_dim = reader.size("head_dim", defaults.head_dim);
  if (config.head_dim == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
    if (config.hidden_size % config.num_heads != 0) {
      reader.problem(cat("num_attention_heads ", config.num_heads, " does not divide hidden_size ",
                         config.hidden_size, ", and there is no head_dim"));
    }
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.problem(cat("num_key_value_heads ", config.num_kv_heads,
                       " does not divide num_attention_heads ", config.num_heads));
  }
  const int64_t widest = std::max({config.num_heads * config.head_dim, config.intermediate_size,
                                   config.vocab_size, config.hidden_size});
  constexpr int64_t kMostElements = int64_t{1} << 36;  // more are a slip
  if (config.hidden_size > kMostElements / widest) {
    reader.problem(
        cat("sizes are too large: a matrix of ", widest, " x hidden_size ", config.hidden_size));
    config.hidden_size = config.intermediate_size = config.vocab_size = 1;
    config.num_heads = config.num_kv_heads = config.head_dim = 1;
  }
  config.max_positions = reader.size("max_position_embeddings", defaults.max_positions);
  config.norm_eps = reader.not_negative("rms_norm_eps", defaults.norm_eps);
  config.activation = reader.activation(defaults.activation_key, defaults.activation);
  if (defaults.has_attention_dropout) {
    config.attention_dropout = reader.probability("attention_dropout", 0);
  }
  config.initializer_range = reader.number("initializer_range", 0.02);
  config.is_head_tied = reader.flag("tie_word_embeddings", defaults.is_head_tied);
  check_causal(reader);
  // An explicit null means no padding row; only an absent key takes the default.
  config.padding_idx = reader.json().contains("pad_token_id") ? -1 : defaults.padding_idx;
  if (const Json* pad = reader.find("pad_token_id"); pad != nullptr && pad->is_int()) {
    const int64_t row = pad->as_int();
    config.padding_idx = row < 0 ? row + config.vocab_size : row;  // torch counts from the end
    if (config.padding_idx < 0 || config.padding_idx >= config.vocab_size) {
      reader.problem(cat("pad_token_id ", row, " is outside vocab_size ", config.vocab_size));
    }
  } else if (pad != nullptr) {
    reader.problem(cat("pad_token_id must be a whole number, not ", pad->kind()));
  } else if (config.padding_idx >= config.vocab_size) {
    reader.problem(cat("pad_token_id is absent, and this family's default ", config.padding_idx,
                       " is outside vocab_size ", config.vocab_size));
    config.padding_idx = -1;
  }
  if (reader.flag("use_bidirectional_attention", false)) {
    reader.problem("use_bidirectional_attention true is not built in this version");
  }
  return config;
}

namespace {

/// The numbers of a longrope list; adds findings when it is no list or its length is wrong.
std::vector<double> read_divisors(ConfigReader& reader, ConfigReader& rope, std::string_view key,
                                  int64_t count) {
  const Json* found = rope.find(key);
  std::vector<double> out;
  if (found != nullptr && found->is_array()) {
    for (const Json& value : found->as_array()) {
      if (value.is_number()) out.push_back(value.as_double());
    }
  }
  if (found == nullptr || static_cast<int64_t>(out.size()) != count ||
      out.size() != found->size()) {
    reader.problem(cat("rope_parameters.", key, " must be a list of ", count,
                       " numbers (half the rotated dims)"));
    out.assign(static_cast<size_t>(count), 1.0);
  }
  return out;
}

void read_factor(ConfigReader& reader, ConfigReader& rope, nn::RopeOptions& options) {
  using nn::RopeType;
  if (rope.has("factor")) options.factor = rope.number("factor", 1.0);
  const bool is_needed = options.type == RopeType::kLinear || options.type == RopeType::kDynamic ||
                         options.type == RopeType::kLlama3;
  if (is_needed && !options.factor) reader.problem("rope_parameters.factor is missing");
  if (options.factor && *options.factor <= 0) {
    reader.problem(cat("rope_parameters.factor is ", *options.factor, "; it must be above 0"));
    options.factor = 1.0;
  }
}

}  // namespace

nn::RopeOptions read_rope(ConfigReader& reader, const Json* parameters, const DecoderConfig& config,
                          const RopeDefaults& defaults) {
  const Json none = Json::object();
  if (parameters != nullptr && !parameters->is_object()) {
    reader.problem(cat("rope_parameters must be an object, not ", parameters->kind()));
    parameters = nullptr;
  }
  ConfigReader rope(parameters != nullptr ? *parameters : none);
  nn::RopeOptions options;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (const auto known = nn::parse_rope_type(type)) {
    options.type = *known;
  } else {
    reader.problem(cat("rope_type '", type, "' is not known here; known: ", kRopeTypes));
  }
  options.theta = rope.number("rope_theta", reader.number(defaults.theta_key, defaults.theta));
  if (options.theta <= 1) {
    reader.problem(cat("rope_theta is ", options.theta, "; it must be above 1"));
    options.theta = defaults.theta;
  }
  // An explicit null beside the object means whole heads; only an absent key takes the default.
  const Json* beside = reader.json().find(defaults.partial_key);
  const bool is_whole = beside != nullptr && beside->is_null();
  double partial =
      rope.number("partial_rotary_factor",
                  reader.number(defaults.partial_key, is_whole ? 1.0 : defaults.partial_default));
  if (options.type == nn::RopeType::kDefault && !defaults.has_partial_default) partial = 1.0;
  options.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * partial);
  if (options.type == nn::RopeType::kProportional) {
    options.num_turning_pairs = options.rotary_dim / 2;
    options.rotary_dim = config.head_dim;
  }
  if (options.rotary_dim < 2 || options.rotary_dim > config.head_dim ||
      options.rotary_dim % 2 != 0) {
    reader.problem(cat("rotary embeddings turn pairs of dims: head_dim ", config.head_dim,
                       " times partial_rotary_factor ", partial,
                       " must be an even number of at least 2"));
    options.rotary_dim = 2;
  }
  options.max_positions = config.max_positions;
  options.original_max_positions =
      reader.size("original_max_position_embeddings",
                  rope.size("original_max_position_embeddings", config.max_positions));
  read_factor(reader, rope, options);
  const auto read_positive = [&](std::string_view key, nn::RopeType type, double& value) {
    const double found = rope.number(key, value);
    if (found <= 0 && options.type == type) {
      reader.problem(cat("rope_parameters.", key, " is ", found, "; it must be above 0"));
      return;
    }
    value = found;
  };
  read_positive("low_freq_factor", nn::RopeType::kLlama3, options.low_freq_factor);
  read_positive("high_freq_factor", nn::RopeType::kLlama3, options.high_freq_factor);
  // transformers takes 0 for absent.
  const auto is_said = [&](std::string_view key) { return rope.number(key, 0) != 0; };
  if (is_said("beta_fast")) read_positive("beta_fast", nn::RopeType::kYarn, options.beta_fast);
  if (is_said("beta_slow")) read_positive("beta_slow", nn::RopeType::kYarn, options.beta_slow);
  options.mscale = rope.number("mscale", 0);
  options.mscale_all_dim = rope.number("mscale_all_dim", 0);
  options.is_truncated = rope.flag("truncate", true);
  if (defaults.scales_queries) {
    options.query_scaling_beta = rope.number("llama_4_scaling_beta", 0);
    options.query_scaling_period = options.original_max_positions;
  }
  if (rope.has("attention_factor")) options.attention_factor = rope.number("attention_factor", 1);
  if (options.type == nn::RopeType::kLongrope) {
    const int64_t count = options.rotary_dim / 2;
    options.short_factor = read_divisors(reader, rope, "short_factor", count);
    options.long_factor = read_divisors(reader, rope, "long_factor", count);
  }
  for (const std::string& text : rope.problems()) reader.problem(cat("rope_parameters.", text));
  return options;
}

void add_rope(ConfigReader& reader, DecoderConfig& config, const RopeDefaults& defaults) {
  const Json* parameters = reader.find("rope_scaling");
  if (parameters != nullptr && !parameters->is_object()) {
    reader.problem(cat("rope_scaling must be an object, not ", parameters->kind()));
    parameters = nullptr;
  }
  if (parameters == nullptr || parameters->size() == 0) parameters = reader.find("rope_parameters");
  config.ropes.push_back(read_rope(reader, parameters, config, defaults));
  for (LayerOptions& layer : config.layers) layer.rope = 0;
}

std::vector<bool> read_layer_indices(ConfigReader& reader, std::string_view key,
                                     int64_t num_layers) {
  std::vector<bool> out(static_cast<size_t>(num_layers), false);
  const Json* listed = reader.find(key);
  if (listed == nullptr) return out;
  bool is_right = listed->is_array();
  for (size_t i = 0; is_right && i < listed->size(); ++i) {
    const Json& index = listed->as_array()[i];
    is_right = index.is_int() && index.as_int() >= 0 && index.as_int() < num_layers;
    if (is_right) out[static_cast<size_t>(index.as_int())] = true;
  }
  if (!is_right) {
    reader.problem(cat(key, " must be a list of numbers of layers, 0 to ", num_layers - 1));
  }
  return out;
}

std::vector<bool> read_rotated_layers(ConfigReader& reader, int64_t num_layers,
                                      bool is_empty_absent) {
  const int64_t interval = reader.size("no_rope_layer_interval", 4);
  std::vector<bool> rotated;
  for (int64_t i = 0; i < num_layers; ++i) rotated.push_back((i + 1) % interval != 0);
  const Json* listed = reader.find("no_rope_layers");
  if (listed == nullptr) return rotated;
  if (is_empty_absent && listed->is_array() && listed->size() == 0) return rotated;
  const bool is_list = listed->is_array() && listed->size() >= rotated.size() &&
                       std::ranges::all_of(listed->as_array(), &Json::is_int);
  if (!is_list) {
    reader.problem(cat("no_rope_layers must be a list of ", num_layers,
                       " numbers: 1 for a layer that rotates, 0 for one that does not"));
    return rotated;
  }
  for (size_t i = 0; i < rotated.size(); ++i) rotated[i] = listed->as_array()[i].as_int() != 0;
  return rotated;
}

void add_rope_or(ConfigReader& reader, DecoderConfig& config, const Json& absent,
                 const RopeDefaults& defaults) {
  if (reader.has("rope_parameters") || reader.has("rope_scaling")) {
    return add_rope(reader, config, defaults);
  }
  config.ropes.push_back(read_rope(reader, &absent, config, defaults));
  for (LayerOptions& layer : config.layers) layer.rope = 0;
}

std::optional<std::vector<bool>> read_layer_types(ConfigReader& reader, int64_t num_layers,
                                                  std::string_view other) {
  const Json* types = reader.find("layer_types");
  if (types == nullptr) return std::nullopt;
  std::vector<bool> are_other;
  bool is_known = true;  // so far; the first unknown type is enough to say
  if (types->is_array()) {
    for (const Json& type : types->as_array()) {
      const std::string name = type.is_string() ? type.as_string() : type.dump();
      if (name != "full_attention" && name != other && std::exchange(is_known, false)) {
        reader.problem(cat("layer_types holds '", name, "'; known here: full_attention, ", other));
      }
      are_other.push_back(name == other);
    }
  }
  if (static_cast<int64_t>(are_other.size()) != num_layers) {
    reader.problem(
        cat("layer_types has ", are_other.size(), " entries for num_hidden_layers ", num_layers));
    are_other.resize(static_cast<size_t>(num_layers));
  }
  return are_other;
}

int64_t read_requested_window(ConfigReader& reader, int64_t absent) {
  return reader.flag("use_sliding_window", false) ? reader.size("sliding_window", absent) : 0;
}

void add_upper_windows(ConfigReader& reader, DecoderConfig& config) {
  const int64_t first = static_cast<int64_t>(reader.number("max_window_layers", 28));
  add_windows(reader, config, read_requested_window(reader, 4096),
              [&](int64_t layer) { return layer >= first; });
}

void rotate_windows_alone(DecoderConfig& config, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) config.layers[i].rope = -1;
  }
}

void set_ropes_by_window(DecoderConfig& config, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].rope = sliding[i] ? 1 : 0;
}

void set_window(DecoderConfig& config, int64_t window) {
  for (LayerOptions& layer : config.layers) layer.window = window;
}

void set_windows(DecoderConfig& config, int64_t window, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].window = sliding[i] ? window : 0;
}

}  // namespace automodel::models::decoder
