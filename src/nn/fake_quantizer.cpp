#include "nn/fake_quantizer.h"

#include "nn/layers.h"

namespace automodel::nn {

void set_fake_quantizer(torch::nn::Module& module,
                        const std::shared_ptr<const FakeQuantizer>& quantizer) {
  if (auto* linear = dynamic_cast<Linear*>(&module)) linear->set_fake_quantizer(quantizer);
  for (const std::shared_ptr<torch::nn::Module>& below : module.children()) {
    set_fake_quantizer(*below, quantizer);
  }
}

}  // namespace automodel::nn
