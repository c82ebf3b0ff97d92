#include <algorithm>
#include <cmath>
#include <vector>

#include "core/text.h"
#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

namespace {

/// Rope 0 for layers that see everything, rope 1 for those with a window. New form: rope_parameters
/// by layer type; old form: global_rope_theta and local_rope_theta, and rope_scaling of both.
void add_ropes_by_reach(ConfigReader& reader, DecoderConfig& config,
                        const std::vector<bool>& sliding) {
  const Json* nested = reader.find("rope_parameters");
  const auto parameters = [&](const char* type) {
    const Json* own = nested == nullptr ? nullptr : nested->find(type);
    if (own != nullptr && !own->is_null()) return own;
    return reader.find("rope_scaling");
  };
  config.ropes = {read_rope(reader, parameters("full_attention"), config,
                            {.theta = 160000, .theta_key = "global_rope_theta"}),
                  read_rope(reader, parameters("sliding_attention"), config,
                            {.theta = 10000, .theta_key = "local_rope_theta"})};
  set_ropes_by_window(config, sliding);
}

/// What config.json says of the layers before the head of classes.
PoolerOptions read_head(ConfigReader& reader) {
  const std::string pooling = reader.text("classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean") {
    reader.problem(cat("classifier_pooling '", pooling, "' is none; cls and mean are"));
  }
  return {.is_of_head = true,
          .has_bias = reader.flag("classifier_bias", false),
          .has_norms = true,
          .averages = pooling == "mean",
          .activation = reader.activation("classifier_activation", "gelu"),
          .dropout = reader.probability("classifier_dropout", 0)};
}

DecoderConfig read_modernbert(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .vocab_size = 50368,
                                              .hidden_size = 768,
                                              .num_heads = 12,
                                              .intermediate_size = 1152,
                                              .max_positions = 8192,
                                              .padding_idx = 50283,
                                              .activation_key = "hidden_activation",
                                              .activation = "gelu"});
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  config.is_causal = false;
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("norm_eps", 1e-5);
  config.has_norm_bias = reader.flag("norm_bias", false);
  config.has_placed_norm = true;
  config.layers.front().is_input_unnormed = true;
  config.has_qkv_bias = config.has_attention_output_bias = reader.flag("attention_bias", false);
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_dropout = reader.probability("embedding_dropout", 0);
  config.attention_dropout = reader.probability("attention_dropout", 0);
  config.attention_branch_dropout = config.attention_dropout;
  config.residual_dropout = 0;
  if (reader.probability("mlp_dropout", 0) > 0) {
    reader.problem("mlp_dropout above 0 is not built in this version");
  }
  const int64_t period = reader.size("global_attn_every_n_layers", 3);
  const int64_t reach = reader.size("local_attention", 128) / 2;
  const std::vector<bool> sliding =
      add_windows(reader, config, reach + 1, [&](int64_t layer) { return layer % period != 0; });
  add_ropes_by_reach(reader, config, sliding);
  config.pooler = read_head(reader);
  config.is_residual_init_scaled = true;
  config.initializer_cut = reader.not_negative("initializer_cutoff_factor", 2);
  config.class_initializer_range = 1 / std::sqrt(static_cast<double>(config.hidden_size));
  return config;
}

/// Products and attention, to all tokens or in windows both ways, forward and backward.
double modernbert_flops(const DecoderConfig& config, double num_sequences, double length) {
  const auto hidden = static_cast<double>(config.hidden_size);
  double products = 0;
  for (const LayerOptions& layer : config.layers) {
    const double window =
        layer.window == 0 ? length : std::min(length, static_cast<double>(layer.window));
    const double pairs = window * (2 * length - window + 1) - length;
    products += 4 * length * hidden * hidden + 2 * hidden * pairs;
  }
  return 6 * num_sequences * products + mlps_and_head_flops(config, num_sequences, length);
}

constexpr HfNames modernbert_names() {
  HfNames names;
  names.embedding = "model.embeddings.tok_embeddings";
  names.placed_norm = "model.embeddings.norm";
  names.final_norm = "model.final_norm";
  names.head = "decoder";
  names.classes = "classifier";
  names.pooler = "head.dense";
  names.has_pooler_beside_classes = true;
  names.pooler_norm = "head.norm";
  names.attention = "attn";
  names.qkv = "Wqkv";
  names.output = "Wo";
  names.gate_up = "Wi";
  names.down = "Wo";
  names.attention_pre_norm = "attn_norm";
  names.mlp_pre_norm = "mlp_norm";
  return names;
}

}  // namespace

/// ModernBERT: an encoder with rotation and gated MLPs, of whose layers every third sees the whole
/// text and the others some tokens on either side.
extern const Family kModernBert{
    .architecture = "ModernBertForSequenceClassification",
    .model_type = "modernbert",
    .config_class = "ModernBertConfig",
    .layer_class = "ModernBertEncoderLayer",
    .classifier = "ModernBertForSequenceClassification",
    .bases = {"ModernBertForMaskedLM", "ModernBertModel"},
    .read_config = read_modernbert,
    .names = modernbert_names(),
    .flops = modernbert_flops,
};

}  // namespace automodel::models::decoder
