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

/// An operation under way, as a backend makes it. It keeps its tensors alive; destroyed before its
/// end, the operation may still run.
class BackendWork {
 public:
  virtual ~BackendWork() = default;
  virtual void wait() = 0;
  virtual bool is_done() = 0;
};

/// A place in what a device has been asked to do.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Behind everything that the calling thread's present stream has been asked for so far.
  virtual void set() = 0;
  /// From any thread. Throws what the device says once it has failed.
  virtual bool is_reached() = 0;
};

/// Rows of dim 0 that go to each rank and come from each.
struct ExchangeCounts {
  std::vector<int64_t> out;  ///< by the rank they come from
  std::vector<int64_t> in;   ///< by the rank they go to
};

/// What a group is made of; a world of one has its own, so no caller asks "is there a group". Each
/// operation is started; a null pointer says that it is done already.
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<BackendWork> all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  virtual std::unique_ptr<BackendWork> broadcast(at::Tensor tensor, int root) = 0;
  virtual std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) = 0;
  virtual std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                                      ReduceOp op) = 0;
  virtual std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                                  const ExchangeCounts& counts) = 0;
  virtual std::unique_ptr<BackendWork> send(const at::Tensor& tensor, int peer, int tag) = 0;
  virtual std::unique_ptr<BackendWork> recv(at::Tensor tensor, int peer, int tag) = 0;
  virtual std::unique_ptr<BackendWork> barrier() = 0;

  /// Something has failed and nothing of the group will be used any more: ends waits that would
  /// never end, of the device too, whatever the peers do. From any thread; called at most once.
  virtual void abort() {}
  /// A mark for the streams of a device, to be set, where wait() lets the host go on before the
  /// operation is done. Null of backends that wait for its end.
  virtual std::unique_ptr<StreamMark> mark(at::Device) { return nullptr; }
};

/// Handle of an operation that has been started; a default one is done. Copies share the
/// operation. The works of a group are waited for in the order in which they were started.
class Work final {
 public:
  Work() = default;
  explicit Work(std::unique_ptr<BackendWork> work) : work_(std::move(work)) {}

  /// Throws PeerFailure as the blocking operations do. Returns at once the second time.
  void wait();
  /// Whether wait() would return or throw at once.
  bool is_done() const { return work_ == nullptr || work_->is_done(); }

 private:
  std::shared_ptr<BackendWork> work_;
};

/// Handle of a group of ranks; copies share the group. Every operation is called by all ranks of
/// the group in the same order, and throws PeerFailure when a peer has failed, vanished or not come
/// within the group's timeout. Ranks and roots are counted inside the group. Tensors are
/// contiguous. What start_...() was given belongs to the operation until its Work has been waited
/// for: inputs may be read, outputs neither read nor written.
class ProcessGroup final {
 public:
  /// The group of one: operations return at once.
  static ProcessGroup solo(std::string name = "solo");

  ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend);

  const std::string& name() const { return name_; }
  int rank() const { return backend_->rank(); }
  int size() const { return backend_->size(); }

  /// In place; tensors of equal numel and dtype.
  void all_reduce(at::Tensor tensor, ReduceOp op) const;
  Work start_all_reduce(at::Tensor tensor, ReduceOp op) const;
  void broadcast(at::Tensor tensor, int root) const;
  /// out has size() * in.numel() elements: the ranks' inputs one behind another. `in` may be the
  /// rank's own part of `out`.
  void all_gather(at::Tensor out, const at::Tensor& in) const;
  Work start_all_gather(at::Tensor out, const at::Tensor& in) const;
  /// in has size() * out.numel() elements; rank r gets the reduction of the r-th part. `out` may be
  /// the r-th part of `in`; the other parts of `in` stay as they are.
  void reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const;
  Work start_reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const;
  /// Rows of dim 0 that change ranks: counts.in[r] rows of `in` go to rank r, which lie one behind
  /// another; counts.out[r] rows come from rank r. Rows are alike on all ranks; counts may be 0.
  void all_to_all(at::Tensor out, const at::Tensor& in, const ExchangeCounts& counts) const;
  Work start_all_to_all(at::Tensor out, const at::Tensor& in, const ExchangeCounts& counts) const;
  void barrier() const;

  /// Between two ranks; both give the same numel, dtype and tag. Messages of one tag arrive in the
  /// order in which they were sent. A send may wait for its receive.
  void send(const at::Tensor& tensor, int peer, int tag = 0) const;
  Work start_send(const at::Tensor& tensor, int peer, int tag = 0) const;
  void recv(at::Tensor tensor, int peer, int tag = 0) const;
  Work start_recv(at::Tensor tensor, int peer, int tag = 0) const;

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
