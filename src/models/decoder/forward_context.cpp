#include "models/decoder/forward_context.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "core/text.h"
#include "tensor/random.h"

namespace automodel::models::decoder {

namespace {

tensor::RandomKey key_of(const ForwardContext& context, std::string_view what,
                         std::string_view site) {
  const DropoutContext& dropout = context.dropout;
  return {dropout.seed, cat(what, "/", dropout.step, "/", dropout.micro_batch, "/", site)};
}

/// Which elements of whole sequences [B, S, D] the positions are that x [B, s, D] holds.
std::vector<kernels::DropoutSpan> spans_of(const at::Tensor& x, const ForwardContext& context) {
  const int64_t row = x.size(2);
  const std::vector<tensor::PositionRun> runs =
      context.sequence.run_of_tokens(context.sequence_part, x.size(1));
  std::vector<kernels::DropoutSpan> spans;
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (const tensor::PositionRun& run : runs) {
      const auto first = static_cast<uint64_t>((b * context.sequence.length + run.first) * row);
      kernels::add_span(spans, {first, run.count * row});
    }
  }
  return spans;
}

}  // namespace

kernels::AttentionDropout attention_dropout(const ForwardContext& context, std::string_view site,
                                            double p, int64_t first_head, int64_t num_heads) {
  if (!context.is_training || p == 0) return {};
  return {{p, key_of(context, "dropout", site)}, first_head, num_heads, context.sequence.length};
}

at::Tensor dropout(const at::Tensor& x, const ForwardContext& context, std::string_view site,
                   double p) {
  if (!context.is_training || p == 0) return x;
  return kernels::dropout(x, {p, key_of(context, "dropout", site)}, spans_of(x, context));
}

at::Tensor with_noise(const at::Tensor& x, const ForwardContext& context, double alpha,
                      std::string_view site) {
  if (!context.is_training || alpha == 0) return x;
  const tensor::RandomKey key = key_of(context, "noise", site);
  std::vector<at::Tensor> parts;
  for (const kernels::DropoutSpan& span : spans_of(x, context)) {
    parts.push_back(tensor::random_uniforms(key, span.first, span.numel));
  }
  const at::Tensor units = at::cat(parts).view(x.sizes());
  const double size = alpha / std::sqrt(static_cast<double>(context.sequence.length * x.size(2)));
  return x + ((units * 2 - 1) * size).to(x.device(), x.scalar_type());
}

at::Tensor without_padding(const at::Tensor& x, const ForwardContext& context) {
  if (!context.padding_mask.defined()) return x;
  return x.masked_fill(context.padding_mask.unsqueeze(-1), 0);
}

}  // namespace automodel::models::decoder
