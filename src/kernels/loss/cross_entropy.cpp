#include "kernels/loss/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "kernels/base/bound_gradient.h"
#include "kernels/base/fused.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/products/product.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

/// chunk_loss() by the fused loop; rows run on all threads, their losses are summed in order.
double fused_chunk_loss(at::Tensor& logits, const at::Tensor& labels,
                        const CrossEntropyOptions& options) {
  const int64_t rows = logits.size(0);
  const int64_t width = logits.size(1);
  std::vector<double> losses(static_cast<size_t>(rows), 0.0);
  const int64_t* targets = labels.data_ptr<int64_t>();
  const auto row_loss = [&](float* z, int64_t label) {
    return cpu::loops().cross_entropy_row(z, label, width, static_cast<float>(options.logit_scale),
                                          static_cast<float>(options.softcap),
                                          static_cast<float>(1.0 / options.divisor));
  };
  by_storage(logits, [&](auto storage) {
    using T = decltype(storage);
    T* data = numbers_of<T>(logits);
    at::parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
      std::vector<float> wide(std::is_same_v<T, float> ? 0 : static_cast<size_t>(width));
      for (int64_t row = begin; row < end; ++row) {
        T* z = data + row * width;
        double& loss = losses[static_cast<size_t>(row)];
        if (targets[row] == options.ignore_index) {
          std::fill(z, z + width, T{});
        } else if constexpr (std::is_same_v<T, float>) {
          loss = row_loss(z, targets[row]);
        } else {
          cpu::loops().widen(z, wide.data(), width);
          loss = row_loss(wide.data(), targets[row]);
          cpu::loops().round(wide.data(), z, width);
        }
      }
    });
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0) / options.divisor;
}

/// chunk_loss() by a device's kernel.
at::Tensor device_chunk_loss(const device::DeviceKernels& kernels, const at::Tensor& logits,
                             const at::Tensor& labels, const CrossEntropyOptions& options) {
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  by_storage(logits, [&](auto storage) {
    using T = decltype(storage);
    kernels.of<T>().cross_entropy(numbers_of<T>(logits), labels.const_data_ptr<int64_t>(),
                                  losses.data_ptr<float>(), logits.size(0), logits.size(1),
                                  {.ignore_index = options.ignore_index,
                                   .scale = static_cast<float>(options.logit_scale),
                                   .cap = static_cast<float>(options.softcap),
                                   .factor = static_cast<float>(1.0 / options.divisor)});
  });
  return losses.sum(at::kDouble) / options.divisor;
}

/// Rounds some rows at a time, so that the temporary copies are small.
void round_in_place(const at::Tensor& logits, const CrossEntropyOptions& options) {
  if (!options.logits_dtype) return;
  for (const at::Tensor& rows : logits.split(64)) rows.copy_(options.rounded(rows));
}

/// Whether the fused loop takes these logits, which may be bfloat16 if a product gives that dtype.
bool has_loop(const at::Tensor& logits, const CrossEntropyOptions& options) {
  return !options.logits_dtype &&
         (is_fusable({logits}) || device::kernels_for({logits}) != nullptr);
}

/// The loss (float64, on the device) of one chunk of logits (float32, float64, or as has_loop()
/// says), which are replaced by their gradients.
at::Tensor chunk_loss(at::Tensor& logits, const at::Tensor& labels,
                      const CrossEntropyOptions& options) {
  if (has_loop(logits, options)) {
    if (const auto* const kernels = device::kernels_for({logits})) {
      return device_chunk_loss(*kernels, logits, labels, options);
    }
    return at::scalar_tensor(fused_chunk_loss(logits, labels, options), at::kDouble);
  }
  // In place: nothing else in a model is as large as logits.
  const at::Tensor slope = make_logits(logits, options);
  const at::Tensor is_counted = labels.ne(options.ignore_index);
  const at::Tensor targets = labels.masked_fill(is_counted.logical_not(), 0).unsqueeze(1);
  logits.sub_(logits.amax(-1, true));
  const at::Tensor of_targets = logits.gather(1, targets);
  const at::Tensor sums = logits.exp_().sum(-1, true);
  const at::Tensor losses = (sums.log() - of_targets).squeeze(1);
  const at::Tensor loss = (losses * is_counted).sum(at::kDouble) / options.divisor;
  logits.div_(sums);
  logits.scatter_add_(1, targets, at::full_like(of_targets, -1.0));
  logits.mul_(is_counted.unsqueeze(1)).mul_(1.0 / options.divisor);
  undo_logits(logits, slope, options);
  return loss;
}

/// Known without waiting for a device.
bool is_one(const at::Tensor& scale) {
  return scale.is_cpu() && scale.item<double>() == 1.0;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels,
                            const CrossEntropyOptions* options, bool has_gradients) {
    at::Tensor hidden_grad, weight_grad;
    if (has_gradients) {
      hidden_grad = at::empty_like(hidden);
      if (weight.requires_grad()) weight_grad = at::zeros_like(weight);
    }
    at::Tensor loss = at::zeros({}, hidden.options().dtype(at::kDouble));
    const bool is_by_kernel = !weight.is_cpu() && !options->logits_dtype &&
                              device::kernels_for({hidden, weight}) != nullptr;
    const int64_t chunk = most_logit_rows(weight.size(0), is_by_kernel);
    for (int64_t begin = 0; begin < hidden.size(0); begin += chunk) {
      const int64_t count = std::min(chunk, hidden.size(0) - begin);
      const at::Tensor rows = hidden.narrow(0, begin, count);
      at::Tensor logits = product(rows, weight.t());
      if (!has_loop(logits, *options)) logits = logits.to(tensor::wide_dtype(weight.scalar_type()));
      loss.add_(chunk_loss(logits, labels.narrow(0, begin, count), *options));
      if (!has_gradients) continue;
      const at::Tensor gradient = logits.to(weight.scalar_type());
      product_into(gradient, weight, hidden_grad.narrow(0, begin, count));
      if (weight_grad.defined()) {
        product_into(gradient.t(), rows, weight_grad, {.adds = true});
      }
    }
    if (has_gradients) context->save_for_backward({hidden_grad, weight_grad});
    // Not a saved variable: only its .grad is used, never its values.
    context->saved_data["weight"] = weight;
    return loss.to(tensor::wide_dtype(weight.scalar_type()));
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    return {scaled_gradient(saved[0], gradients[0]), of_weight(weight, saved[1], gradients[0]),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }

  /// The weight's gradient times `scale`, added where its owner has memory for it.
  static at::Tensor of_weight(const at::Tensor& weight, const at::Tensor& gradient,
                              const at::Tensor& scale) {
    if (!gradient.defined()) return gradient;
    const at::Tensor bound = bound_gradient(weight);
    if (!bound.defined()) return scaled_gradient(gradient, scale);
    if (is_one(scale)) {
      bound.add_(gradient);
    } else {
      bound.addcmul_(gradient, scale.to(gradient.device(), gradient.scalar_type()));
    }
    return added_gradient(weight);
  }
};

}  // namespace

int64_t most_logit_rows(int64_t vocab_size, bool is_by_device_kernel) {
  constexpr int64_t kLeast = 512, kDeviceLogits = int64_t{1} << 28;
  if (!is_by_device_kernel) return kLeast;
  return std::max(kLeast, kDeviceLogits / std::max<int64_t>(vocab_size, 1) / kLeast * kLeast);
}

at::Tensor CrossEntropyOptions::rounded(const at::Tensor& numbers) const {
  return logits_dtype ? numbers.to(*logits_dtype).to(numbers.scalar_type()) : numbers;
}

at::Tensor make_logits(const at::Tensor& products, const CrossEntropyOptions& options) {
  if (options.logit_scale != 1.0) products.mul_(options.logit_scale);
  at::Tensor slope;
  if (options.softcap > 0) {
    products.div_(options.softcap).tanh_();
    slope = (products * products).neg_().add_(1.0);
    products.mul_(options.softcap);
  }
  round_in_place(products, options);
  return slope;
}

void undo_logits(const at::Tensor& gradients, const at::Tensor& slope,
                 const CrossEntropyOptions& options) {
  round_in_place(gradients, options);
  if (options.logit_scale != 1.0) gradients.mul_(options.logit_scale);
  if (slope.defined()) gradients.mul_(slope);
}

at::Tensor scaled_gradient(const at::Tensor& gradient, const at::Tensor& scale) {
  if (!gradient.defined()) return gradient;
  if (is_one(scale)) return gradient;
  return gradient * scale.to(gradient.scalar_type());
}

void check_labels(const at::Tensor& labels, int64_t vocab_size, int64_t ignore_index) {
  if (!labels.is_cpu()) return;
  const at::Tensor on_cpu = labels.contiguous();
  const int64_t* data = on_cpu.data_ptr<int64_t>();
  for (int64_t i = 0; i < on_cpu.numel(); ++i) {
    if (data[i] == ignore_index || (data[i] >= 0 && data[i] < vocab_size)) continue;
    throw InputError(
        cat("label ", data[i], " is outside the vocabulary of ", vocab_size, " tokens"));
  }
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& labels, const CrossEntropyOptions& options) {
  check_labels(labels, weight.size(0), options.ignore_index);
  CrossEntropyOptions own = options;
  const bool are_products = options.softcap == 0 && options.logit_scale == 1.0;
  if (are_products && options.logits_dtype == weight.scalar_type()) own.logits_dtype.reset();
  // Read here because grad mode is always off in a Function's forward.
  const bool has_gradients =
      at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return LinearCrossEntropy::apply(hidden.contiguous(), weight, labels.contiguous(), &own,
                                   has_gradients);
}

}  // namespace automodel::kernels
