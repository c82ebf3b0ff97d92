// The order of an offloading device's copies, with a device that this file makes up: its memory is
// the host's, and its streams write down what they are asked for.
#include "distributed/fsdp/copy_stream.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "core/text.h"

namespace automodel::distributed {
namespace {

using Texts = std::vector<std::string>;
constexpr auto kMadeUp = c10::DeviceType::PrivateUse1;

/// What the streams were asked for; guards and kernels are found by the device's type alone.
struct Asked {
  Texts lines;
  c10::StreamId present = 0;
};
Asked& asked() {
  static Asked of_process;
  return of_process;
}

void note(const std::string& line) {
  asked().lines.push_back(line);
}

struct MadeUpGuard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device() { return {kMadeUp, 0}; }
  static c10::Stream of_id(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }

  c10::DeviceType type() const override { return kMadeUp; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  /// None: autograd would start a thread for each, and other tests fork.
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
  c10::Stream getStream(c10::Device) const override { return of_id(asked().present); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return of_id(1); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return of_id(std::exchange(asked().present, stream.id()));
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    *event = &asked();
    note(cat("event on ", stream.id()));
  }
  void block(void*, const c10::Stream& stream) const override {
    note(cat(stream.id(), " waits for the event"));
  }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void synchronizeStream(const c10::Stream& stream) const override {
    note(cat("the host waits for ", stream.id()));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, MadeUpGuard)

struct MadeUpMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    void* data = memory.get();
    return {data, memory.release_context(), memory.get_deleter(), MadeUpGuard::device()};
  }
  void copy_data(void*, const void*, size_t) const override {}
};

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  static MadeUpMemory memory;
  return at::detail::empty_strided_generic(sizes, strides, &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  note(cat("copy on ", asked().present));
  const auto on_host = [](const at::Tensor& it) {
    return at::from_blob(it.data_ptr(), it.sizes(), it.strides(),
                         at::TensorOptions().dtype(it.scalar_type()));
  };
  on_host(to).copy_(on_host(from));
  return to;
}

void record_stream(at::Tensor&, c10::Stream stream) {
  note(cat("used on ", stream.id()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("record_stream", record_stream);
}

class CopyStreamTest : public testing::Test {
 protected:
  Texts lines() { return std::exchange(asked().lines, {}); }

  const at::TensorOptions on_device_ = at::TensorOptions().dtype(at::kFloat).device(kMadeUp, 0);
  CopyStream copies_{at::Device(kMadeUp, 0)};
};

TEST_F(CopyStreamTest, WhatIsGatheredIsCopiedBesideTheComputationAndGatheredBehindIt) {
  at::Tensor input = copies_.to_device(at::ones({4}), on_device_);
  EXPECT_EQ(lines(), (Texts{"copy on 1"}));
  CopyStream::Mark gathered =
      copies_.start_behind([] { note(cat("gather on ", asked().present)); });
  EXPECT_EQ(lines(), (Texts{"event on 0", "1 waits for the event", "gather on 1", "event on 1"}));
  copies_.wait(gathered);
  EXPECT_EQ(lines(), (Texts{"0 waits for the event"}));
  copies_.release(input);
  EXPECT_FALSE(input.defined());
  EXPECT_EQ(lines(), (Texts{"used on 0"}));
  EXPECT_EQ(asked().present, 0);
}

TEST_F(CopyStreamTest, CastsAreTheDevices) {
  const at::Tensor input = copies_.to_device(at::ones({4}), on_device_.dtype(at::kBFloat16));
  EXPECT_EQ(input.scalar_type(), at::kBFloat16);
  EXPECT_EQ(lines(), (Texts{"copy on 1", "copy on 1"}));
}

TEST_F(CopyStreamTest, GradientsArriveWhenTheHostHasWaitedForTheCopies) {
  const at::Tensor sum = copies_.to_device(at::full({4}, 3.0F), on_device_);
  lines();
  const at::Tensor host = at::zeros({4});
  copies_.to_host(host, sum);
  EXPECT_EQ(lines(), (Texts{"event on 0", "1 waits for the event", "copy on 1", "used on 1"}));
  copies_.synchronize();
  EXPECT_EQ(lines(), (Texts{"the host waits for 1"}));
  EXPECT_TRUE(at::equal(host, at::full({4}, 3.0F)));
  copies_.synchronize();
  EXPECT_EQ(lines(), Texts{});
}

TEST(CopyStreamOnCpuTest, EverythingHappensAtOnce) {
  CopyStream copies(at::kCPU);
  at::Tensor values = at::ones({3});
  EXPECT_TRUE(copies.to_device(values, values.options()).is_same(values));
  bool is_started = false;
  CopyStream::Mark mark = copies.start_behind([&] { is_started = true; });
  EXPECT_TRUE(is_started);
  copies.wait(mark);
  const at::Tensor host = at::zeros({3});
  copies.to_host(host, values);
  EXPECT_TRUE(at::equal(host, values));
  copies.synchronize();
}

}  // namespace
}  // namespace automodel::distributed
