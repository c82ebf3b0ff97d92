#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "chat/short_bytes.h"

namespace automodel::chat {

/// Text that grows at its end, in memory of the caller's until that is full.
class Output final {
 public:
  explicit Output(std::span<char> memory) : data_(memory.data()), capacity_(memory.size()) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void append(std::string_view bytes) {
    if (bytes.size() > capacity_ - size_) grow(bytes.size());
    copy_bytes(data_ + size_, bytes);
    size_ += bytes.size();
  }
  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

 private:
  void grow(size_t num_bytes) {
    const size_t larger = std::max(capacity_ * 2, size_ + num_bytes);
    std::unique_ptr<char[]> copy(new char[larger]);
    copy_bytes(copy.get(), view());
    kept_ = std::move(copy);
    data_ = kept_.get();
    capacity_ = larger;
  }

  char* data_;
  size_t size_ = 0;
  size_t capacity_;
  std::unique_ptr<char[]> kept_;
};

}  // namespace automodel::chat
