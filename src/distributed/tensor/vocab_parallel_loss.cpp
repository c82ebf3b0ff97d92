#include "distributed/tensor/vocab_parallel_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/products/product.h"

namespace automodel::distributed {

namespace {

constexpr int64_t kVocabChunkTokens = 512;

using kernels::CrossEntropyOptions;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The ranks and rows over which a loss is computed.
struct VocabPlace {
  const comm::ProcessGroup* group;
  VocabRange range;
  bool sums_hidden_gradient;
};

/// Loss (float64, on the device) of `logits` [n, rows], float32, of this rank's rows; changed into
/// their gradients.
at::Tensor chunk_loss_of(const at::Tensor& logits, const at::Tensor& labels,
                         const CrossEntropyOptions& options, const VocabPlace& place) {
  const at::Tensor slope = kernels::make_logits(logits, options);
  const at::Tensor is_counted = labels.ne(options.ignore_index);
  const at::Tensor is_here = labels.ge(place.range.first)
                                 .logical_and(labels.lt(place.range.first + place.range.count))
                                 .logical_and(is_counted);
  const at::Tensor targets =
      (labels - place.range.first).masked_fill(is_here.logical_not(), 0).unsqueeze(1);
  const at::Tensor own_max = logits.amax(1);
  const at::Tensor own_target = logits.gather(1, targets).squeeze(1) * is_here;
  logits.sub_(own_max.unsqueeze(1)).exp_();
  const at::Tensor own = at::stack({own_max, logits.sum(1), own_target});
  at::Tensor all = at::empty({place.group->size(), 3, labels.size(0)}, own.options());
  place.group->all_gather(all, own);

  const at::Tensor maxima = all.select(1, 0);  // [T, n]
  const at::Tensor max = maxima.amax(0);
  const at::Tensor sum = (all.select(1, 1) * at::exp(maxima - max)).sum(0);
  const at::Tensor target = all.select(1, 2).sum(0);
  const at::Tensor losses = (max - target + at::log(sum)) * is_counted;
  logits.mul_((at::exp(own_max - max) / sum).unsqueeze(1));
  logits.scatter_add_(1, targets, -is_here.to(at::kFloat).unsqueeze(1));
  logits.mul_(is_counted.unsqueeze(1)).mul_(1.0 / options.divisor);
  kernels::undo_logits(logits, slope, options);
  return losses.sum(at::kDouble) / options.divisor;
}

struct VocabParallelCrossEntropy : torch::autograd::Function<VocabParallelCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels,
                            const CrossEntropyOptions* options, const VocabPlace* place,
                            bool has_gradients) {
    const at::Tensor rows = weight.narrow(0, 0, place->range.count);
    at::Tensor hidden_grad, weight_grad, rows_grad;
    if (has_gradients) {
      hidden_grad = at::empty_like(hidden);
      if (weight.requires_grad()) {
        weight_grad = at::zeros_like(weight);
        rows_grad = weight_grad.narrow(0, 0, place->range.count);
      }
    }
    at::Tensor loss = at::zeros({}, hidden.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < hidden.size(0); begin += kVocabChunkTokens) {
      const int64_t count = std::min(kVocabChunkTokens, hidden.size(0) - begin);
      const at::Tensor tokens = hidden.narrow(0, begin, count);
      const at::Tensor logits = kernels::product(tokens, rows.t()).to(at::kFloat);
      loss.add_(chunk_loss_of(logits, labels.narrow(0, begin, count), *options, *place));
      if (!has_gradients) continue;
      const at::Tensor gradient = logits.to(weight.scalar_type());
      kernels::product_into(gradient, rows, hidden_grad.narrow(0, begin, count));
      if (rows_grad.defined()) {
        kernels::product_into(gradient.t(), tokens, rows_grad, {.adds = true});
      }
    }
    if (has_gradients) {
      if (place->sums_hidden_gradient) {
        place->group->all_reduce(hidden_grad, comm::ReduceOp::kSum);
      }
      context->save_for_backward({hidden_grad, weight_grad});
    }
    return loss.to(at::kFloat);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& scale = gradients[0];
    const auto scaled = [&](const at::Tensor& gradient) {
      return gradient.defined() ? gradient * scale.to(gradient.scalar_type()) : gradient;
    };
    return {scaled(saved[0]), scaled(saved[1]), at::Tensor(),
            at::Tensor(),     at::Tensor(),     at::Tensor()};
  }
};

class SplitVocabulary final : public kernels::VocabularyRows {
 public:
  SplitVocabulary(comm::ProcessGroup group, int64_t vocab_size, bool sums_hidden_gradient)
      : group_(std::move(group)),
        vocab_size_(vocab_size),
        range_(VocabRange::of(vocab_size, group_.rank(), group_.size())),
        sums_hidden_gradient_(sums_hidden_gradient) {}

  int64_t first() const override { return range_.first; }
  int64_t vocab_size(const at::Tensor&) const override { return vocab_size_; }

  at::Tensor of(const at::Tensor& weight) const override {
    AM_CHECK(weight.size(0) == range_.stored, "the head's weight has ", weight.size(0),
             " rows, not ", range_.stored);
    return weight.narrow(0, 0, range_.count);
  }

  at::Tensor part_of(const at::Tensor& whole) const override {
    const at::Tensor part = at::zeros({range_.stored, whole.size(1)}, whole.options());
    of(part).copy_(whole.narrow(0, range_.first, range_.count));
    return part;
  }

  at::Tensor log_softmax(const at::Tensor& logits) const override {
    const at::Tensor own = at::logsumexp(logits, {1});
    const at::Tensor all = at::empty({group_.size(), own.size(0)}, own.options());
    group_.all_gather(all, own);
    return logits - at::logsumexp(all, {0}).unsqueeze(1);
  }

  void sum(const at::Tensor& numbers) const override {
    group_.all_reduce(numbers, comm::ReduceOp::kSum);
  }

  void sum_input_gradient(const at::Tensor& gradient) const override {
    if (sums_hidden_gradient_) group_.all_reduce(gradient, comm::ReduceOp::kSum);
  }

 private:
  comm::ProcessGroup group_;
  int64_t vocab_size_;
  VocabRange range_;
  bool sums_hidden_gradient_;
};

class VocabParallelLossHead final : public nn::LossHead {
 public:
  VocabParallelLossHead(comm::ProcessGroup group, int64_t vocab_size, bool sums_hidden_gradient)
      : group_(std::move(group)),
        vocab_size_(vocab_size),
        place_{&group_, VocabRange::of(vocab_size, group_.rank(), group_.size()),
               sums_hidden_gradient} {}

  VocabParallelLossHead(const VocabParallelLossHead&) = delete;
  VocabParallelLossHead& operator=(const VocabParallelLossHead&) = delete;

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const CrossEntropyOptions& options) override {
    AM_CHECK(weight.size(0) == place_.range.stored, "the head's weight has ", weight.size(0),
             " rows, not ", place_.range.stored);
    kernels::check_labels(labels, vocab_size_, options.ignore_index);
    // Asked here: inside a Function's forward the grad mode is always off.
    const bool has_gradients =
        at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
    return VocabParallelCrossEntropy::apply(hidden.contiguous(), weight, labels.contiguous(),
                                            &options, &place_, has_gradients);
  }

  std::shared_ptr<const kernels::VocabularyRows> rows() const override {
    return std::make_shared<SplitVocabulary>(group_, vocab_size_, place_.sums_hidden_gradient);
  }

 private:
  comm::ProcessGroup group_;
  int64_t vocab_size_;
  VocabPlace place_;
};

}  // namespace

std::shared_ptr<nn::LossHead> make_vocab_parallel_loss_head(comm::ProcessGroup group,
                                                            int64_t vocab_size,
                                                            bool sums_hidden_gradient) {
  return std::make_shared<VocabParallelLossHead>(std::move(group), vocab_size,
                                                 sums_hidden_gradient);
}

}  // namespace automodel::distributed
