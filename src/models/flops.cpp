#include "models/flops.h"

#include <array>
#include <utility>

#include "core/text.h"

namespace automodel::models {

namespace {

// Legend: B batch, S sequence, L layers, h hidden size, f MLP size, V vocabulary, q key-value heads
// by query heads, r width of all heads by hidden size.

/// Attention already halved for causality, MLP taken as 4 h.
double gpt_flops(const ModelDims& dims, double B, double S) {
  const auto L = static_cast<double>(dims.num_layers);
  const auto h = static_cast<double>(dims.hidden_size);
  const auto V = static_cast<double>(dims.vocab_size);
  return (24 * B * S * h * h + 2 * B * S * S * h) * 3 * L + 6 * B * S * h * V;
}

double gated_decoder_flops(const ModelDims& dims, double B, double S, bool heeds_head_dim) {
  const auto L = static_cast<double>(dims.num_layers);
  const auto h = static_cast<double>(dims.hidden_size);
  const auto f = static_cast<double>(dims.intermediate_size);
  const auto V = static_cast<double>(dims.vocab_size);
  const double q = static_cast<double>(dims.num_kv_heads) / static_cast<double>(dims.num_heads);
  const double r = heeds_head_dim ? static_cast<double>(dims.num_heads * dims.head_dim) / h : 1.0;
  const double attention = 6 * B * L * S * h * h * r * ((2 * q + 1) + S / h + 1);
  return attention + 18 * B * L * S * h * f + 6 * B * S * h * V;
}

}  // namespace

double training_flops(std::string_view architecture, const ModelDims& dims, int64_t batch,
                      int64_t sequence) {
  const auto B = static_cast<double>(batch);
  const auto S = static_cast<double>(sequence);
  if (architecture == "GPT2LMHeadModel") return gpt_flops(dims, B, S);
  // Upstream's Llama and Qwen 2 formula takes hidden_size as the width of all heads.
  const bool is_llama = architecture == "LlamaForCausalLM" || architecture == "Qwen2ForCausalLM";
  return gated_decoder_flops(dims, B, S, !is_llama);
}

std::optional<double> peak_tflops(std::string_view device_name) {
  // Longer names stand before those they contain.
  using Entry = std::pair<std::string_view, double>;
  static constexpr std::array<Entry, 17> kPeaks = {{{"gb200", 2500},
                                                    {"b200", 2250},
                                                    {"h100", 989},
                                                    {"h200", 989},
                                                    {"h800", 989},
                                                    {"a100", 312},
                                                    {"a800", 312},
                                                    {"l40s", 362.05},
                                                    {"l40", 181.05},
                                                    {"a40", 149.7},
                                                    {"l20", 119.5},
                                                    {"h20", 148},
                                                    {"mi300x", 1336},
                                                    {"rtx pro 6000 blackwell max-q", 438.9},
                                                    {"rtx pro 6000", 503.8},
                                                    {"rtx 3070 ti", 21.75},
                                                    {"cpu", 0.448}}};
  const std::string name = to_lower(device_name);
  for (const auto& [part, peak] : kPeaks) {
    if (name.find(part) != std::string::npos) return peak;
  }
  return std::nullopt;
}

}  // namespace automodel::models
