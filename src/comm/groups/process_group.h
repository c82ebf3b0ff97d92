#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/groups/collective.h"
#include "core/error.h"

namespace automodel::comm {

class BackendWork;
class GroupBackend;

/// A peer failed or vanished; has the peer's own text if it left one (exit code 4).
class PeerFailure final : public UserError {
 public:
  explicit PeerFailure(const std::string& text) : UserError(text, ExitCode::kRankFailed) {}
};

/// Handle of a started operation; a default one is complete. Copies share the operation. A group's
/// works must be waited for in the order in which they were started.
class Work final {
 public:
  Work() = default;
  explicit Work(std::unique_ptr<BackendWork> work);

  /// Throws PeerFailure as the blocking operations do. A second call returns at once.
  void wait();
  /// Whether wait() would return or throw without waiting.
  bool is_done() const;

 private:
  std::shared_ptr<BackendWork> work_;
};

/// Handle of a group of ranks; copies share the group. All ranks of the group call every operation
/// in the same order; it throws PeerFailure when a peer has failed, vanished or not called it
/// within the group's timeout. Ranks and roots are numbers within the group. Tensors must be
/// contiguous. Until a started operation's Work has been waited for, its inputs may only be read,
/// and its outputs neither read nor written.
class ProcessGroup final {
 public:
  /// The group of one: operations return at once.
  static ProcessGroup solo(std::string name = "solo");

  ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend);

  const std::string& name() const { return name_; }
  int rank() const;
  int size() const;

  /// Starts what the functions below name. Those without tensor elements are complete at once.
  Work start(const Collective& collective) const;

  /// In place; tensors of equal numel and dtype.
  void all_reduce(at::Tensor tensor, ReduceOp op) const;
  Work start_all_reduce(at::Tensor tensor, ReduceOp op) const;
  void broadcast(at::Tensor tensor, int root) const;
  /// out has size() * in.numel() elements: the inputs of all ranks in order. `in` may be this
  /// rank's part of `out`.
  void all_gather(at::Tensor out, const at::Tensor& in) const;
  Work start_all_gather(at::Tensor out, const at::Tensor& in) const;
  /// in has size() * out.numel() elements; rank r gets the reduction of part r. `out` may be part r
  /// of `in`; the other parts of `in` are unchanged.
  void reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const;
  Work start_reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const;
  /// Exchanges rows of dim 0: counts.in[r] consecutive rows of `in` go to rank r, and counts.out[r]
  /// rows of `out` come from rank r. All ranks' rows have the same size; counts may be 0.
  void all_to_all(at::Tensor out, const at::Tensor& in, const ExchangeCounts& counts) const;
  Work start_all_to_all(at::Tensor out, const at::Tensor& in, const ExchangeCounts& counts) const;
  void barrier() const;

  /// Message between two ranks, which must pass the same numel, dtype and tag. Messages with one
  /// tag arrive in the order in which they were sent. A send may wait for its receive.
  void send(const at::Tensor& tensor, int peer, int tag = 0) const;
  Work start_send(const at::Tensor& tensor, int peer, int tag = 0) const;
  void recv(at::Tensor tensor, int peer, int tag = 0) const;
  Work start_recv(at::Tensor tensor, int peer, int tag = 0) const;

  /// The texts of all ranks, by rank.
  std::vector<std::string> all_gather_text(const std::string& text) const;
  /// The root's text.
  std::string broadcast_text(const std::string& text, int root) const;
  /// The largest of all ranks' values, e.g. of received signals.
  int64_t agree_max(int64_t value) const;
  /// Throws UserError naming the ranks whose `value` differs from rank 0's: "rank 2 has another
  /// recipe than rank 0". Only a hash is sent.
  void check_same(const std::string& what, std::string_view value) const;
  /// The ranks whose `value` differs from rank 0's, ascending. Only a hash is sent.
  std::vector<int64_t> ranks_unlike_first(std::string_view value) const;

 private:
  std::string name_;
  std::shared_ptr<GroupBackend> backend_;
};

}  // namespace automodel::comm
