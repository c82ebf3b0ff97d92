#pragma once

#include "models/decoder/family.h"

namespace automodel::models::decoder {

// Each is defined in the file of its name.
extern const Family kLlama, kQwen2, kQwen3, kMistral, kPhi3, kGemma, kGemma2, kGemma3, kGpt2,
    kOlmo2, kGranite, kQwen3Moe, kMixtral, kDeepseekV3, kGlm4Moe, kGptOss, kDiffusionGemma,
    kSmolLm3, kSeedOss, kStarcoder2, kMiniMaxM2, kGlm4MoeLite, kGlm, kGlm4, kMinistral3, kQwen3Next,
    kQwen3p5, kQwen3p5Moe, kNemotronH, kQwen3p5Tower, kQwen3p5MoeTower, kMistral3, kMistral4,
    kGlmMoeDsa, kDeepseekV32;
extern const Family kFalconH1, kBailingMoeV2, kHyV3, kQwen2Moe, kErnie4p5, kErnie4p5Moe, kCohere,
    kCohere2, kPhi, kKimiLinear, kHunYuanDense, kHunYuanMoe, kDeepseekV4;

/// Every family of this version.
inline constexpr const Family* kFamilies[] = {&kLlama,
                                              &kQwen2,
                                              &kQwen3,
                                              &kMistral,
                                              &kPhi3,
                                              &kGemma,
                                              &kGemma2,
                                              &kGemma3,
                                              &kGpt2,
                                              &kOlmo2,
                                              &kGranite,
                                              &kQwen3Moe,
                                              &kMixtral,
                                              &kDeepseekV3,
                                              &kGlm4Moe,
                                              &kGptOss,
                                              &kDiffusionGemma,
                                              &kSmolLm3,
                                              &kSeedOss,
                                              &kStarcoder2,
                                              &kMiniMaxM2,
                                              &kGlm4MoeLite,
                                              &kGlm,
                                              &kGlm4,
                                              &kMinistral3,
                                              &kQwen3Next,
                                              &kQwen3p5,
                                              &kQwen3p5Moe,
                                              &kNemotronH,
                                              &kQwen3p5Tower,
                                              &kQwen3p5MoeTower,
                                              &kMistral3,
                                              &kFalconH1,
                                              &kBailingMoeV2,
                                              &kHyV3,
                                              &kQwen2Moe,
                                              &kErnie4p5,
                                              &kErnie4p5Moe,
                                              &kCohere,
                                              &kCohere2,
                                              &kPhi,
                                              &kMistral4,
                                              &kGlmMoeDsa,
                                              &kDeepseekV32,
                                              &kKimiLinear,
                                              &kHunYuanDense,
                                              &kHunYuanMoe,
                                              &kDeepseekV4};

}  // namespace automodel::models::decoder
