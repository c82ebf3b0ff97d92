#pragma once

#include <cstdint>
#include <tuple>

#include "core/field.h"

namespace automodel::recipes {

/// The recipe class that distils.
inline constexpr const char* kDistillationRecipe =
    "KnowledgeDistillationRecipeForNextTokenPrediction";

/// `kd_loss_fn`: upstream's KDLoss.
struct KDLossConfig {
  int64_t ignore_index = -100;
  double temperature = 1;
  bool fp32_upcast = true;
  int64_t chunk_size = 0;

  static constexpr auto fields() {
    using C = KDLossConfig;
    return std::tuple{
        field("ignore_index", &C::ignore_index, "label that does not count")
            .without_effect("what loss_fn leaves out is left out of both losses"),
        field("temperature", &C::temperature,
              "both models' logits are divided by it; the divergence is multiplied by its square")
            .at_least(1e-6)
            .at_most(1e6),
        field("fp32_upcast", &C::fp32_upcast,
              "logits are divided in float32; false: in the dtype of each model's logits"),
        field("chunk_size", &C::chunk_size, "tokens of a chunk")
            .at_least(0)
            .without_effect("the loss is always computed by chunks here")};
  }
};

/// The keys of distillation at the top of a recipe that are no sections.
struct DistillationKeys {
  double kd_ratio = 0.5;
  bool offload_teacher_model = false;
  bool separate_meshes = false;

  static constexpr auto fields() {
    using K = DistillationKeys;
    return std::tuple{field("kd_ratio", &K::kd_ratio,
                            "the loss is (1 - kd_ratio) * cross-entropy + kd_ratio * divergence "
                            "from the teacher; 1: no cross-entropy, logged as 0")
                          .at_least(0)
                          .at_most(1),
                      field("offload_teacher_model", &K::offload_teacher_model,
                            "on a CUDA device the teacher lies in the host's memory between its "
                            "forwards"),
                      field("separate_meshes", &K::separate_meshes,
                            "the teacher has ranks of its own, behind the student's; "
                            "teacher_distributed spreads it, and both meshes state dp_size")};
  }
};

}  // namespace automodel::recipes
