#include "recipes/build/build_model.h"

#include "core/error.h"
#include "models/catalog.h"
#include "peft/apply_lora.h"
#include "peft/quantize_base.h"
#include "recipes/build/fake_quantizer_options.h"
#include "recipes/build/freeze_parameters.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

peft::BaseQuantization base_quantization(const QuantizationSection& section, at::ScalarType dtype) {
  using kernels::FourBitType;
  const auto type = section.bnb_4bit_quant_type == "nf4" ? FourBitType::kNf4 : FourBitType::kFp4;
  const auto named = tensor::parse_dtype(section.bnb_4bit_compute_dtype);
  const bool is_floating = named && c10::isFloatingType(*named);  // check reports others
  return {{type, section.bnb_4bit_use_double_quant, dtype}, is_floating ? *named : at::kBFloat16};
}

}  // namespace

std::shared_ptr<models::CausalLM> build_model(const Recipe& recipe, at::ScalarType dtype) {
  auto model = models::build_causal_lm(recipe.model.hf_config, dtype);
  if (recipe.peft && recipe.quantization) {
    if (!recipe.quantization->load_in_4bit || recipe.distributed.sizes.tp_size.value_or(1) > 1) {
      throw UnsupportedError(
          "quantization other than load_in_4bit, or with tp_size > 1, is not in this version");
    }
    const auto quantization = base_quantization(*recipe.quantization, dtype);
    peft::apply_lora(*model, *recipe.peft, quantization.compute_dtype);
    peft::quantize_base(*model, quantization);
  } else if (recipe.peft) {
    peft::apply_lora(*model, *recipe.peft, dtype);
  }
  if (recipe.qat && !recipe.is_frozen) {
    if (recipe.peft) throw UnsupportedError("adapters (peft) with qat are not in this version");
    model->set_fake_quantizer(std::make_shared<nn::FakeQuantizer>(quantizer_options(*recipe.qat)));
  }
  if (recipe.neftune) model->set_embedding_noise(recipe.neftune->noise_alpha);
  const bool freezes_some = recipe.freeze && recipe.freeze->is_acting() && !recipe.peft;
  if (freezes_some && !recipe.is_frozen) freeze_or_throw(*model, *recipe.freeze);
  if (recipe.is_frozen) {
    for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(false);
  }
  return model;
}

int64_t num_elements(const models::CausalLM& model) {
  return peft::num_elements(model);
}

}  // namespace automodel::recipes
