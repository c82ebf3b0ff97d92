#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"

namespace automodel::recipes {

/// Upstream's loss classes and their options. Each is the cross-entropy summed over labelled tokens
/// and divided by the step's number of label tokens; how the logits are computed never changes the
/// value, so all of them run through nn::LossHead, which never holds the whole logits.
struct MaskedCrossEntropyConfig {
  bool fp32_upcast = true;
  int64_t ignore_index = -100;
  std::string reduction = "sum";

  static constexpr auto fields() {
    using C = MaskedCrossEntropyConfig;
    return std::tuple{field("fp32_upcast", &C::fp32_upcast, "softmax in float32")
                          .without_effect("the softmax always is in float32 here"),
                      field("ignore_index", &C::ignore_index, "label that does not count"),
                      field("reduction", &C::reduction, "sum: the only one for training")};
  }
};

struct FusedLinearCrossEntropyConfig {
  int64_t ignore_index = -100;
  double logit_softcapping = 0;
  std::string reduction = "sum";
  std::string impl = "cce";

  static constexpr auto fields() {
    using C = FusedLinearCrossEntropyConfig;
    return std::tuple{field("ignore_index", &C::ignore_index, "label that does not count"),
                      field("logit_softcapping", &C::logit_softcapping,
                            "0: the model's own cap, the only one here")
                          .at_least(0),
                      field("reduction", &C::reduction, "sum: the only one for training"),
                      field("impl", &C::impl, "cce or torch_compile")
                          .without_effect("there is one fused implementation here")};
  }
};

struct ChunkedCrossEntropyConfig {
  int64_t chunk_len = 512;
  bool compile = true;
  int64_t ignore_index = -100;
  std::string reduction = "sum";

  static constexpr auto fields() {
    using C = ChunkedCrossEntropyConfig;
    return std::tuple{field("chunk_len", &C::chunk_len, "tokens of a chunk")
                          .above(0)
                          .without_effect("the chunk size follows the cache here"),
                      field("compile", &C::compile, "compile the chunk")
                          .without_effect("kernels are compiled ahead of time here"),
                      field("ignore_index", &C::ignore_index, "label that does not count"),
                      field("reduction", &C::reduction, "sum: the only one for training")};
  }
};

struct TEParallelCrossEntropyConfig {
  int64_t ignore_index = -100;
  std::string reduction = "sum";
  double label_smoothing = 0;

  static constexpr auto fields() {
    using C = TEParallelCrossEntropyConfig;
    return std::tuple{field("ignore_index", &C::ignore_index, "label that does not count"),
                      field("reduction", &C::reduction, "sum: the only one for training"),
                      field("label_smoothing", &C::label_smoothing, "must be 0").at_least(0)};
  }
};

/// What training needs to know of the chosen loss, whichever class it is.
struct LossSettings {
  std::string name = "MaskedCrossEntropy";
  int64_t ignore_index = -100;
};

/// A mistake in options that every class has, as {key, text}.
struct LossFinding {
  std::string key;
  std::string text;
};
std::vector<LossFinding> check_reduction(const std::string& reduction);

}  // namespace automodel::recipes
