#include "distributed/fsdp/flat_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <mutex>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "tensor/memory.h"

namespace automodel::distributed {

namespace {

/// c10's storages can be made to throw when they are read, but not to stop throwing once their
/// memory is allocated again: the flags for that are private. An explicit instantiation may name
/// them.
template <bool c10::StorageImpl::*kThrows, bool c10::StorageImpl::*kChecks>
struct ReadGuard {
  friend void set_throws_when_read(c10::StorageImpl& storage, bool throws) {
    storage.*kThrows = throws;
    storage.*kChecks = throws;
  }
};
void set_throws_when_read(c10::StorageImpl& storage, bool throws);
template struct ReadGuard<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                          &c10::StorageImpl::has_mutable_data_ptr_check_>;

}  // namespace

at::Tensor flat_zeros(int64_t numel, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) return tensor::mapped_zeros(numel, dtype);
  return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor alias(const at::Tensor& buffer, int64_t offset, at::IntArrayRef sizes) {
  at::NoGradGuard no_grad;
  at::Tensor view = at::empty({0}, buffer.options());
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t dim = sizes.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * sizes[dim];
  return view.set_(buffer.storage(), buffer.storage_offset() + offset, sizes, strides);
}

bool share_storage(const at::Tensor& one, const at::Tensor& other) {
  return one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

namespace {

/// The memory that has an owner, of all threads; an owner's death may come after main's end.
struct Owned {
  std::mutex mutex;
  std::set<const c10::StorageImpl*> storages;
};

Owned& owned() {
  static auto* const all = new Owned;
  return *all;
}

}  // namespace

OwnerMark::OwnerMark(at::Tensor memory) : memory_(std::move(memory)) {
  const std::lock_guard lock(owned().mutex);
  owned().storages.insert(memory_.storage().unsafeGetStorageImpl());
}

OwnerMark::~OwnerMark() {
  if (!memory_.defined()) return;
  const std::lock_guard lock(owned().mutex);
  owned().storages.erase(memory_.storage().unsafeGetStorageImpl());
}

void refuse_owned(const at::Tensor& parameter, const std::string& name) {
  const std::lock_guard lock(owned().mutex);
  if (!owned().storages.contains(parameter.storage().unsafeGetStorageImpl())) return;
  throw UserError(cat("parameter ", name,
                      " is sharded already, by a unit or an engine: call fully_shard on blocks "
                      "first and on the whole module last, once each, and give a parameter that "
                      "two modules share to one unit"));
}

FlatBuffer::FlatBuffer(int64_t numel, at::ScalarType dtype, at::Device device,
                       std::string absent_text)
    : flat_(flat_zeros(numel, dtype, device)),
      bytes_(static_cast<size_t>(flat_.numel()) * flat_.itemsize()),
      absent_text_(std::move(absent_text)),
      is_there_(true) {}

void FlatBuffer::allocate() {
  if (is_there_) return;
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  set_throws_when_read(*storage, false);
  const at::Tensor fresh = at::empty({flat_.numel()}, flat_.options());
  storage->set_data_ptr_noswap(fresh.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr()));
  storage->set_nbytes(bytes_);
  is_there_ = true;
}

void FlatBuffer::allocate_zeroed() {
  if (is_there_) return;
  allocate();
  flat_.zero_();
}

void FlatBuffer::release() {
  if (!is_there_) return;
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, flat_.device()));
  storage->set_nbytes(0);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(absent_text_);
  set_throws_when_read(*storage, true);
  is_there_ = false;
}

}  // namespace automodel::distributed
