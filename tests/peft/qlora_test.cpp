// Against transformers, PEFT and bitsandbytes: tests/peft/qlora, which
// scripts/goldens/make_four_bit_goldens.py makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "comm/groups/process_group.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/engine/data_parallel.h"
#include "kernels/base/fused.h"
#include "models/catalog.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/golden_support.h"
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
  return read_reference(golden_folder(name));
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

TEST_P(QloraGoldenTest, LogitsLossAndGradientsAreThoseOfBitsandbytes) {
  for (const bool is_plain : {false, true}) {
    const kernels::PlainPathScope path(is_plain);
    QuantizedModel quantized(GetParam());
    expect_parity(*quantized.model, reference_of(GetParam()));
  }
}

TEST_P(QloraGoldenTest, ThreeStepsOfAdamWHaveTheirLosses) {
  QuantizedModel quantized(GetParam());
  expect_losses(*quantized.model, *quantized.engine, reference_of(GetParam()));
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

/// The head of a classifier is trained whole, all its layers; BERT's pooler is none of them.
TEST(QloraTest, AHeadOfTwoLayersStaysInFloats) {
  for (const char* encoder : {"roberta", "bert"}) {
    const auto model = models::build_causal_lm(
        Json::parse_file(
            test::source_file(cat("tests/golden/classifiers/", encoder, "/config.json"))),
        at::kFloat);
    for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(false);
    quantize_base(*model, {});
    bool has_pooler = false;
    for (const QuantizedMatrix& matrix : quantized_matrices(*model)) {
      EXPECT_FALSE(matrix.name.starts_with("classifier.")) << matrix.name;
      has_pooler = has_pooler || matrix.name == "bert.pooler.dense.weight";
    }
    EXPECT_EQ(quantized_matrices(*model).size(), has_pooler ? 13 : 12) << encoder;
    EXPECT_EQ(has_pooler, std::string(encoder) == "bert");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, QloraGoldenTest, testing::Values("llama_nf4", "qwen3_fp4"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel::peft
