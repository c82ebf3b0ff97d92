#include "comm/groups/process_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/groups/group_backend.h"
#include "core/checksum.h"

namespace automodel::comm {

namespace {

/// A world of one.
class SoloBackend final : public GroupBackend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<BackendWork> start(const Collective& it) override {
    AM_CHECK(!it.is_message());
    const bool is_in_place = !it.out.defined() || it.out.data_ptr() == it.in.data_ptr();
    if (!is_in_place) it.out.view({-1}).copy_(it.in.reshape({-1}));
    return nullptr;
  }
};

at::Tensor bytes_of(const std::string& text, int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.data_ptr<uint8_t>(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes, int64_t begin, int64_t size) {
  return std::string(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()) + begin,
                     static_cast<size_t>(size));
}

/// Whether the counts say of every rank how many of the rows are its.
bool fits(const std::vector<int64_t>& counts, int num_ranks, int64_t num_rows) {
  return counts.size() == static_cast<size_t>(num_ranks) &&
         std::accumulate(counts.begin(), counts.end(), int64_t{0}) == num_rows &&
         std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; });
}

/// What ProcessGroup's functions ask of their arguments.
void check(const Collective& it, int rank, int size) {
  AM_CHECK(!it.in.defined() || it.in.is_contiguous());
  AM_CHECK(!it.out.defined() || it.out.is_contiguous());
  AM_CHECK(!it.in.defined() || !it.out.defined() || it.in.scalar_type() == it.out.scalar_type());
  AM_CHECK(it.peer >= 0 && it.peer < size && it.tag >= 0);
  switch (it.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      AM_CHECK(it.in.is_same(it.out));
      return;
    case CollectiveKind::kAllGather:
      AM_CHECK(it.out.numel() == it.in.numel() * size);
      return;
    case CollectiveKind::kReduceScatter:
      AM_CHECK(it.in.numel() == it.out.numel() * size);
      return;
    case CollectiveKind::kAllToAll:
      AM_CHECK(it.out.dim() == it.in.dim() && it.in.dim() > 0);
      AM_CHECK(it.out.sizes().slice(1) == it.in.sizes().slice(1));
      AM_CHECK(fits(it.counts.out, size, it.out.size(0)) &&
               fits(it.counts.in, size, it.in.size(0)));
      return;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      AM_CHECK(it.peer != rank);
      return;
    case CollectiveKind::kBarrier:
      return;
  }
}

/// Ranks whose rows are not equally many still meet.
bool is_empty(const Collective& it) {
  if (it.kind == CollectiveKind::kBarrier || it.kind == CollectiveKind::kAllToAll) return false;
  return (it.in.defined() ? it.in : it.out).numel() == 0;
}

}  // namespace

ProcessGroup ProcessGroup::solo(std::string name) {
  return ProcessGroup(std::move(name), std::make_shared<SoloBackend>());
}

ProcessGroup::ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend)
    : name_(std::move(name)), backend_(std::move(backend)) {}

Work::Work(std::unique_ptr<BackendWork> work) : work_(std::move(work)) {}

void Work::wait() {
  if (work_ == nullptr) return;
  work_->wait();
  work_.reset();
}

bool Work::is_done() const {
  return work_ == nullptr || work_->is_done();
}

int ProcessGroup::rank() const {
  return backend_->rank();
}

int ProcessGroup::size() const {
  return backend_->size();
}

Work ProcessGroup::start(const Collective& collective) const {
  check(collective, rank(), size());
  return is_empty(collective) ? Work() : Work(backend_->start(collective));
}

void ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) const {
  start_all_reduce(std::move(tensor), op).wait();
}

Work ProcessGroup::start_all_reduce(at::Tensor tensor, ReduceOp op) const {
  return start({.kind = CollectiveKind::kAllReduce, .out = tensor, .in = tensor, .op = op});
}

void ProcessGroup::broadcast(at::Tensor tensor, int root) const {
  start({.kind = CollectiveKind::kBroadcast, .out = tensor, .in = tensor, .peer = root}).wait();
}

void ProcessGroup::all_gather(at::Tensor out, const at::Tensor& in) const {
  start_all_gather(std::move(out), in).wait();
}

Work ProcessGroup::start_all_gather(at::Tensor out, const at::Tensor& in) const {
  return start({.kind = CollectiveKind::kAllGather, .out = std::move(out), .in = in});
}

void ProcessGroup::reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const {
  start_reduce_scatter(std::move(out), in, op).wait();
}

Work ProcessGroup::start_reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const {
  return start({.kind = CollectiveKind::kReduceScatter, .out = std::move(out), .in = in, .op = op});
}

void ProcessGroup::all_to_all(at::Tensor out, const at::Tensor& in,
                              const ExchangeCounts& counts) const {
  start_all_to_all(std::move(out), in, counts).wait();
}

Work ProcessGroup::start_all_to_all(at::Tensor out, const at::Tensor& in,
                                    const ExchangeCounts& counts) const {
  return start(
      {.kind = CollectiveKind::kAllToAll, .out = std::move(out), .in = in, .counts = counts});
}

void ProcessGroup::barrier() const {
  start({.kind = CollectiveKind::kBarrier}).wait();
}

void ProcessGroup::send(const at::Tensor& tensor, int peer, int tag) const {
  start_send(tensor, peer, tag).wait();
}

Work ProcessGroup::start_send(const at::Tensor& tensor, int peer, int tag) const {
  return start({.kind = CollectiveKind::kSend, .in = tensor, .peer = peer, .tag = tag});
}

void ProcessGroup::recv(at::Tensor tensor, int peer, int tag) const {
  start_recv(std::move(tensor), peer, tag).wait();
}

Work ProcessGroup::start_recv(at::Tensor tensor, int peer, int tag) const {
  return start({.kind = CollectiveKind::kRecv, .out = std::move(tensor), .peer = peer, .tag = tag});
}

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) const {
  at::Tensor sizes = at::zeros({size()}, at::TensorOptions().dtype(at::kLong));
  const auto own = static_cast<int64_t>(text.size());
  all_gather(sizes, at::full({1}, own, sizes.options()));
  const int64_t longest = std::max<int64_t>(sizes.max().item<int64_t>(), 1);
  at::Tensor bytes = at::zeros({longest * size()}, at::TensorOptions().dtype(at::kByte));
  all_gather(bytes, bytes_of(text, longest));
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size(); ++rank) {
    texts.push_back(text_of(bytes, rank * longest, sizes[rank].item<int64_t>()));
  }
  return texts;
}

std::string ProcessGroup::broadcast_text(const std::string& text, int root) const {
  return all_gather_text(rank() == root ? text : std::string())[static_cast<size_t>(root)];
}

int64_t ProcessGroup::agree_max(int64_t value) const {
  if (size() == 1) return value;
  at::Tensor tensor = at::full({1}, value, at::TensorOptions().dtype(at::kLong));
  all_reduce(tensor, ReduceOp::kMax);
  return tensor.item<int64_t>();
}

std::vector<int64_t> ProcessGroup::ranks_unlike_first(std::string_view value) const {
  if (size() == 1) return {};
  at::Tensor hashes = at::zeros({size()}, at::TensorOptions().dtype(at::kLong));
  const auto own = std::bit_cast<int64_t>(checksum_of(value));  // the same on every machine
  all_gather(hashes, at::full({1}, own, hashes.options()));
  std::vector<int64_t> others;
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (hashes[rank].item<int64_t>() != hashes[0].item<int64_t>()) others.push_back(rank);
  }
  return others;
}

void ProcessGroup::check_same(const std::string& what, std::string_view value) const {
  const std::vector<int64_t> others = ranks_unlike_first(value);
  if (others.empty()) return;
  throw UserError(cat(others.size() == 1 ? "rank " : "ranks ", join(others),
                      others.size() == 1 ? " has" : " have", " another ", what, " than rank 0"));
}

}  // namespace automodel::comm
