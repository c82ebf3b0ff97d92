#include "models/decoder/family.h"
#include "models/diffusion_gemma/config.h"
#include "models/diffusion_gemma/diffusion_model.h"

namespace automodel::models::decoder {

/// DiffusionGemma, of modules of its own: layers with an MLP and experts side by side, used two
/// ways.
extern const Family kDiffusionGemma{
    .architecture = "DiffusionGemmaForBlockDiffusion",
    .model_type = "diffusion_gemma",
    .config_class = "DiffusionGemmaConfig",
    .layer_class = "DiffusionGemmaDecoderTextLayer",
    .experts_class = "DiffusionGemmaTextExperts",
    .read_config = diffusion_gemma::read_config,
    .module_twins = {{{"model.decoder.layers.", "model.encoder.language_model.layers."}}},
    .parallel_plan = diffusion_gemma::parallel_plan,
    .flops = gated_flops,
    .build = diffusion_gemma::build,
};

}  // namespace automodel::models::decoder
