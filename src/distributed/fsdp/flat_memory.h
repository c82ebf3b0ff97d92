#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

namespace automodel::distributed {

/// Zeroed flat memory.
at::Tensor flat_zeros(int64_t numel, at::ScalarType dtype, at::Device device);

/// A view of flat memory with its own version counter, which view() would share: autograd does not
/// take writes to the buffer for in-place changes of a parameter.
at::Tensor alias(const at::Tensor& buffer, int64_t offset, at::IntArrayRef sizes);

/// Whether two tensors are views of the same memory, or will be when it is allocated.
bool share_storage(const at::Tensor& one, const at::Tensor& other);

/// Says, while it exists, that a unit or an engine owns memory, which it keeps alive.
class OwnerMark final {
 public:
  OwnerMark() = default;
  explicit OwnerMark(at::Tensor memory);
  OwnerMark(OwnerMark&& other) noexcept : memory_(std::move(other.memory_)) {}
  OwnerMark& operator=(OwnerMark&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~OwnerMark();

 private:
  at::Tensor memory_;
};

/// Throws UserError for a parameter in memory that is owned already.
void refuse_owned(const at::Tensor& parameter, const std::string& name);

/// Flat memory that is released and allocated again under tensors that persist: their storage is
/// emptied and refilled. Its memory comes from where other tensors' comes from and returns there,
/// so that activations use it meanwhile. While it is released, reading such a tensor throws
/// c10::Error with the given text.
class FlatBuffer final {
 public:
  FlatBuffer() = default;
  /// Allocated on construction, zeroed. `absent_text`: the error's text while it is released.
  FlatBuffer(int64_t numel, at::ScalarType dtype, at::Device device, std::string absent_text);

  const at::Tensor& flat() const { return flat_; }
  bool is_defined() const { return flat_.defined(); }
  bool is_there() const { return is_there_; }
  size_t bytes() const { return bytes_; }

  /// Allocates memory; its contents are undefined.
  void allocate();
  void allocate_zeroed();
  void release();

 private:
  at::Tensor flat_;
  size_t bytes_ = 0;
  std::string absent_text_;
  bool is_there_ = false;
};

}  // namespace automodel::distributed
