#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tensor/kernel_graph.h"

namespace automodel::test {

/// Stands for a device's graph of kernels on the CPU: what it records are operators of ATen, below
/// autograd, with the tensors that they were called with. As on a device, recording computes
/// nothing that lasts (memory that was there before is as it was), and replaying does the same to
/// the same memory without calling the work again. What does not go through ATen, the fused loops,
/// is not recorded: work takes the plain path (kernels::PlainPathScope). Unlike a device it does
/// not refuse reads by the host; what follows from one is recorded as it was. One recording at a
/// time.
class OperatorRecording final : public tensor::KernelGraph {
 public:
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

  void run(const std::function<void()>& work) override {
    is_running_ = true;
    work();
    is_running_ = false;
  }

  void record(const std::function<void()>& work) override {
    if (!is_running_) throw std::logic_error("recorded outside of run()");
    calls_.clear();
    kept_.clear();
    active() = this;
    try {
      const c10::impl::IncludeDispatchKeyGuard guard(kKey);
      work();
    } catch (...) {
      stop();
      throw;
    }
    stop();
  }

  void replay() override {
    if (!is_running_) throw std::logic_error("replayed outside of run()");
    const at::AutoDispatchBelowADInplaceOrView below;
    for (const Call& call : calls_) {
      torch::jit::Stack stack = call.inputs;
      call.op.callBoxed(stack);
      const std::vector<at::Tensor> made = tensors_in(stack);
      for (size_t i = 0; i < call.results.size(); ++i) {
        if (call.results[i].defined()) at::Tensor(call.results[i]).copy_(made[i]);
      }
    }
  }

  void forget() override { calls_.clear(); }

  static void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kKey);
    const auto next = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
    if (active() == nullptr) return op.redispatchBoxed(next, stack);
    const size_t num_inputs = op.schema().arguments().size();
    Call call{op, {stack->end() - static_cast<int64_t>(num_inputs), stack->end()}, {}};
    active()->keep_written(call);
    op.redispatchBoxed(next, stack);
    const size_t num_results = op.schema().returns().size();
    const std::vector<at::Tensor> inputs = tensors_in(call.inputs);
    for (const at::Tensor& result :
         tensors_in({stack->end() - static_cast<int64_t>(num_results), stack->end()})) {
      // A sparse one has no numbers here: it says that a gradient has been added already.
      const bool is_new = result.defined() && !result.is_sparse() && !is_of(result, inputs);
      call.results.push_back(is_new ? result : at::Tensor());
    }
    active()->calls_.push_back(std::move(call));
  }

 private:
  struct Call {
    c10::OperatorHandle op;
    torch::jit::Stack inputs;
    std::vector<at::Tensor> results;  ///< undefined where they are inputs, or views of them
  };

  static OperatorRecording*& active() {
    static OperatorRecording* recording = nullptr;
    return recording;
  }

  static std::vector<at::Tensor> tensors_in(const torch::jit::Stack& values) {
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& value : values) {
      if (value.isTensor()) {
        tensors.push_back(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
      } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) {
          if (tensor) tensors.push_back(*tensor);
        }
      }
    }
    return tensors;
  }

  static bool is_of(const at::Tensor& result, const std::vector<at::Tensor>& inputs) {
    for (const at::Tensor& input : inputs) {
      if (input.defined() && !input.is_sparse() && input.storage().is_alias_of(result.storage()))
        return true;
    }
    return false;
  }

  static at::Tensor bytes_of(const c10::Storage& storage) {
    return at::from_blob(storage.mutable_data(), {static_cast<int64_t>(storage.nbytes())},
                         at::TensorOptions().dtype(at::kByte));
  }

  /// Copies memory that a call writes, before its first change.
  void keep_written(const Call& call) {
    const auto& arguments = call.op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for (const at::Tensor& tensor : tensors_in({call.inputs[i]})) {
        if (!tensor.defined() || tensor.is_sparse()) continue;
        const c10::Storage& storage = tensor.storage();
        if (storage.nbytes() == 0 || kept_.contains(storage.unsafeGetStorageImpl())) continue;
        kept_.emplace(storage.unsafeGetStorageImpl(),
                      std::pair(storage, bytes_of(storage).clone()));
      }
    }
  }

  void stop() {
    active() = nullptr;
    for (const auto& [key, kept] : kept_) bytes_of(kept.first).copy_(kept.second);
    kept_.clear();
  }

  bool is_running_ = false;
  std::vector<Call> calls_;
  std::map<const c10::StorageImpl*, std::pair<c10::Storage, at::Tensor>> kept_;
};

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&OperatorRecording::on_call>());
}

}  // namespace automodel::test
