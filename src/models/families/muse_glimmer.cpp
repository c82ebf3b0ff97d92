#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

/// Which layers rotate: those whose layer_rope_theta is not 0; where it is absent, all but every
/// fourth, counted from the last one.
void add_rope_of_layers(ConfigReader& reader, DecoderConfig& config) {
  add_rope(reader, config, {});
  const Json* thetas = reader.find("layer_rope_theta");
  const auto is_theta = [](const Json& entry) { return entry.is_number(); };
  const bool fits = thetas != nullptr && thetas->is_array() &&
                    thetas->size() == config.layers.size() &&
                    std::ranges::all_of(thetas->as_array(), is_theta);
  if (thetas != nullptr && !fits) {
    reader.problem("layer_rope_theta must be a list with a number for each layer");
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool is_fourth = (config.layers.size() - 1 - i) % 4 == 0;
    const double theta = fits ? thetas->as_array()[i].as_double() : (is_fourth ? 0.0 : 1.0);
    if (theta == 0) config.layers[i].rope = -1;
    if (!fits || theta == 0 || theta == config.ropes.front().theta) continue;
    reader.problem(cat("layer_rope_theta has ", theta, " beside rope_theta ",
                       config.ropes.front().theta, "; layers with their own are not built"));
    return;
  }
}

DecoderConfig read_muse_text(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 128,
                                              .max_positions = 131072,
                                              .norm_eps = 1e-5,
                                              .activation_key = "hidden_activation"});
  config.norm = NormKind::kRmsPlusOne;
  config.norm_placement = NormPlacement::kSandwich;
  config.post_norm_eps = reader.not_negative("post_norm_eps", 1e-8);
  config.is_final_norm_rms = true;
  config.has_embedding_norm = true;
  config.qk_norm = QkNorm::kPlainPerHead;
  config.has_head_gates = true;
  config.are_head_gates_wide = true;
  config.logit_scale = reader.number("output_multiplier", 0.19611613513818404);
  config.final_softcap = reader.not_negative("final_logit_softcapping", 20.0);
  add_rope_of_layers(reader, config);
  add_windows(reader, config, reader.size("sliding_window", 2048),
              [&](int64_t layer) { return (config.num_layers() - 1 - layer) % 4 != 0; });
  const double scale =
      reader.number("qk_scale_factor", 3.87) / std::sqrt(static_cast<double>(config.head_dim));
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  if (reader.flag("attention_bias", false)) {
    reader.problem("attention_bias true is not built in this version");
  }
  return config;
}

DecoderConfig read_muse_glimmer(ConfigReader& reader) {
  if (!reader.has("text_config") && reader.has("output_soft_cap_temp")) {
    reader.problem("this is the older form of config.json; built is the one with text_config");
  }
  return read_text_config(reader, read_muse_text);
}

}  // namespace

/// Muse Glimmer's text model beside its tower, which is left alone: normed embeddings, layers with
/// a window that rotate and full ones that do not, q and k normed without weights, a gate for each
/// number that attention gives.
extern const Family kMuseGlimmer{
    .architecture = "MuseGlimmerForConditionalGeneration",
    .model_type = "muse_glimmer",
    .config_class = "MuseGlimmerConfig",
    .layer_class = "MuseGlimmerTextDecoderLayer",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.muse_glimmer.config.MuseGlimmerConfig"},
    .read_config = read_muse_glimmer,
    .names = {.embedding = "model.language_model.embed_tokens",
              .layers = "model.language_model.layers",
              .final_norm = "model.language_model.norm",
              .head_gates = "gate_proj",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_pre_norm = "pre_feedforward_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .kept_prefixes = {"model.vision_tower.", "model.vision_adapter.", "model.vision_projection."},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder
