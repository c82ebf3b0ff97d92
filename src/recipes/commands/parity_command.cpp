#include "recipes/commands/parity_command.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "kernels/base/fused.h"
#include "models/parity.h"
#include "optim/optimizer.h"
#include "recipes/commands/loaded_model.h"
#include "recipes/commands/named_model.h"

namespace automodel::recipes {

namespace {

tensor::NamedTensors read_reference(const std::string& path) {
  const checkpoint::SafetensorsFile file(path);
  tensor::NamedTensors tensors;
  for (const auto& entry : file.tensors()) {
    tensors.emplace_back(entry.name, file.read(entry.name));
  }
  return tensors;
}

/// Largest relative difference to the reference's `losses`: AdamW with lr 1e-3, eps 1e-8, betas 0.9
/// and 0.999, weight decay 0.01, no clipping, every step on the same batch.
double worst_training_loss(LoadedModel& loaded, const tensor::NamedTensors& reference,
                           const at::Tensor& losses) {
  optim::AdamConfig config;
  config.is_decoupled = true;
  config.weight_decay = 0.01;
  const auto optimizer =
      optim::make_adam(config, loaded.engine->trained(), loaded.engine->gradients());
  const models::ParityPass pass = models::parity_pass(*loaded.model, reference);
  loaded.model->eval();
  double worst = 0;
  for (int64_t step = 0; step < losses.numel(); ++step) {
    loaded.engine->zero_gradients();
    const at::Tensor loss = pass.loss();
    loss.backward();
    const double expected = losses[step].item<double>();
    worst = std::max(worst, std::abs(loss.item<double>() - expected) / std::abs(expected));
    optimizer->step({config.lr, config.weight_decay, 1.0});
  }
  return worst;
}

/// Prints a line; returns whether the difference is within the tolerance.
bool print_kind(const char* kind, const models::ParityDifference& difference, double value,
                double tolerance) {
  const bool is_good = value <= tolerance;
  std::cout << kind << ": worst absolute " << format_scientific(difference.worst_absolute, 3)
            << " (" << difference.absolute_culprit << "), worst relative "
            << format_scientific(difference.worst_relative, 3) << " ("
            << difference.relative_culprit << "), " << difference.num_compared << " compared; "
            << (is_good ? "ok" : "TOO LARGE") << " (tolerance " << tolerance << ")\n";
  return is_good;
}

}  // namespace

int run_parity_command(const std::string& model_folder, const std::string& reference_path,
                       const ParityOptions& options) {
  const kernels::PlainPathScope path(options.takes_plain_path);
  // A device's backward is on threads of autograd's own, which the scope does not reach.
  if (options.takes_plain_path) ::setenv("AUTOMODEL_DEVICE_KERNELS", "plain", 1);
  LoadedModel loaded =
      load_model(local_model(model_folder), {.device = command_device(options.is_on_device)});
  const tensor::NamedTensors reference = read_reference(reference_path);
  const models::ParityReport report = models::run_parity(*loaded.model, reference);
  bool is_good = true;
  if (report.logits) {
    is_good &= print_kind("logits", *report.logits, report.logits->worst_absolute, options.logits);
  }
  if (report.loss) {
    is_good &= print_kind("loss", *report.loss, report.loss->worst_relative, options.loss);
  }
  if (report.gradients) {
    is_good &=
        print_kind("gradients", *report.gradients, report.gradients->worst_relative, options.grad);
  }
  if (const at::Tensor* losses = tensor::find_tensor(reference, "losses")) {
    const double worst = worst_training_loss(loaded, reference, losses->to(at::kDouble));
    const bool is_close = worst <= options.loss;
    is_good &= is_close;
    std::cout << "training: " << losses->numel() << " AdamW steps, worst relative loss "
              << format_scientific(worst, 3) << "; " << (is_close ? "ok" : "TOO LARGE")
              << " (tolerance " << options.loss << ")\n";
  }
  return is_good ? 0 : 1;
}

}  // namespace automodel::recipes
