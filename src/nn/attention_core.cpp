#include "nn/attention_core.h"

namespace automodel::nn {

namespace {

class LocalAttentionCore final : public AttentionCore {
 public:
  kernels::AttentionResult attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const kernels::AttentionOptions& options) override {
    return kernels::causal_attention(q, k, v, options);
  }
};

}  // namespace

std::shared_ptr<AttentionCore> make_local_attention_core() {
  return std::make_shared<LocalAttentionCore>();
}

}  // namespace automodel::nn
