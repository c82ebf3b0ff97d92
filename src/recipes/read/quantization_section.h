#pragma once

#include <string>
#include <tuple>

#include "core/field.h"

namespace automodel::recipes {

/// `quantization`: how the frozen weights under adapters are held (QLoRA).
struct QuantizationSection {
  bool load_in_4bit = false;
  bool load_in_8bit = false;
  std::string bnb_4bit_compute_dtype = "bfloat16";
  bool bnb_4bit_use_double_quant = true;
  std::string bnb_4bit_quant_type = "nf4";
  std::string bnb_4bit_quant_storage = "bfloat16";

  static constexpr auto fields() {
    using S = QuantizationSection;
    return std::tuple{
        field("load_in_4bit", &S::load_in_4bit,
              "hold the weights of linear layers but the head in 4 bits, as bitsandbytes does"),
        field("load_in_8bit", &S::load_in_8bit,
              "hold them in 8 bits (LLM.int8()); not in this version"),
        field("bnb_4bit_compute_dtype", &S::bnb_4bit_compute_dtype,
              "dtype of their products, and of adapters without peft.lora_dtype"),
        field("bnb_4bit_use_double_quant", &S::bnb_4bit_use_double_quant,
              "hold the factors of blocks in 8 bits too"),
        field("bnb_4bit_quant_type", &S::bnb_4bit_quant_type, "nf4 or fp4"),
        field("bnb_4bit_quant_storage", &S::bnb_4bit_quant_storage,
              "dtype that bytes are stored as")
            .without_effect("bytes are stored as bytes, and sharded with every strategy")};
  }
};

}  // namespace automodel::recipes
