// Where ranks compute, over devices that are made up: what each rank's machine has, and what
// becomes of the run.
#include "recipes/run/rank_device.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "comm/ranks.h"
#include "kernels/cpu/kind.h"
#include "support/errors.h"

namespace automodel::recipes {
namespace {

using Texts = std::vector<std::string>;

/// The devices that a rank's process may use.
struct Machine {
  std::vector<std::string> identities;
  std::string set_device_error;
  std::string open_error;
};

class ImaginedCuda final : public tensor::CudaRuntime {
 public:
  explicit ImaginedCuda(Machine machine) : machine_(std::move(machine)) {}
  int device_count() const override { return static_cast<int>(machine_.identities.size()); }
  void set_device(int) const override {
    if (machine_.set_device_error.empty()) return;
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 46, machine_.set_device_error);
  }
  std::string device_name(int) const override { return "Imagined"; }
  std::string device_identity(int device) const override {
    return machine_.identities.at(static_cast<size_t>(device));
  }
  uint64_t total_bytes(int) const override { return 0; }
  uint64_t peak_allocated_bytes(int) const override { return 0; }
  void synchronize() const override {}
  std::unique_ptr<tensor::KernelGraph> make_graph() const override { return nullptr; }

 private:
  Machine machine_;
};

OpenCuda opening(const Machine& machine) {
  return [machine]() -> std::unique_ptr<tensor::CudaRuntime> {
    if (!machine.open_error.empty()) throw UnsupportedError(machine.open_error);
    return std::make_unique<ImaginedCuda>(machine);
  };
}

/// What ranks with these machines come to: "cuda:0", "cpu", or "STATUS text".
Texts places_of(const std::vector<Machine>& machines, bool is_demanded = false,
                bool is_wanted = true) {
  const test::TemporaryDirectory folder;
  const auto num_ranks = static_cast<int>(machines.size());
  const auto result = comm::run_ranks(num_ranks, [&](comm::World& world) {
    const int rank = world.group().rank();
    test::Warnings warnings;
    std::string place;
    try {
      const DeviceRequest request{
          .is_wanted = is_wanted, .is_demanded = is_demanded, .local_rank = rank};
      const RankDevice found = agree_on_device(
          request, world.group(), opening(machines[static_cast<size_t>(rank)]), warnings);
      place =
          cat(found.device.str(), warnings.texts.empty() ? "" : " ", join(warnings.texts, "; "));
    } catch (const UserError& error) {
      place = cat(static_cast<int>(error.code()), " ", error.what());
    }
    folder.write(cat(rank, ""), place);
  });
  EXPECT_EQ(result.status, 0);
  Texts places;
  for (int rank = 0; rank < num_ranks; ++rank)
    places.push_back(read_file(folder.file(cat(rank, ""))));
  return places;
}

TEST(RankDeviceTest, EveryRankTakesTheDeviceOfItsNumber) {
  const Machine machine{.identities = {"a", "b"}};
  EXPECT_EQ(places_of({machine, machine}), (Texts{"cuda:0", "cuda:1"}));
}

TEST(RankDeviceTest, TheOnlyDeviceThatATaskIsShownIsItsOwn) {
  EXPECT_EQ(places_of({{.identities = {"a"}}, {.identities = {"b"}}}), (Texts{"cuda:0", "cuda:0"}));
}

TEST(RankDeviceTest, TwoRanksOnOneDeviceAreRefused) {
  const Machine machine{.identities = {"H200 12ab"}};
  const std::string text =
      "4 ranks 0, 1 have the same CUDA device (H200 12ab): start one rank a device, or train on "
      "the CPU with --device cpu";
  EXPECT_EQ(places_of({machine, machine}), (Texts{text, text}));
}

TEST(RankDeviceTest, ARankWithoutItsDeviceMovesNobodyToTheCpu) {
  const std::string text =
      "4 rank 1 has no CUDA device (this machine has no CUDA device), but rank 0 has one: every "
      "rank needs its own, or train on the CPU with --device cpu";
  EXPECT_EQ(places_of({{.identities = {"a"}}, {}}), (Texts{text, text}));
  const Machine two{.identities = {"a", "b"}};
  const std::string third =
      "4 rank 2 has no CUDA device (rank 2 of its machine has none of the 2 devices), but rank 0 "
      "has one: every rank needs its own, or train on the CPU with --device cpu";
  EXPECT_EQ(places_of({two, two, two}), (Texts{third, third, third}));
}

TEST(RankDeviceTest, ADeviceThatCannotBeUsedIsNamed) {
  const Machine good{.identities = {"a", "b"}};
  Machine bad = good;
  bad.set_device_error = "CUDA error: all CUDA-capable devices are busy or unavailable";
  const std::string text =
      "4 rank 1 cannot use its CUDA device: CUDA error: all CUDA-capable devices are busy or "
      "unavailable";
  EXPECT_EQ(places_of({good, bad}), (Texts{text, text}));
  EXPECT_THAT(places_of({bad, bad})[0], testing::StartsWith("4 ranks 0, 1 cannot use their CUDA"));
}

TEST(RankDeviceTest, WithoutAnyDeviceTheCpuServesUnlessOneIsDemanded) {
  const std::string warned =
      "cpu dist_env.backend nccl needs a GPU: training on the CPU with gloo (this machine has no "
      "CUDA device)";
  EXPECT_EQ(places_of({{}, {}}), (Texts{warned, warned}));
  EXPECT_EQ(places_of({{}, {}}, true)[0], "6 --device cuda: this machine has no CUDA device");
  EXPECT_EQ(places_of({{.open_error = "no CUDA here"}}, true)[0], "6 --device cuda: no CUDA here");
  EXPECT_EQ(places_of({{.identities = {"a"}}}, false, false)[0], "cpu");
}

TEST(MatmulPrecisionTest, DecidesWhatProductsMayBeMadeOf) {
  const auto precision_of = [](MatmulPrecision wanted, const at::Device& device) {
    test::Warnings reporter;
    set_matmul_precision(wanted, device, reporter);
    const bool is_tf32 =
        at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGH;
    return cat(kernels::cpu::allows_float_parts() ? "parts" : "multiply-adds",
               is_tf32 ? ", tf32" : "");
  };
  const at::Device device(at::kCUDA, 0);
  EXPECT_EQ(precision_of(MatmulPrecision::kIeee, at::kCPU), "multiply-adds");
  EXPECT_EQ(precision_of(MatmulPrecision::kHigh, at::kCPU), "parts");
  EXPECT_EQ(precision_of(MatmulPrecision::kHigh, device), "parts, tf32");
  EXPECT_EQ(precision_of(MatmulPrecision::kIeee, device), "multiply-adds");
  EXPECT_EQ(precision_of(MatmulPrecision::kHighest, device), "parts");
}

TEST(RankFailureTest, ADevicesFailuresHaveTextsAndStatuses) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  const std::string advice =
      "; a smaller step_scheduler.local_batch_size, shorter sequences, activation checkpointing or "
      "more ranks need less, and `automodel plan` says how much a rank needs";
  const auto full =
      outcome_of(c10::OutOfMemoryError(here, "CUDA out of memory. Tried to allocate 2.00 GiB."));
  EXPECT_EQ(full.status, 4);
  EXPECT_EQ(
      full.failure,
      cat("the device is out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.", advice));
  const auto of_driver = outcome_of(c10::AcceleratorError(here, 2, "CUDA error: out of memory"));
  EXPECT_EQ(of_driver.status, 4);
  EXPECT_EQ(of_driver.failure,
            cat("the device is out of memory: CUDA error: out of memory", advice));
  const auto broken = outcome_of(
      c10::AcceleratorError(here, 700, "CUDA error: an illegal memory access was encountered\nx"));
  EXPECT_EQ(broken.status, 4);
  EXPECT_EQ(broken.failure,
            "the device failed: CUDA error: an illegal memory access was encountered");
  EXPECT_EQ(outcome_of(c10::Error(here, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED")).status, 4);
  EXPECT_EQ(outcome_of(UserError("no")).status, 2);
  EXPECT_EQ(outcome_of(c10::Error(here, "expected m1 and m2")).status, 1);
  EXPECT_EQ(outcome_of(std::runtime_error("x")).status, 1);
}

}  // namespace
}  // namespace automodel::recipes
