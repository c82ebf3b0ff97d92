// Against transformers, PEFT and bitsandbytes: tests/peft/qlora, which
// scripts/make_four_bit_goldens.py makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "comm/process_group.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/engine/data_parallel.h"
#include "kernels/fused.h"
#include "models/catalog.h"
#include "models/parity.h"
#include "optim/optimizer.h"
#include "peft/adapter_folder.h"
#include "peft/apply_lora.h"
#include "peft/quantize_base.h"
#include "support/temporary_directory.h"
#include "tensor/named_tensors.h"

namespace automodel::peft {
namespace {

using kernels::FourBitType;

std::string golden_folder(const std::string& name) {
  return test::source_file(cat("tests/peft/qlora/", name));
}

tensor::NamedTensors reference_of(const std::string& name) {
  const checkpoint::SafetensorsFile file(path_join(golden_folder(name), "reference.safetensors"));
  tensor::NamedTensors tensors;
  for (const auto& entry : file.tensors()) tensors.emplace_back(entry.name, file.read(entry.name));
  return tensors;
}

/// A model with 4-bit weights and the adapter of a golden.
struct QuantizedModel {
  explicit QuantizedModel(const std::string& name) {
    const bool is_nf4 = name == "llama_nf4";
    const BaseQuantization quantization{
        {is_nf4 ? FourBitType::kNf4 : FourBitType::kFp4, is_nf4, at::kFloat}, at::kFloat};
    config.target_modules = {"*q_proj", "*v_proj", "*o_proj", "*gate_proj", "*down_proj"};
    config.dim = 4;
    config.alpha = 12;
    const auto folder = checkpoint::HfFolder::open(path_join(golden_folder(name), "model"));
    model = models::build_causal_lm(folder.config(), at::kFloat);
    num_elements_before = num_elements(*model);
    apply_lora(*model, config, at::kFloat);
    quantize_base(*model, quantization);
    engine = std::make_unique<distributed::DataParallel>(
        *model, model->parallel_plan(), model->key_map(), comm::ProcessGroup::solo(),
        distributed::DataParallelOptions{});
    checkpoint::load_weights(folder, base_keys(*model), engine->parameters(), {});
    fill_quantized(*model, engine->parameters(),
                   [&](const QuantizedMatrix& matrix) { return folder.file(0).read(matrix.name); });
    load_adapter(path_join(golden_folder(name), "adapter"), config, *model, engine->parameters());
    model->eval();
  }

  PeftConfig config;
  int64_t num_elements_before = 0;
  std::shared_ptr<models::CausalLM> model;
  std::unique_ptr<distributed::DataParallel> engine;
};

class QloraGoldenTest : public testing::TestWithParam<std::string> {};

// Sums of float32 products of a tiny model: the bounds of tests/models/golden_test.cpp.
TEST_P(QloraGoldenTest, LogitsLossAndGradientsAreThoseOfBitsandbytes) {
  for (const bool is_plain : {false, true}) {
    const kernels::PlainPathScope path(is_plain);
    QuantizedModel quantized(GetParam());
    const auto report = models::run_parity(*quantized.model, reference_of(GetParam()));
    EXPECT_LE(report.logits->worst_absolute, 2e-5) << report.logits->absolute_culprit;
    EXPECT_LE(report.loss->worst_relative, 1e-5);
    EXPECT_LE(report.gradients->worst_relative, 2e-5) << report.gradients->relative_culprit;
    EXPECT_EQ(report.gradients->num_compared,
              static_cast<int64_t>(adapter_keys(*quantized.model).size()));
  }
}

TEST_P(QloraGoldenTest, ThreeStepsOfAdamWHaveTheirLosses) {
  QuantizedModel quantized(GetParam());
  const tensor::NamedTensors reference = reference_of(GetParam());
  const at::Tensor losses = tensor::find_tensor(reference, "losses")->to(at::kDouble);
  optim::AdamConfig config;
  config.is_decoupled = true;
  config.weight_decay = 0.01;
  const auto optimizer =
      optim::make_adam(config, quantized.engine->trained(), quantized.engine->gradients());
  const models::ParityPass pass = models::parity_pass(*quantized.model, reference);
  for (int64_t step = 0; step < losses.numel(); ++step) {
    quantized.engine->zero_gradients();
    const at::Tensor loss = pass.loss();
    EXPECT_NEAR(loss.item<double>(), losses[step].item<double>(), 1e-5 * 5) << "step " << step;
    loss.backward();
    optimizer->step({config.lr, config.weight_decay, 1.0});
  }
}

TEST_P(QloraGoldenTest, FrozenWeightsAreBytesAndTheRestIsAsItWas) {
  QuantizedModel quantized(GetParam());
  int64_t num_bytes = 0;
  int64_t num_wanted = 0;
  for (const auto& item : quantized.model->named_parameters()) {
    const bool is_kept = item.key().find("norm") != std::string::npos ||
                         item.key().find("embed") != std::string::npos ||
                         item.key().find("lm_head") != std::string::npos ||
                         item.key().ends_with(".bias");
    const bool is_adapter = item.key().find(".lora_") != std::string::npos;
    EXPECT_EQ(item.value().scalar_type(), is_kept || is_adapter ? at::kFloat : at::kByte)
        << item.key();
    EXPECT_EQ(item.value().requires_grad(), is_adapter) << item.key();
    if (item.value().scalar_type() == at::kByte) num_bytes += item.value().numel();
  }
  for (const QuantizedMatrix& matrix : quantized_matrices(*quantized.model)) {
    num_wanted +=
        kernels::four_bit_bytes(matrix.floats.shape[0] * matrix.floats.shape[1], matrix.format);
  }
  EXPECT_EQ(quantized_matrices(*quantized.model).size(), 14u);
  EXPECT_EQ(num_bytes, num_wanted);
  EXPECT_EQ(num_elements(*quantized.model),
            quantized.num_elements_before + quantized.engine->num_trained_parameters());
}

INSTANTIATE_TEST_SUITE_P(Models, QloraGoldenTest, testing::Values("llama_nf4", "qwen3_fp4"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel::peft
