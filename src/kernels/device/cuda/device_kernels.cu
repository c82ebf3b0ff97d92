#include "kernels/device/cuda/current_stream.h"
#include "kernels/device/launches.h"

namespace automodel::kernels::device {

namespace {

/// A warp, of which several make a block, or a whole block.
template <int kNumThreads>
class CudaTeam {
 public:
  static constexpr int kThreads = kNumThreads;

  template <typename S>
  class Own {
   public:
    __device__ S& operator[](int) { return value_; }

   private:
    S value_;
  };

  __device__ explicit CudaTeam(int scratch_floats) : scratch_floats_(scratch_floats) {}

  __device__ int64_t index() const { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
  __device__ int64_t count() const { return int64_t{gridDim.x} * blockDim.y; }

  template <typename F>
  __device__ void each(const F& f) {
    f(static_cast<int>(threadIdx.x));
    wait();
  }

  template <typename F>
  __device__ float sum(const F& f) {
    return reduced(f(static_cast<int>(threadIdx.x)), [](float a, float b) { return a + b; });
  }
  template <typename F>
  __device__ double total(const F& f) {
    return reduced(f(static_cast<int>(threadIdx.x)), [](double a, double b) { return a + b; });
  }
  template <typename F>
  __device__ float most(const F& f) {
    return reduced(f(static_cast<int>(threadIdx.x)),
                   [](float a, float b) { return a < b ? b : a; });
  }

  template <typename F, typename G>
  __device__ void sum_in_groups(int lanes, const F& f, const G& g) {
    exchange(1, lanes, f, g);
  }
  template <typename F, typename G>
  __device__ void sum_between_groups(int lanes, const F& f, const G& g) {
    exchange(lanes, kThreads, f, g);
  }

  __device__ float* scratch() const {
    extern __shared__ float of_block[];
    return scratch_floats_ == 0 ? nullptr : of_block + threadIdx.y * scratch_floats_;
  }

  __device__ void refuse() const { __trap(); }

 private:
  __device__ void wait() const {
    if constexpr (kThreads == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  /// Over the threads whose numbers differ in the bits from `first` up to `end`.
  template <typename F, typename G>
  __device__ void exchange(int first, int end, const F& f, const G& g) const {
    static_assert(kThreads == 32);
    float sum = f(static_cast<int>(threadIdx.x));
    for (int distance = first; distance < end; distance *= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    }
    g(static_cast<int>(threadIdx.x), sum);
    wait();
  }

  template <typename S, typename Join>
  __device__ S reduced(S value, const Join& join) const {
    for (int distance = 16; distance > 0; distance /= 2) {
      value = join(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    if constexpr (kThreads > 32) {
      __shared__ S of_warps[kThreads / 32];
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = of_warps[0];
      for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, of_warps[warp]);
    }
    wait();
    return value;
  }

  int scratch_floats_;
};

/// Threads of a block: four warps, each a team, or one larger team.
template <int kThreads>
constexpr int kMostThreads = kThreads == 32 ? 128 : kThreads;

template <int kThreads, typename Body>
__global__ void __launch_bounds__(kMostThreads<kThreads>)
    run_body(const Body body, int scratch_floats) {
  CudaTeam<kThreads> team(scratch_floats);
  body(team);
}

struct CudaLauncher {
  static int64_t num_processors() { return num_cuda_processors(); }
  static bool has_flash_attention() { return cuda_generation() >= 8; }
  /// On the older ones FlashAttention is as fast. On the newer ones cuDNN 9.19 is not proven: wrong
  /// results with few heads of keys are reported there (pytorch/pytorch issue 193893).
  static bool has_cudnn_attention() { return cuda_generation() == 9; }
  /// PyTorch's kernels are for these two; for others it reads the counts back.
  static bool has_grouped_products() { return cuda_generation() == 9 || cuda_generation() == 10; }

  template <int kThreads, typename Body>
  static void run(int64_t num_teams, int64_t scratch_floats, const Body& body) {
    // Teams of a block must be whole: every row of partial sums has a team, and no team is more.
    constexpr int64_t kMost = kMostThreads<kThreads> / kThreads;
    const int64_t in_block = num_teams % kMost == 0 ? kMost : 1;
    const dim3 grid(static_cast<unsigned>(num_teams / in_block));
    const dim3 block(kThreads, static_cast<unsigned>(in_block));
    const size_t bytes = static_cast<size_t>(in_block * scratch_floats) * sizeof(float);
    run_body<kThreads><<<grid, block, bytes, static_cast<cudaStream_t>(current_cuda_stream())>>>(
        body, static_cast<int>(scratch_floats));
    check_cuda_launch();
  }
};

}  // namespace

}  // namespace automodel::kernels::device

/// What kernels_for() looks for.
extern "C" const automodel::kernels::device::DeviceKernels* automodel_cuda_kernels() {
  using automodel::kernels::device::CudaLauncher;
  static const auto kernels = automodel::kernels::device::kernels_by<CudaLauncher>();
  return &kernels;
}
