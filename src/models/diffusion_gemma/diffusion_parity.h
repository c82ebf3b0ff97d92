#pragma once

#include "models/diffusion_gemma/diffusion_model.h"
#include "models/parity.h"

namespace automodel::models::diffusion_gemma {

/// models::parity_pass for this family.
ParityPass parity_pass(DiffusionGemmaModel& model, const tensor::NamedTensors& reference);

}  // namespace automodel::models::diffusion_gemma
