#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace automodel::comm {

enum class ReduceOp { kSum, kAvg, kMax, kMin };

/// A peer failed or vanished: its own text where it could leave one (exit code 4).
class PeerFailure final : public UserError {
 public:
  explicit PeerFailure(const std::string& text) : UserError(text, ExitCode::kRankFailed) {}
};

/// What a group is made of; a world of one has its own, so no caller asks "is there a group".
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(at::Tensor& tensor, ReduceOp op) = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void all_gather(at::Tensor& out, const at::Tensor& in) = 0;
  virtual void reduce_scatter(at::Tensor& out, const at::Tensor& in, ReduceOp op) = 0;
  virtual void barrier() = 0;
};

/// Handle of a group of ranks; copies share the group. Every operation is called by all ranks of
/// the group in the same order, and throws PeerFailure when a peer has failed, vanished or not come
/// within the group's timeout. Ranks and roots are counted inside the group.
class ProcessGroup final {
 public:
  /// The group of one: operations return at once.
  static ProcessGroup solo(std::string name = "solo");

  ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend);

  const std::string& name() const { return name_; }
  int rank() const { return backend_->rank(); }
  int size() const { return backend_->size(); }

  /// In place; contiguous tensors of equal numel and dtype.
  void all_reduce(at::Tensor tensor, ReduceOp op) const;
  void broadcast(at::Tensor tensor, int root) const;
  /// out has size() * in.numel() elements: the ranks' inputs one behind another.
  void all_gather(at::Tensor out, const at::Tensor& in) const;
  /// in has size() * out.numel() elements; rank r gets the reduction of the r-th part.
  void reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const;
  void barrier() const;

  /// The text of every rank, by rank.
  std::vector<std::string> all_gather_text(const std::string& text) const;
  /// The root's text.
  std::string broadcast_text(const std::string& text, int root) const;
  /// The largest of the ranks' numbers, e.g. of the signals they received.
  int64_t agree_max(int64_t value) const;
  /// Throws UserError naming the ranks whose `value` is not rank 0's: "rank 2 has another recipe
  /// than rank 0". Sends a hash only.
  void check_same(const std::string& what, std::string_view value) const;

 private:
  std::string name_;
  std::shared_ptr<GroupBackend> backend_;
};

}  // namespace automodel::comm
