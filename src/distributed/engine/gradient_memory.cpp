#include "distributed/engine/gradient_memory.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "distributed/autograd/when_differentiated.h"
#include "distributed/fsdp/flat_memory.h"
#include "nn/unit_hook.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

struct GradientMemory::State {
  struct Unit {
    std::vector<FlatBuffer> buffers;
    bool stays = true;
  };

  void allocate(Unit& unit) {
    const at::NoGradGuard no_grad;
    for (FlatBuffer& buffer : unit.buffers) buffer.allocate_zeroed();
  }

  std::vector<Unit> units;
};

class GradientMemory::AllocatesInBackward final : public nn::UnitBehavior {
 public:
  AllocatesInBackward(std::shared_ptr<State> state, size_t unit)
      : state_(std::move(state)), unit_(unit) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    nn::TensorList outputs = body(inputs);
    if (!at::GradMode::is_enabled()) return outputs;
    return before_differentiated(std::move(outputs), [state = state_, unit = unit_] {
      state->allocate(state->units[unit]);
    });
  }

 private:
  std::shared_ptr<State> state_;
  size_t unit_;
};

GradientMemory::GradientMemory(size_t num_units) : state_(std::make_shared<State>()) {
  state_->units.resize(num_units);
}

at::Tensor GradientMemory::add(size_t unit, int64_t numel, at::ScalarType dtype,
                               at::Device device) {
  std::vector<FlatBuffer>& buffers = state_->units[unit].buffers;
  return buffers.emplace_back(numel, dtype, device, tensor::kAbsentGradients).flat();
}

void GradientMemory::watch(torch::nn::Module& module, size_t unit) {
  auto* hooked = dynamic_cast<nn::HookedModule*>(&module);
  if (hooked == nullptr) return;
  state_->units[unit].stays = false;
  hooked->unit_hook().install(std::make_unique<AllocatesInBackward>(state_, unit));
}

void GradientMemory::allocate() {
  for (State::Unit& unit : state_->units) state_->allocate(unit);
}

void GradientMemory::release() {
  const at::NoGradGuard no_grad;
  for (State::Unit& unit : state_->units) {
    for (FlatBuffer& buffer : unit.buffers) {
      if (!unit.stays) {
        buffer.release();
      } else {
        buffer.flat().zero_();
      }
    }
  }
}

void GradientMemory::keep() {
  allocate();
  for (State::Unit& unit : state_->units) unit.stays = true;
}

}  // namespace automodel::distributed
