#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/device/device_kernels.h"
#include "kernels/device/launches.h"

namespace automodel::kernels::device {

/// A team whose threads take their turns on the host. Between two waits the threads of a device run
/// in any order: here in one or the other, so that work which depends on it has two results.
template <int kNumThreads>
class HostTeam {
 public:
  static constexpr int kThreads = kNumThreads;
  template <typename S>
  using Own = std::array<S, kNumThreads>;

  HostTeam(int64_t index, int64_t count, int64_t scratch_floats, bool is_backward)
      : index_(index),
        count_(count),
        scratch_(static_cast<size_t>(scratch_floats), std::numeric_limits<float>::quiet_NaN()),
        is_backward_(is_backward) {}

  int64_t index() const { return index_; }
  int64_t count() const { return count_; }
  float* scratch() { return scratch_.empty() ? nullptr : scratch_.data(); }
  void refuse() const { throw InputError("refused"); }

  template <typename F>
  void each(const F& f) {
    for (int i = 0; i < kThreads; ++i) f(is_backward_ ? kThreads - 1 - i : i);
  }
  template <typename F>
  float sum(const F& f) {
    return reduced<float>(f, [](float a, float b) { return a + b; });
  }
  template <typename F, typename G>
  void sum_in_groups(int lanes, const F& f, const G& g) {
    exchange(1, static_cast<size_t>(lanes), f, g);
  }
  template <typename F, typename G>
  void sum_between_groups(int lanes, const F& f, const G& g) {
    exchange(static_cast<size_t>(lanes), kThreads, f, g);
  }
  template <typename F>
  double total(const F& f) {
    return reduced<double>(f, [](double a, double b) { return a + b; });
  }
  template <typename F>
  float most(const F& f) {
    return reduced<float>(f, [](float a, float b) { return a < b ? b : a; });
  }

 private:
  template <typename F, typename G>
  void exchange(size_t first, size_t end, const F& f, const G& g) {
    std::array<float, kThreads> values;
    each([&](int thread) { values[static_cast<size_t>(thread)] = f(thread); });
    for (size_t distance = first; distance < end; distance *= 2) {
      const std::array<float, kThreads> before = values;
      for (size_t i = 0; i < values.size(); ++i) values[i] = before[i] + before[i ^ distance];
    }
    each([&](int thread) { g(thread, values[static_cast<size_t>(thread)]); });
  }

  /// In the order of a warp's exchanges, then of the warps.
  template <typename S, typename F, typename Join>
  S reduced(const F& f, const Join& join) {
    constexpr size_t kWarp = 32;
    std::array<S, kThreads> values;
    each([&](int thread) { values[static_cast<size_t>(thread)] = f(thread); });
    for (size_t distance = kWarp / 2; distance > 0; distance /= 2) {
      const std::array<S, kThreads> before = values;
      for (size_t i = 0; i < values.size(); ++i) values[i] = join(before[i], before[i ^ distance]);
    }
    S all = values[0];
    for (size_t warp = kWarp; warp < values.size(); warp += kWarp) all = join(all, values[warp]);
    return all;
  }

  int64_t index_;
  int64_t count_;
  std::vector<float> scratch_;
  bool is_backward_;
};

/// Runs the bodies of a device's kernels on the host, the teams one after the other.
struct HostLauncher {
  static inline bool is_backward = false;
  static inline int64_t num_launches = 0;
  /// Whether PyTorch's operations have something on the CPU that stands for a device's.
  static inline bool has_flash = false;
  static inline bool has_cudnn = false;
  static inline bool has_grouped = true;

  /// Few, so that a team has several rows.
  static int64_t num_processors() { return 1; }
  static bool has_flash_attention() { return has_flash; }
  static bool has_cudnn_attention() { return has_cudnn; }
  static bool has_grouped_products() { return has_grouped; }

  template <int kThreads, typename Body>
  static void run(int64_t num_teams, int64_t scratch_floats, const Body& body) {
    num_launches += 1;
    // A block's memory on a device: the scratch of its teams, at most 4 warps, and their sums.
    constexpr int64_t kMostBytes = 48 * 1024, kSumBytes = 8 * (kThreads / 32);
    const int64_t in_block = kThreads == 32 && num_teams % 4 == 0 ? 4 : 1;
    AM_CHECK(in_block * scratch_floats * 4 + kSumBytes <= kMostBytes, "scratch of ",
             scratch_floats);
    for (int64_t i = 0; i < num_teams; ++i) {
      HostTeam<kThreads> team(is_backward ? num_teams - 1 - i : i, num_teams, scratch_floats,
                              is_backward);
      body(team);
    }
  }
};

inline const DeviceKernels& host_kernels() {
  static const DeviceKernels kernels = kernels_by<HostLauncher>();
  return kernels;
}

}  // namespace automodel::kernels::device
