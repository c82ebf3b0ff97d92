#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "distributed/fsdp/flat_layout.h"
#include "distributed/fsdp/flat_memory.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// A parameter and its fqn.
using NamedParameter = std::pair<std::string, at::Tensor>;

/// Parameters that share a flat buffer: they have the same unit, dtype and trainability.
struct FlatParameters {
  std::string unit;  ///< fqn of the plan's block or table; "" for the root
  at::ScalarType dtype;
  bool is_trained;
  bool keeps_dtype;  ///< whatever the policy: bytes, and nn::is_buffer_parameter()
  std::vector<NamedParameter> parameters;  ///< in registration order

  /// The layout for `num_ranks` equal ranges of elements of `element_size` bytes (lay_out).
  FlatLayout layout(int64_t element_size, int64_t num_ranks, int64_t border_numel = 1) const;
  int64_t numel() const;  ///< without padding
};

/// The fqns of embedding and head as units of their own; "" for one that stays in the root.
struct TableUnits {
  std::string embedding;
  std::string head;
};

/// The table units of a model whose head is not its embedding. Each trained table gets its own
/// buffer, where upstream has both in the root's. A tied or frozen table stays in the root.
TableUnits untied_tables(torch::nn::Module& module, const nn::ParallelPlan& plan);

/// The parameters of a module by unit: `experts` (fqns of modules), the plan's blocks, `tables`,
/// and the root for all others.
std::vector<FlatParameters> flat_parameters(torch::nn::Module& module, const nn::ParallelPlan& plan,
                                            const TableUnits& tables = {},
                                            const std::vector<std::string>& experts = {});

/// The flat groups of the parameters of one unit.
std::vector<FlatParameters> flat_parameters(const std::string& unit,
                                            const std::vector<NamedParameter>& parameters);

/// The parts of tensors, by Hugging Face names, in elements [begin, end) of a flat buffer; their
/// offsets count from `begin`. A tensor (or its box in the key map) is stored row by row, so a part
/// is a flat range of it.
std::vector<tensor::FlatSegment> segments_in(const FlatLayout& layout, const tensor::KeyMap& keys,
                                             int64_t begin, int64_t end);

/// The key map of a module whose tensors are saved under its own parameter names; a parameter with
/// several has the first.
tensor::KeyMap own_names(const torch::nn::Module& module);

/// The module with a dotted name below `root`.
torch::nn::Module& module_at(torch::nn::Module& root, const std::string& fqn);

}  // namespace automodel::distributed
