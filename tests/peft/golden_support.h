#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "distributed/engine/data_parallel.h"
#include "models/parity.h"
#include "optim/optimizer.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "tensor/named_tensors.h"

namespace automodel::peft {

/// The reference.safetensors of a golden's folder.
inline tensor::NamedTensors read_reference(const std::string& folder) {
  const checkpoint::SafetensorsFile file(path_join(folder, "reference.safetensors"));
  tensor::NamedTensors tensors;
  for (const auto& entry : file.tensors()) tensors.emplace_back(entry.name, file.read(entry.name));
  return tensors;
}

/// Sums of float32 products of a tiny model: the bounds of tests/models/golden_test.cpp.
inline void expect_parity(models::CausalLM& model, const tensor::NamedTensors& reference) {
  const auto report = models::run_parity(model, reference);
  EXPECT_LE(report.logits->worst_absolute, 2e-5) << report.logits->absolute_culprit;
  EXPECT_LE(report.loss->worst_relative, 1e-5);
  EXPECT_LE(report.gradients->worst_relative, 2e-5) << report.gradients->relative_culprit;
  EXPECT_EQ(report.gradients->num_compared, static_cast<int64_t>(folder_keys(model).size()));
}

/// Three steps of AdamW have the losses of the reference.
inline void expect_losses(models::CausalLM& model, distributed::DataParallel& engine,
                          const tensor::NamedTensors& reference) {
  const at::Tensor losses = tensor::find_tensor(reference, "losses")->to(at::kDouble);
  optim::AdamConfig config;
  config.is_decoupled = true;
  config.weight_decay = 0.01;
  const auto optimizer = optim::make_adam(config, engine.trained(), engine.gradients());
  const models::ParityPass pass = models::parity_pass(model, reference);
  for (int64_t step = 0; step < losses.numel(); ++step) {
    engine.zero_gradients();
    const at::Tensor loss = pass.loss();
    EXPECT_NEAR(loss.item<double>(), losses[step].item<double>(), 1e-5 * 5) << "step " << step;
    loss.backward();
    optimizer->step({config.lr, config.weight_decay, 1.0});
  }
}

}  // namespace automodel::peft
