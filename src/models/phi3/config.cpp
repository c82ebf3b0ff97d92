#include "models/phi3/config.h"

#include "core/text.h"

namespace automodel::models::phi3 {

namespace {

/// "su" and "yarn" are what early checkpoints called longrope.
void add_phi_rope(decoder::ConfigReader& reader, decoder::DecoderConfig& config) {
  const Json* found = reader.find("rope_scaling");
  if (found == nullptr || found->size() == 0) found = reader.find("rope_parameters");
  Json parameters = found != nullptr && found->is_object() ? *found : Json::object();
  const char* key = parameters.contains("rope_type") ? "rope_type" : "type";
  const std::string type = parameters.get(key, "default");
  if (type == "su" || type == "yarn") parameters[key] = "longrope";
  config.ropes.push_back(
      decoder::read_rope(reader, &parameters, config, {.has_partial_default = true}));
  nn::RopeOptions& rope = config.ropes.back();
  if (!reader.has("original_max_position_embeddings")) rope.original_max_positions = 4096;
  if (rope.type != nn::RopeType::kDefault && rope.type != nn::RopeType::kLongrope) {
    reader.problem(cat("rope_type '", type, "' is not Phi-3's; known: default, longrope"));
  }
  for (decoder::LayerOptions& layer : config.layers) layer.rope = 0;
}

}  // namespace

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_common(
      reader,
      {.requires_kv_heads = false, .max_positions = 4096, .norm_eps = 1e-5, .padding_idx = 32000});
  config.residual_dropout = reader.probability("resid_pdrop", 0);
  config.embedding_dropout = reader.probability("embd_pdrop", 0);
  const int64_t window = reader.size("sliding_window", 0);
  decoder::set_windows(config, window, std::vector<bool>(config.layers.size(), true));
  add_phi_rope(reader, config);
  return config;
}

}  // namespace automodel::models::phi3
