#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"

namespace automodel::recipes {

/// `benchmark`: what BenchmarkingRecipeForNextTokenPrediction measures. Names are upstream's.
struct BenchmarkSection {
  int64_t warmup_steps = 0;
  std::optional<double> peak_tflops;
  std::optional<int64_t> nsys_start;
  std::optional<int64_t> nsys_end;
  std::optional<std::vector<int64_t>> nsys_ranks;
  std::optional<int64_t> num_nodes;
  std::optional<std::string> json_output_path;
  std::string flops_scope = "model";

  static constexpr auto fields() {
    using S = BenchmarkSection;
    return std::tuple{
        field("warmup_steps", &S::warmup_steps, "first steps, which averages leave out")
            .at_least(0),
        field("peak_tflops", &S::peak_tflops,
              "peak TFLOP/s of one device; absent: mfu's, or the device's from a table")
            .above(0),
        field("nsys_start", &S::nsys_start, "first profiled step; -1: none").at_least(-1),
        field("nsys_end", &S::nsys_end, "last profiled step; -1: none").at_least(-1),
        field("nsys_ranks", &S::nsys_ranks, "profiled ranks"),
        field("num_nodes", &S::num_nodes, "machines")
            .at_least(1)
            .without_effect("the launcher says how many there are"),
        field("json_output_path", &S::json_output_path, "file for the report"),
        field("flops_scope", &S::flops_scope, "model or text")};
  }
};

}  // namespace automodel::recipes
