#include "kernels/loss/distillation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/products/product.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

/// Smaller than the cross-entropy's: some six tensors [tokens, V] live at a time.
constexpr int64_t kDistilledTokens = 256;

/// What every chunk is computed with.
struct Settings {
  CrossEntropyOptions options;  ///< the student's
  TeacherHead teacher;
  DistillationOptions distillation;
  const VocabularyRows& rows;
};

/// The two sums of a chunk over this rank's rows, divided; float64, on the device.
struct ChunkLosses {
  at::Tensor ce;
  at::Tensor kd;
};

/// The dtype of a head's logits before they are widened.
at::ScalarType logits_dtype(const CrossEntropyOptions& options, const at::Tensor& weight) {
  return options.logits_dtype.value_or(weight.scalar_type());
}

/// log softmax(logits / temperature); `stored` is their dtype before they were widened.
at::Tensor log_distribution(const at::Tensor& logits, const Settings& with, at::ScalarType stored) {
  const DistillationOptions& options = with.distillation;
  if (options.temperature == 1.0) return with.rows.log_softmax(logits);
  const at::ScalarType wide = logits.scalar_type();
  const at::Tensor divided =
      (options.fp32_upcast ? logits : logits.to(stored)).mul(1.0 / options.temperature).to(wide);
  return with.rows.log_softmax(divided);
}

/// Where a chunk's labels lie among this rank's rows.
struct Targets {
  at::Tensor rows;     ///< [n, 1]; 0 for a label that is not here or does not count
  at::Tensor is_here;  ///< [n, 1]
};

Targets targets_of(const at::Tensor& labels, const at::Tensor& is_counted, int64_t num_rows,
                   int64_t first) {
  const at::Tensor rows = labels.unsqueeze(1) - first;
  const at::Tensor is_here = rows.ge(0).logical_and_(rows.lt(num_rows)).logical_and_(is_counted);
  return {rows.masked_fill(is_here.logical_not(), 0), is_here};
}

/// The losses of a chunk of n tokens. Overwrites both heads' products [n, V]: the student's become
/// the gradients of the loss, the teacher's are lost.
ChunkLosses chunk_losses(const at::Tensor& student, const at::Tensor& teacher,
                         const at::Tensor& labels, at::ScalarType stored, const Settings& with) {
  const CrossEntropyOptions& options = with.options;
  const double temperature = with.distillation.temperature;
  const double ratio = with.distillation.kd_ratio;
  const at::Tensor slope = make_logits(student, options);
  make_logits(teacher, with.teacher.options);
  const at::Tensor is_counted = labels.ne(options.ignore_index).unsqueeze(1);

  at::Tensor log_q = log_distribution(student, with, stored);
  at::Tensor log_p =
      log_distribution(teacher, with, logits_dtype(with.teacher.options, with.teacher.weight));
  const at::Tensor p = log_p.exp();
  // A token that the teacher rules out adds nothing, whatever the student says of it.
  const at::Tensor terms = log_p.sub_(log_q).mul_(p).masked_fill_(p.le(0), 0);
  const at::Tensor divergences = terms.sum(-1, true).mul_(temperature * temperature);
  ChunkLosses losses;
  losses.kd = divergences.mul_(is_counted).sum(at::kDouble) / options.divisor;
  losses.ce = at::zeros_like(losses.kd);
  at::Tensor gradient;
  if (ratio < 1) {
    const Targets targets = targets_of(labels, is_counted, student.size(1), with.rows.first());
    const at::Tensor log_s = temperature == 1.0 ? log_q.clone() : with.rows.log_softmax(student);
    const at::Tensor of_targets = log_s.gather(1, targets.rows);
    losses.ce = of_targets.neg().mul_(targets.is_here).sum(at::kDouble) / options.divisor;
    gradient = log_s.exp_();
    gradient.scatter_add_(1, targets.rows, -targets.is_here.to(gradient.scalar_type()))
        .mul_(1 - ratio);
  }
  // d kd / d logits = temperature * (q - p).
  const at::Tensor difference = log_q.exp_().sub_(p).mul_(ratio * temperature);
  gradient = gradient.defined() ? gradient.add_(difference) : difference;
  student.copy_(gradient.mul_(is_counted).mul_(1.0 / options.divisor));
  undo_logits(student, slope, options);
  return losses;
}

/// A head's products of some tokens, in float32 if they are narrower; memory of their own.
at::Tensor wide_products(const at::Tensor& rows, const at::Tensor& weight) {
  return product(rows, weight.t()).to(tensor::wide_dtype(weight.scalar_type()));
}

struct LinearDistillation : torch::autograd::Function<LinearDistillation> {
  static torch::autograd::tensor_list forward(torch::autograd::AutogradContext* context,
                                              const at::Tensor& hidden, const at::Tensor& weight,
                                              const at::Tensor& labels, const Settings* with,
                                              bool has_gradients) {
    const at::Tensor own_rows = with->rows.of(weight);
    at::Tensor hidden_grad, weight_grad;
    if (has_gradients) {
      hidden_grad = at::empty_like(hidden);
      if (weight.requires_grad()) weight_grad = at::zeros_like(weight);
    }
    const at::Tensor losses = at::zeros({2}, hidden.options().dtype(at::kDouble));
    at::Tensor ce = losses[0];
    at::Tensor kd = losses[1];
    for (int64_t begin = 0; begin < hidden.size(0); begin += kDistilledTokens) {
      const int64_t count = std::min(kDistilledTokens, hidden.size(0) - begin);
      const at::Tensor tokens = hidden.narrow(0, begin, count);
      const at::Tensor student = wide_products(tokens, own_rows);
      const at::Tensor teacher =
          wide_products(with->teacher.hidden.narrow(0, begin, count), with->teacher.weight)
              .to(student.scalar_type());
      const ChunkLosses chunk = chunk_losses(student, teacher, labels.narrow(0, begin, count),
                                             logits_dtype(with->options, weight), *with);
      ce.add_(chunk.ce);
      kd.add_(chunk.kd);
      if (!has_gradients) continue;
      const at::Tensor gradient = student.to(weight.scalar_type());
      product_into(gradient, own_rows, hidden_grad.narrow(0, begin, count));
      if (weight_grad.defined()) {
        product_into(gradient.t(), tokens, with->rows.of(weight_grad), {.adds = true});
      }
    }
    with->rows.sum(losses);
    if (has_gradients) {
      with->rows.sum_input_gradient(hidden_grad);
      context->save_for_backward({hidden_grad, weight_grad});
    }
    ce = ce.clone();
    kd = kd.clone();
    context->mark_non_differentiable({ce, kd});
    const double ratio = with->distillation.kd_ratio;
    const at::Tensor total = ce * (1 - ratio) + kd * ratio;
    return {total.to(tensor::wide_dtype(weight.scalar_type())), ce, kd};
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    return {scaled_gradient(saved[0], gradients[0]), scaled_gradient(saved[1], gradients[0]),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

DistillationLoss linear_distillation(const at::Tensor& hidden, const at::Tensor& weight,
                                     const at::Tensor& labels, const CrossEntropyOptions& options,
                                     const TeacherHead& teacher,
                                     const DistillationOptions& distillation,
                                     const VocabularyRows& rows) {
  AM_CHECK(teacher.hidden.size(0) == hidden.size(0), "the teacher has ", teacher.hidden.size(0),
           " tokens, the student ", hidden.size(0));
  AM_CHECK(teacher.weight.size(0) == weight.size(0), "the teacher knows ", teacher.weight.size(0),
           " tokens, the student ", weight.size(0));
  check_labels(labels, rows.vocab_size(weight), options.ignore_index);
  Settings with{options, teacher, distillation, rows};
  with.teacher.hidden = teacher.hidden.detach().contiguous();
  with.teacher.weight = rows.of(teacher.weight.detach());
  // Asked here: inside a Function's forward the grad mode is always off.
  const bool has_gradients =
      at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  const auto out = LinearDistillation::apply(hidden.contiguous(), weight, labels.contiguous(),
                                             &with, has_gradients);
  return {out[0], out[1], out[2]};
}

}  // namespace automodel::kernels
