#include "models/decoder/forward_context.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/text.h"
#include "tensor/random.h"

namespace automodel::models::decoder {

namespace {

tensor::RandomKey key_of(const ForwardContext& context, std::string_view what,
                         std::string_view site) {
  const DropoutContext& dropout = context.dropout;
  return {dropout.seed, cat(what, "/", dropout.step, "/", dropout.micro_batch, "/", site)};
}

/// [count, numel]: what `draw` makes of the first element of each run and their number.
template <typename Draw>
at::Tensor drawn_runs(const MaskRuns& runs, const Draw& draw) {
  if (runs.first == 0 && runs.numel == runs.stride) {
    return draw(0, runs.count * runs.numel).view({runs.count, runs.numel});
  }
  std::vector<at::Tensor> rows;
  for (int64_t run = 0; run < runs.count; ++run) {
    rows.push_back(draw(static_cast<uint64_t>(runs.first + run * runs.stride), runs.numel));
  }
  return at::stack(rows);
}

/// [B, S, D] on the CPU: what `make` makes of the positions that x holds, in whole sequences.
template <typename Make>
at::Tensor of_positions(const at::Tensor& x, const ForwardContext& context, const Make& make) {
  const int64_t row = x.size(2);
  std::vector<at::Tensor> parts;
  for (const tensor::PositionRun& run :
       context.sequence.run_of_tokens(context.sequence_part, x.size(1))) {
    parts.push_back(
        make(MaskRuns{x.size(0), run.first * row, run.count * row, context.sequence.length * row}));
  }
  return (parts.size() == 1 ? parts[0] : at::cat(parts, 1)).view(x.sizes());
}

}  // namespace

at::Tensor dropout_kept(const ForwardContext& context, std::string_view site, const MaskRuns& runs,
                        double p) {
  const tensor::RandomKey key = key_of(context, "dropout", site);
  return drawn_runs(runs, [&](uint64_t first, int64_t numel) {
    return tensor::dropout_kept(key, first, numel, p);
  });
}

at::Tensor kept_probabilities(const ForwardContext& context, std::string_view site,
                              const HeadShare& heads, const at::Tensor& x, double p) {
  const int64_t batch = x.size(0);
  const int64_t length = x.size(1);
  const int64_t head = length * length;
  const MaskRuns runs{batch, heads.first * head, heads.count * head, heads.all * head};
  return dropout_kept(context, site, runs, p)
      .view({batch, heads.count, length, length})
      .to(x.device());
}

at::Tensor dropout(const at::Tensor& x, const ForwardContext& context, std::string_view site,
                   double p) {
  if (!context.is_training || p == 0) return x;
  const at::Tensor mask = of_positions(
      x, context, [&](const MaskRuns& runs) { return dropout_kept(context, site, runs, p); });
  return (x * mask.to(x.device())) * (1.0 / (1.0 - p));
}

at::Tensor with_noise(const at::Tensor& x, const ForwardContext& context, double alpha) {
  if (!context.is_training || alpha == 0) return x;
  const tensor::RandomKey key = key_of(context, "noise", "embedding");
  const at::Tensor units = of_positions(x, context, [&](const MaskRuns& runs) {
    return drawn_runs(runs, [&](uint64_t first, int64_t numel) {
      return tensor::random_uniforms(key, first, numel);
    });
  });
  const double size = alpha / std::sqrt(static_cast<double>(context.sequence.length * x.size(2)));
  return x + ((units * 2 - 1) * size).to(x.device(), x.scalar_type());
}

at::Tensor without_padding(const at::Tensor& x, const ForwardContext& context) {
  if (!context.padding_mask.defined()) return x;
  return x.masked_fill(context.padding_mask.unsqueeze(-1), 0);
}

}  // namespace automodel::models::decoder
