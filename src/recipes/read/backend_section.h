#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "config/node.h"
#include "core/field.h"

namespace automodel::recipes {

/// `model.backend.te_fp8`.
struct TeFp8Section {
  std::string recipe = "current";

  static constexpr auto fields() {
    return std::tuple{field("recipe", &TeFp8Section::recipe, "current, block or mxfp8")};
  }
};

/// `model.backend`, upstream's BackendConfig: which libraries' kernels compute what.
struct BackendSection {
  bool enable_fsdp_optimizations = false;
  bool fake_balanced_gate = false;
  double fake_gate_noise = 0;
  bool benchmark_static_routing = false;
  std::optional<config::Node> cuda_graph;
  std::optional<std::string> gate_precision;
  std::optional<TeFp8Section> te_fp8;
  std::optional<std::string> experts;
  std::optional<std::string> attn;
  std::optional<std::string> linear;
  std::optional<std::string> rms_norm;
  std::optional<std::string> rope;
  std::optional<bool> rope_fusion;
  std::optional<std::string> dispatcher;
  std::optional<int64_t> dispatcher_num_sms;
  std::optional<bool> dispatcher_share_token_dispatcher;
  std::optional<bool> dispatcher_async_dispatch;
  std::optional<bool> dispatcher_hybridep_permute_fusion;
  std::optional<bool> dispatcher_hybridep_compact_routing;
  std::optional<int64_t> dispatcher_hybridep_num_sms_preprocessing;
  std::optional<int64_t> dispatcher_hybridep_num_blocks_permute;
  std::optional<int64_t> dispatcher_hybridep_num_blocks_unpermute;
  std::optional<config::Node> mok;
  std::optional<bool> enable_hf_state_dict_adapter;
  std::optional<bool> enable_deepep;
  std::optional<std::string> sparse_attn;
  std::optional<bool> te_grouped_tensor;
  std::optional<bool> shared_expert_overlap;
  std::optional<bool> compile_attn;
  std::optional<bool> compile_situ;
  std::optional<bool> compile_norm;
  std::optional<bool> compile_router_weight;

  /// Those that something reads. The others choose among implementations, of which there is one
  /// here.
  static constexpr std::array kReadKeys = {"enable_fsdp_optimizations",
                                           "fake_balanced_gate",
                                           "fake_gate_noise",
                                           "benchmark_static_routing",
                                           "cuda_graph",
                                           "gate_precision",
                                           "te_fp8"};
  static bool reads(std::string_view key) {
    return std::ranges::find(kReadKeys, key) != kReadKeys.end();
  }

  static constexpr auto fields() {
    using S = BackendSection;
    return std::tuple{
        field("enable_fsdp_optimizations", &S::enable_fsdp_optimizations,
              "units of experts stay gathered and reduce once a step"),
        field("fake_balanced_gate", &S::fake_balanced_gate, "every expert gets as many tokens"),
        field("fake_gate_noise", &S::fake_gate_noise, "noise of the balanced gate; must be 0")
            .at_least(0),
        field("benchmark_static_routing", &S::benchmark_static_routing,
              "routes are computed once; needs fake_balanced_gate"),
        field("cuda_graph", &S::cuda_graph,
              "true: on one CUDA device, steps of one shape are recorded and launched as one"),
        field("gate_precision", &S::gate_precision, "dtype of routers: float32"),
        field("te_fp8", &S::te_fp8, "products in fp8"),
        field("experts", &S::experts, "kernel of experts"),
        field("attn", &S::attn, "kernel of attention"),
        field("linear", &S::linear, "kernel of linear layers"),
        field("rms_norm", &S::rms_norm, "kernel of norms"),
        field("rope", &S::rope, "kernel of rotary embeddings"),
        field("rope_fusion", &S::rope_fusion, "fused rotary embeddings"),
        field("dispatcher", &S::dispatcher, "how tokens reach experts"),
        field("dispatcher_num_sms", &S::dispatcher_num_sms, "multiprocessors that send"),
        field("dispatcher_share_token_dispatcher", &S::dispatcher_share_token_dispatcher,
              "one dispatcher for all layers"),
        field("dispatcher_async_dispatch", &S::dispatcher_async_dispatch, "send while computing"),
        field("dispatcher_hybridep_permute_fusion", &S::dispatcher_hybridep_permute_fusion,
              "of dispatcher hybridep"),
        field("dispatcher_hybridep_compact_routing", &S::dispatcher_hybridep_compact_routing,
              "of dispatcher hybridep"),
        field("dispatcher_hybridep_num_sms_preprocessing",
              &S::dispatcher_hybridep_num_sms_preprocessing, "of dispatcher hybridep"),
        field("dispatcher_hybridep_num_blocks_permute", &S::dispatcher_hybridep_num_blocks_permute,
              "of dispatcher hybridep"),
        field("dispatcher_hybridep_num_blocks_unpermute",
              &S::dispatcher_hybridep_num_blocks_unpermute, "of dispatcher hybridep"),
        field("mok", &S::mok, "options of dispatcher mok"),
        field("enable_hf_state_dict_adapter", &S::enable_hf_state_dict_adapter,
              "Hugging Face names in checkpoints, which always have them"),
        field("enable_deepep", &S::enable_deepep, "an old name of dispatcher"),
        field("sparse_attn", &S::sparse_attn, "kernel of sparse attention"),
        field("te_grouped_tensor", &S::te_grouped_tensor, "of experts te"),
        field("shared_expert_overlap", &S::shared_expert_overlap,
              "shared experts while tokens travel"),
        field("compile_attn", &S::compile_attn, "torch.compile"),
        field("compile_situ", &S::compile_situ, "torch.compile"),
        field("compile_norm", &S::compile_norm, "torch.compile"),
        field("compile_router_weight", &S::compile_router_weight, "torch.compile")};
  }
};

}  // namespace automodel::recipes
