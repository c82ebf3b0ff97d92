#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/mamba_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// A layer by its letter in hybrid_override_pattern: M Mamba, * attention, - MLP, E experts.
LayerOptions nemotron_layer(char letter) {
  LayerOptions layer;
  layer.has_mlp = letter == '-' || letter == 'E';
  layer.is_moe = letter == 'E';
  layer.mixer = layer.has_mlp ? Mixer::kNone : letter == 'M' ? Mixer::kMamba2 : Mixer::kAttention;
  return layer;
}

/// The keys that say of which kinds layers are: a list of words, or letters.
struct PatternKeys {
  const char* list;
  const char* letters;
  std::string_view absent;  ///< the letters where neither is there
};

/// Letters of a list of words; a finding for others.
std::string letters_of(ConfigReader& reader, const char* key, const Json& types) {
  using Entry = std::pair<std::string_view, char>;
  static constexpr std::array<Entry, 6> kTypes = {{{"linear_attention", 'M'},
                                                   {"mamba", 'M'},
                                                   {"full_attention", '*'},
                                                   {"attention", '*'},
                                                   {"mlp", '-'},
                                                   {"moe", 'E'}}};
  if (!types.is_array() || types.size() == 0) {
    reader.problem(cat(key, " must be a list with an entry for each layer"));
    return "M";
  }
  std::string pattern;
  for (const Json& type : types.as_array()) {
    const auto* known = std::find_if(kTypes.begin(), kTypes.end(), [&](const Entry& entry) {
      return type.is_string() && type.as_string() == entry.first;
    });
    if (known == kTypes.end()) {
      reader.problem(cat(key, " holds ", type.dump(),
                         "; known here: full_attention, linear_attention, mlp, moe"));
    }
    pattern += known == kTypes.end() ? '-' : known->second;
  }
  return pattern;
}

std::string read_letters(ConfigReader& reader, const PatternKeys& keys) {
  const std::string pattern = reader.text(keys.letters, keys.absent);
  if (!pattern.empty() && pattern.find_first_not_of("M*-E") == std::string::npos) return pattern;
  reader.problem(cat(keys.letters, " '", pattern, "' must be letters of M, *, -, E"));
  return "M";
}

/// The model's layers as letters.
std::string nemotron_pattern(ConfigReader& reader) {
  const PatternKeys keys{reader.has("layers_block_type") ? "layers_block_type" : "layer_types",
                         "hybrid_override_pattern", "ME*-"};
  const Json* types = reader.find(keys.list);
  return types == nullptr ? read_letters(reader, keys) : letters_of(reader, keys.list, *types);
}

/// The layers of one depth of multi-token prediction as letters. As in transformers, letters count
/// before a list that says what an absent one means, which transformers writes into every file.
std::string next_token_pattern(ConfigReader& reader) {
  constexpr PatternKeys kKeys{"mtp_layers_block_type", "mtp_hybrid_override_pattern", "*E"};
  const Json* types = reader.find(kKeys.list);
  if (types == nullptr) return read_letters(reader, kKeys);
  const std::string listed = letters_of(reader, kKeys.list, *types);
  if (!reader.has(kKeys.letters)) return listed;
  const size_t num_problems = reader.problems().size();
  const std::string pattern = read_letters(reader, kKeys);
  const bool is_right = reader.problems().size() == num_problems;
  if (is_right && pattern != listed && listed != kKeys.absent) {
    reader.problem(cat(kKeys.letters, " '", pattern, "' and ", kKeys.list, " ", types->dump(),
                       " name different layers"));
  }
  return pattern;
}

/// Multi-token prediction, if the configuration has it.
std::optional<NextTokenOptions> read_next_tokens(ConfigReader& reader) {
  constexpr const char* kDepths = "num_nextn_predict_layers";
  constexpr const char* kScale = "mtp_loss_scaling_factor";
  constexpr int64_t kMostDepths = 64;
  NextTokenOptions options;
  options.num_depths = reader.count(kDepths, 0);
  if (options.num_depths == 0) return std::nullopt;
  if (options.num_depths > kMostDepths) {
    reader.problem(
        cat(kDepths, " is ", options.num_depths, "; at most ", kMostDepths, " is right"));
    options.num_depths = 1;
  }
  options.is_repeated = reader.flag("mtp_use_repeated_layer", false);
  options.loss_scale = reader.number(kScale, 0.1);
  if (!(options.loss_scale >= 0)) {
    reader.problem(cat(kScale, " is ", options.loss_scale, "; it must be at least 0"));
  }
  for (const char letter : next_token_pattern(reader)) {
    options.layers.push_back(nemotron_layer(letter));
  }
  return options;
}

/// The range that the first step sizes are drawn from, evenly over their logarithms.
void read_initial_steps(ConfigReader& reader, Mamba2Options& mamba) {
  mamba.init_min_step = reader.number(either(reader, "time_step_min", "mamba_dt_min"), 0.001);
  mamba.init_max_step = reader.number(either(reader, "time_step_max", "mamba_dt_max"), 0.1);
  mamba.init_step_floor =
      reader.number(either(reader, "time_step_floor", "mamba_dt_init_floor"), 1e-4);
  if (!(mamba.init_min_step > 0 && mamba.init_min_step <= mamba.init_max_step)) {
    reader.problem(cat("time_step_min ", mamba.init_min_step, " and time_step_max ",
                       mamba.init_max_step, ": 0 < time_step_min <= time_step_max must hold"));
    mamba.init_min_step = mamba.init_max_step = 0.1;
  }
  if (!(mamba.init_step_floor >= 0)) {
    reader.problem(cat("time_step_floor is ", mamba.init_step_floor, "; it must be at least 0"));
    mamba.init_step_floor = 1e-4;
  }
}

Mamba2Options read_mamba(ConfigReader& reader) {
  Mamba2Options mamba;
  mamba.num_heads = reader.size("mamba_num_heads", 128);
  mamba.head_dim = reader.size("mamba_head_dim", 64);
  mamba.state_dim = reader.size("ssm_state_size", 128);
  mamba.num_groups = reader.size(either(reader, "n_groups", "mamba_n_groups"), 8);
  mamba.num_taps = reader.size(either(reader, "conv_kernel", "mamba_d_conv"), 4);
  mamba.has_conv_bias = reader.flag(either(reader, "use_conv_bias", "mamba_conv_bias"), true);
  mamba.has_proj_bias = reader.flag("use_bias", false);
  mamba.activation = reader.activation("mamba_hidden_act", "silu");
  read_initial_steps(reader, mamba);
  mamba.is_residual_init_scaled = reader.flag("rescale_prenorm_residual", true);
  read_step_limits(reader, mamba);
  check_groups(reader, mamba, "n_groups", "mamba_num_heads");
  return mamba;
}

void add_nemotron_experts(ConfigReader& reader, DecoderConfig& config) {
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 8,
                                  .default_inner_dim = 7688,
                                  .default_num_chosen = 2}});
  if (config.activation != kernels::Activation::kReluSquared) {
    reader.problem("mlp_hidden_act of layers of experts other than relu2 is not in this version");
  }
  if (config.has_mlp_bias) {
    reader.problem("mlp_bias true is not in this version for layers of experts");
  }
  config.moe->shared_expert_inter_dim = reader.size("moe_shared_expert_intermediate_size", 7688);
  if (reader.has("moe_latent_size")) {
    config.moe->moe_latent_size = reader.size("moe_latent_size");
  }
}

/// config.json with keys renamed as other families have them.
Json with_common_names(ConfigReader& reader, int64_t num_layers) {
  Json out = reader.json();
  out["num_hidden_layers"] = Json(num_layers);
  out["hidden_act"] = Json(reader.text("mlp_hidden_act", "relu2"));
  out.erase("n_shared_experts");  // of any number, transformers makes one of its own size
  out.erase("rms_norm_eps");      // transformers reads layer_norm_epsilon alone
  if (const Json* eps = reader.find("layer_norm_epsilon")) out["rms_norm_eps"] = *eps;
  return out;
}

DecoderConfig read_nemotron_h(ConfigReader& reader) {
  const std::string pattern = nemotron_pattern(reader);
  const Json renamed = with_common_names(reader, static_cast<int64_t>(pattern.size()));
  ConfigReader common(renamed);
  DecoderConfig config = read_common(
      common,
      {.head_dim = 128, .intermediate_size = 21504, .max_positions = 4096, .norm_eps = 1e-5});
  config.padding_idx = -1;      // this family's embedding has no padding row
  config.is_head_tied = false;  // transformers' class never ties it, whatever the key says
  config.is_mlp_gated = false;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  if (reader.flag("attention_bias", false)) {
    reader.problem("attention_bias true is not built in this version: transformers has none here");
  }
  config.mamba2 = read_mamba(reader);
  config.next_tokens = read_next_tokens(reader);
  const auto is_moe = [](const LayerOptions& layer) { return layer.is_moe; };
  const bool has_experts =
      pattern.find('E') != std::string::npos ||
      (config.next_tokens && std::ranges::any_of(config.next_tokens->layers, is_moe));
  if (has_experts) add_nemotron_experts(common, config);
  for (size_t i = 0; i < pattern.size(); ++i) config.layers[i] = nemotron_layer(pattern[i]);
  reader.add_problems_of(common);
  return config;
}

/// Multiplications of one token and layer. Upstream's formula: attention with heads hidden_size
/// wide, halved for causality; an MLP counts as gated; Mamba's scan takes seven operations per
/// element of the state.
double layer_products(const DecoderConfig& config, const LayerOptions& layer, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const double q = static_cast<double>(config.num_kv_heads) / static_cast<double>(config.num_heads);
  const Mamba2Options& mamba = *config.mamba2;
  const auto inner = static_cast<double>(mamba.inner());
  double products = 0;
  if (layer.mixer == Mixer::kMamba2) {
    products += h * static_cast<double>(mamba.projected_rows() + mamba.inner());
    products += 3.5 * inner * static_cast<double>(mamba.state_dim);
  }
  if (layer.mixer == Mixer::kAttention) products += h * (2 * h + 2 * q * h + S);
  if (!layer.has_mlp) return products;
  if (!layer.is_moe) return products + 3 * h * static_cast<double>(config.intermediate_size);
  const moe::MoEConfig& moe = *config.moe;
  const auto latent = static_cast<double>(moe.moe_latent_size);
  const auto chosen = static_cast<double>(moe.n_activated_experts * moe.moe_inter_dim);
  return products + 2 * chosen * static_cast<double>(moe.expert_dim()) +
         h * (2 * latent + 2 * static_cast<double>(moe.shared_inner_dim()) +
              static_cast<double>(moe.n_routed_experts));
}

/// Every depth of multi-token prediction runs its layers, the fusion and the head.
double nemotron_h_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const double head = h * static_cast<double>(config.head_rows());
  double products = head;
  for (const LayerOptions& layer : config.layers) products += layer_products(config, layer, S);
  if (!config.next_tokens) return 6 * B * S * products;
  double depth = head + 2 * h * h;
  for (const LayerOptions& layer : config.next_tokens->layers) {
    depth += layer_products(config, layer, S);
  }
  return 6 * B * S * (products + static_cast<double>(config.next_tokens->num_depths) * depth);
}

}  // namespace

/// Nemotron-H (Nemotron Nano 2, Nemotron 3 Nano): each layer is Mamba-2, attention without
/// rotation, an MLP or experts.
extern const Family kNemotronH{
    .architecture = "NemotronHForCausalLM",
    .model_type = "nemotron_h",
    .config_class = "NemotronHConfig",
    .layer_class = "NemotronHBlock",
    .experts_class = "NemotronHExperts",
    .read_config = read_nemotron_h,
    .names = {.embedding = "backbone.embeddings",
              .layers = "backbone.layers",
              .final_norm = "backbone.norm_f",
              .attention = "mixer",
              .recurrence = "mixer",
              .mlp = "mixer",
              .attention_pre_norm = "norm",
              .mlp_pre_norm = "norm"},
    .module_names = {{{"backbone.", "model."}}},
    .kept_prefixes = {"mtp."},
    .trains_next_tokens = true,
    .flops = nemotron_h_flops,
};

}  // namespace automodel::models::decoder
