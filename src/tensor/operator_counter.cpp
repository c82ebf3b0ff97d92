#include "tensor/operator_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstring>

#include "core/error.h"

namespace automodel::tensor {

namespace {

/// LibTorch calls a plain function, which finds the counts here.
struct Totals {
  std::atomic<bool> is_in_use = false;
  std::atomic<int64_t> num_operators = 0;
  std::atomic<int64_t> num_copies = 0;
  std::atomic<int64_t> copied_bytes = 0;
  std::atomic<int64_t> num_host_reads = 0;
};

Totals& totals() {
  static Totals all;
  return all;
}

bool is_copy(const at::RecordFunction& function) {
  return std::strcmp(function.name(), "aten::copy_") == 0;
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  Totals& all = totals();
  all.num_operators += 1;
  if (is_copy(function)) all.num_copies += 1;
  if (std::strcmp(function.name(), "aten::_local_scalar_dense") == 0) all.num_host_reads += 1;
  return nullptr;
}

/// Called after an operator, whose results are known then.
void count_bytes(const at::RecordFunction& function, at::ObserverContext*) {
  if (!is_copy(function)) return;
  for (const c10::IValue& written : function.outputs()) {
    if (!written.isTensor()) continue;
    totals().copied_bytes += static_cast<int64_t>(written.toTensor().nbytes());
  }
}

}  // namespace

OperatorCounter::OperatorCounter() {
  Totals& all = totals();
  AM_CHECK(!all.is_in_use.exchange(true));
  all.num_operators = all.num_copies = all.copied_bytes = all.num_host_reads = 0;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(count, count_bytes)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

OperatorCounter::~OperatorCounter() {
  at::removeCallback(handle_);
  totals().is_in_use = false;
}

OperatorCounts OperatorCounter::counts() const {
  const Totals& all = totals();
  return {.num_operators = all.num_operators,
          .num_copies = all.num_copies,
          .copied_bytes = all.copied_bytes,
          .num_host_reads = all.num_host_reads};
}

}  // namespace automodel::tensor
