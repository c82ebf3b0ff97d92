#include "models/families/mistral_kind.h"

namespace automodel::models::decoder {

Json mistral_yarn(double theta, double factor, int64_t original_max_positions) {
  Json rope = Json::object();
  rope["rope_type"] = Json("yarn");
  rope["rope_theta"] = Json(theta);
  rope["factor"] = Json(factor);
  rope["original_max_position_embeddings"] = Json(original_max_positions);
  rope["beta_fast"] = Json(32.0);
  rope["beta_slow"] = Json(1.0);
  rope["mscale"] = Json(1.0);
  rope["mscale_all_dim"] = Json(1.0);
  rope["llama_4_scaling_beta"] = Json(0.1);
  return rope;
}

}  // namespace automodel::models::decoder
