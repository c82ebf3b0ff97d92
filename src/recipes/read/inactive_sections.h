#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/registry.h"
#include "core/field.h"

namespace automodel::recipes {

// Sections that recipes contain and that have no effect here: a whole section is warned of, or
// refused when it asks for something that is not in this version. They are read all the same, so
// that mistakes in them are reported. Names and defaults are upstream's.

/// Why keys that ask for products in fp8 have no effect.
inline constexpr const char* kNoFp8 =
    "matrices are multiplied in the model's dtype here, which is more precise than fp8 and slower "
    "on a GPU that has it";

/// `rng`: upstream reads seeds from it in releases before 0.5 only.
struct RngSection {
  std::optional<int64_t> seed;
  std::optional<bool> ranked;

  static constexpr auto fields() {
    using S = RngSection;
    return std::tuple{field("seed", &S::seed, "the top-level seed is meant"),
                      field("ranked", &S::ranked, "every rank its own numbers")};
  }
};

/// `compile`.
struct CompileSection {
  bool enabled = false;
  std::optional<std::string> mode;
  bool fullgraph = false;
  bool dynamic = false;
  std::optional<std::string> backend;
  std::optional<config::Node> options;
  std::optional<int64_t> dynamo_cache_size_limit;

  static constexpr auto fields() {
    using S = CompileSection;
    return std::tuple{
        field("enabled", &S::enabled, "compile the model"),
        field("mode", &S::mode, "torch.compile's mode"),
        field("fullgraph", &S::fullgraph, "no breaks in the graph"),
        field("dynamic", &S::dynamic, "dynamic shapes"),
        field("backend", &S::backend, "torch.compile's back end"),
        field("options", &S::options, "torch.compile's options, in place of a mode"),
        field("dynamo_cache_size_limit", &S::dynamo_cache_size_limit, "graphs to keep").above(0)};
  }
};

/// `fp8`.
struct Fp8Section {
  bool enabled = false;
  std::optional<std::string> recipe_name;
  bool enable_fsdp_float8_all_gather = false;
  bool precompute_float8_dynamic_scale_for_fsdp = false;
  bool force_recompute_fp8_weight_in_bwd = false;
  std::vector<std::string> filter_fqns;
  bool emulate = false;

  static constexpr auto fields() {
    using S = Fp8Section;
    return std::tuple{
        field("enabled", &S::enabled, "products in fp8"),
        field("recipe_name", &S::recipe_name, "tensorwise, rowwise or rowwise_with_gw_hp"),
        field("enable_fsdp_float8_all_gather", &S::enable_fsdp_float8_all_gather,
              "gather parameters in fp8"),
        field("precompute_float8_dynamic_scale_for_fsdp",
              &S::precompute_float8_dynamic_scale_for_fsdp, "scales of all parameters at once"),
        field("force_recompute_fp8_weight_in_bwd", &S::force_recompute_fp8_weight_in_bwd,
              "cast weights again in backward"),
        field("filter_fqns", &S::filter_fqns, "modules that stay").or_one(),
        field("emulate", &S::emulate, "without fp8 hardware")};
  }
};

/// `prewarm`.
struct PrewarmSection {
  bool cublas_backward = false;
  bool fla_gdn_autotune = false;
  bool mamba_ssd_autotune = false;
  bool comm_groups = false;
  bool pipeline_stage_compile = false;

  static constexpr auto fields() {
    using S = PrewarmSection;
    return std::tuple{
        field("cublas_backward", &S::cublas_backward, "cuBLAS"),
        field("fla_gdn_autotune", &S::fla_gdn_autotune, "kernels of linear attention"),
        field("mamba_ssd_autotune", &S::mamba_ssd_autotune, "kernels of Mamba"),
        field("comm_groups", &S::comm_groups, "process groups"),
        field("pipeline_stage_compile", &S::pipeline_stage_compile, "compiled stages")};
  }
};

/// `comet`.
struct CometSection {
  std::string project_name = "automodel";
  std::optional<std::string> workspace;
  std::optional<std::string> api_key;
  std::optional<std::string> experiment_name;
  std::vector<std::string> tags;
  bool auto_metric_logging = false;

  static constexpr auto fields() {
    using S = CometSection;
    return std::tuple{field("project_name", &S::project_name, "project"),
                      field("workspace", &S::workspace, "workspace"),
                      field("api_key", &S::api_key, "key"),
                      field("experiment_name", &S::experiment_name, "name of the run"),
                      field("tags", &S::tags, "tags").or_one(),
                      field("auto_metric_logging", &S::auto_metric_logging, "all metrics")};
  }
};

/// Reads a section that has no effect: adds findings about its keys, and a warning or the reason
/// why it is refused. Returns false when the section is none of these.
bool check_inactive_section(const config::Node& section, config::Diagnostics& diagnostics);

/// The names of these sections.
std::vector<std::string> inactive_section_names();

/// Why such a section has no effect or is refused; "" for names of none.
std::string inactive_section_text(std::string_view name);

}  // namespace automodel::recipes
