#include "comm/process_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/checksum.h"

namespace automodel::comm {

namespace {

/// A world of one.
class SoloBackend final : public GroupBackend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<BackendWork> all_reduce(at::Tensor, ReduceOp) override { return nullptr; }
  std::unique_ptr<BackendWork> broadcast(at::Tensor, int) override { return nullptr; }
  std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) override {
    return copy(out, in);
  }
  std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                              ReduceOp) override {
    return copy(out, in);
  }
  std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                          const ExchangeCounts&) override {
    return copy(out, in);
  }
  std::unique_ptr<BackendWork> send(const at::Tensor&, int, int) override { AM_CHECK(false); }
  std::unique_ptr<BackendWork> recv(at::Tensor, int, int) override { AM_CHECK(false); }
  std::unique_ptr<BackendWork> barrier() override { return nullptr; }

 private:
  static std::unique_ptr<BackendWork> copy(at::Tensor& out, const at::Tensor& in) {
    if (out.data_ptr() != in.data_ptr()) out.view({-1}).copy_(in.reshape({-1}));
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

}  // namespace

ProcessGroup ProcessGroup::solo(std::string name) {
  return ProcessGroup(std::move(name), std::make_shared<SoloBackend>());
}

ProcessGroup::ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend)
    : name_(std::move(name)), backend_(std::move(backend)) {}

void Work::wait() {
  if (work_ == nullptr) return;
  work_->wait();
  work_.reset();
}

void ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) const {
  start_all_reduce(std::move(tensor), op).wait();
}

Work ProcessGroup::start_all_reduce(at::Tensor tensor, ReduceOp op) const {
  AM_CHECK(tensor.is_contiguous());
  return tensor.numel() == 0 ? Work() : Work(backend_->all_reduce(std::move(tensor), op));
}

void ProcessGroup::broadcast(at::Tensor tensor, int root) const {
  AM_CHECK(tensor.is_contiguous() && root >= 0 && root < size());
  if (tensor.numel() > 0) Work(backend_->broadcast(std::move(tensor), root)).wait();
}

void ProcessGroup::all_gather(at::Tensor out, const at::Tensor& in) const {
  start_all_gather(std::move(out), in).wait();
}

Work ProcessGroup::start_all_gather(at::Tensor out, const at::Tensor& in) const {
  AM_CHECK(out.numel() == in.numel() * size() && out.scalar_type() == in.scalar_type());
  AM_CHECK(out.is_contiguous() && in.is_contiguous());
  return in.numel() == 0 ? Work() : Work(backend_->all_gather(std::move(out), in));
}

void ProcessGroup::reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const {
  start_reduce_scatter(std::move(out), in, op).wait();
}

Work ProcessGroup::start_reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const {
  AM_CHECK(in.numel() == out.numel() * size() && out.scalar_type() == in.scalar_type());
  AM_CHECK(out.is_contiguous() && in.is_contiguous());
  return in.numel() == 0 ? Work() : Work(backend_->reduce_scatter(std::move(out), in, op));
}

void ProcessGroup::all_to_all(at::Tensor out, const at::Tensor& in,
                              const ExchangeCounts& counts) const {
  start_all_to_all(std::move(out), in, counts).wait();
}

Work ProcessGroup::start_all_to_all(at::Tensor out, const at::Tensor& in,
                                    const ExchangeCounts& counts) const {
  AM_CHECK(out.is_contiguous() && in.is_contiguous() && out.dim() == in.dim() && in.dim() > 0);
  AM_CHECK(out.sizes().slice(1) == in.sizes().slice(1) && out.scalar_type() == in.scalar_type());
  AM_CHECK(fits(counts.out, size(), out.size(0)) && fits(counts.in, size(), in.size(0)));
  return Work(backend_->all_to_all(std::move(out), in, counts));
}

void ProcessGroup::barrier() const {
  Work(backend_->barrier()).wait();
}

void ProcessGroup::send(const at::Tensor& tensor, int peer, int tag) const {
  start_send(tensor, peer, tag).wait();
}

Work ProcessGroup::start_send(const at::Tensor& tensor, int peer, int tag) const {
  AM_CHECK(tensor.is_contiguous() && peer >= 0 && peer < size() && peer != rank() && tag >= 0);
  return tensor.numel() == 0 ? Work() : Work(backend_->send(tensor, peer, tag));
}

void ProcessGroup::recv(at::Tensor tensor, int peer, int tag) const {
  start_recv(std::move(tensor), peer, tag).wait();
}

Work ProcessGroup::start_recv(at::Tensor tensor, int peer, int tag) const {
  AM_CHECK(tensor.is_contiguous() && peer >= 0 && peer < size() && peer != rank() && tag >= 0);
  return tensor.numel() == 0 ? Work() : Work(backend_->recv(std::move(tensor), peer, tag));
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

void ProcessGroup::check_same(const std::string& what, std::string_view value) const {
  if (size() == 1) return;
  at::Tensor hashes = at::zeros({size()}, at::TensorOptions().dtype(at::kLong));
  const auto own = std::bit_cast<int64_t>(checksum_of(value));  // the same on every machine
  all_gather(hashes, at::full({1}, own, hashes.options()));
  std::vector<int64_t> others;
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (hashes[rank].item<int64_t>() != hashes[0].item<int64_t>()) others.push_back(rank);
  }
  if (others.empty()) return;
  throw UserError(cat(others.size() == 1 ? "rank " : "ranks ", join(others),
                      others.size() == 1 ? " has" : " have", " another ", what, " than rank 0"));
}

}  // namespace automodel::comm
