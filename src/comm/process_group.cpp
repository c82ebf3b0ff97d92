#include "comm/process_group.h"

#include <ATen/ATen.h>

#include <bit>
#include <cstring>

namespace automodel::comm {

namespace {

/// A world of one.
class SoloBackend final : public GroupBackend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(at::Tensor&, ReduceOp) override {}
  void broadcast(at::Tensor&, int) override {}
  void all_gather(at::Tensor& out, const at::Tensor& in) override {
    out.view({-1}).copy_(in.reshape({-1}));
  }
  void reduce_scatter(at::Tensor& out, const at::Tensor& in, ReduceOp) override {
    out.view({-1}).copy_(in.reshape({-1}));
  }
  void barrier() override {}
};

at::Tensor bytes_of(const std::string& text, int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.data_ptr<uint8_t>(), text.data(), text.size());
  return bytes;
}

/// FNV-1a: the same on every machine.
int64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  }
  return std::bit_cast<int64_t>(hash);
}

std::string text_of(const at::Tensor& bytes, int64_t begin, int64_t size) {
  return std::string(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()) + begin,
                     static_cast<size_t>(size));
}

}  // namespace

ProcessGroup ProcessGroup::solo(std::string name) {
  return ProcessGroup(std::move(name), std::make_shared<SoloBackend>());
}

ProcessGroup::ProcessGroup(std::string name, std::shared_ptr<GroupBackend> backend)
    : name_(std::move(name)), backend_(std::move(backend)) {}

void ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) const {
  backend_->all_reduce(tensor, op);
}

void ProcessGroup::broadcast(at::Tensor tensor, int root) const {
  backend_->broadcast(tensor, root);
}

void ProcessGroup::all_gather(at::Tensor out, const at::Tensor& in) const {
  AM_CHECK(out.numel() == in.numel() * size());
  backend_->all_gather(out, in);
}

void ProcessGroup::reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) const {
  AM_CHECK(in.numel() == out.numel() * size());
  backend_->reduce_scatter(out, in, op);
}

void ProcessGroup::barrier() const {
  backend_->barrier();
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
  all_gather(hashes, at::full({1}, fnv1a(value), hashes.options()));
  std::vector<int64_t> others;
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (hashes[rank].item<int64_t>() != hashes[0].item<int64_t>()) others.push_back(rank);
  }
  if (others.empty()) return;
  throw UserError(cat(others.size() == 1 ? "rank " : "ranks ", join(others),
                      others.size() == 1 ? " has" : " have", " another ", what, " than rank 0"));
}

}  // namespace automodel::comm
