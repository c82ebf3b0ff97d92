#include "kernels/base/result_keeper.h"

namespace automodel::kernels {

namespace {

thread_local ResultKeeper* innermost_keeper = nullptr;

}  // namespace

ResultKeeperScope::ResultKeeperScope(ResultKeeper& keeper) : outer_(innermost_keeper) {
  innermost_keeper = &keeper;
}

ResultKeeperScope::~ResultKeeperScope() {
  innermost_keeper = outer_;
}

std::optional<std::vector<at::Tensor>> take_result(ResultKind kind) {
  if (innermost_keeper == nullptr) return std::nullopt;
  return innermost_keeper->take(kind);
}

void offer_result(ResultKind kind, const std::vector<at::Tensor>& results) {
  if (innermost_keeper != nullptr) innermost_keeper->computed(kind, results);
}

}  // namespace automodel::kernels
