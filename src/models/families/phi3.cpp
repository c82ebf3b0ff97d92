#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Early checkpoints call longrope "su" or "yarn".
void add_phi_rope(ConfigReader& reader, DecoderConfig& config) {
  const Json* found = reader.find("rope_scaling");
  if (found == nullptr || found->size() == 0) found = reader.find("rope_parameters");
  Json parameters = found != nullptr && found->is_object() ? *found : Json::object();
  const char* key = parameters.contains("rope_type") ? "rope_type" : "type";
  const std::string type = parameters.get(key, "default");
  if (type == "su" || type == "yarn") parameters[key] = "longrope";
  config.ropes.push_back(read_rope(reader, &parameters, config, {.has_partial_default = true}));
  nn::RopeOptions& rope = config.ropes.back();
  if (!reader.has("original_max_position_embeddings")) rope.original_max_positions = 4096;
  if (rope.type != nn::RopeType::kDefault && rope.type != nn::RopeType::kLongrope) {
    reader.problem(cat("rope_type '", type, "' is not Phi-3's; known: default, longrope"));
  }
  for (LayerOptions& layer : config.layers) layer.rope = 0;
}

DecoderConfig read_phi3(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .max_positions = 4096, .norm_eps = 1e-5, .padding_idx = 32000});
  config.residual_dropout = reader.probability("resid_pdrop", 0);
  config.embedding_dropout = reader.probability("embd_pdrop", 0);
  const int64_t window = reader.size("sliding_window", 0);
  set_window(config, window);
  add_phi_rope(reader, config);
  return config;
}

}  // namespace

/// Phi-3 and Phi-4: fused projections in the checkpoint, longrope, partial rotation.
extern const Family kPhi3{
    .architecture = "Phi3ForCausalLM",
    .model_type = "phi3",
    .config_class = "Phi3Config",
    .layer_class = "Phi3DecoderLayer",
    .classifier = "Phi3ForSequenceClassification",
    .read_config = read_phi3,
    .names = {.qkv = "qkv_proj", .gate_up = "gate_up_proj"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
