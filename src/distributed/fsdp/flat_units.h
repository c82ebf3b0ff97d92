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

/// Parameters that share a flat buffer: same unit, dtype and whether they are trained.
struct FlatGroup {
  std::string unit;  ///< fqn of the plan's block or table; "" for the root
  at::ScalarType dtype;
  bool is_trained;
  std::vector<NamedParameter> parameters;  ///< in registration order

  /// For `num_ranks` equal ranges, of elements of `element_size` bytes.
  FlatLayout layout(int64_t element_size, int64_t num_ranks) const;
  int64_t numel() const;  ///< padding not counted
};

/// Embedding and head as units of their own; "" for one that stays in the root.
struct TableUnits {
  std::string embedding;
  std::string head;
};

/// The table units of a model whose head is not the embedding: a buffer for each trained table
/// instead of the root's for both, as upstream. A tied or frozen table stays in the root.
TableUnits untied_tables(torch::nn::Module& module, const nn::ParallelPlan& plan);

/// The parameters of a module by unit: `experts` (fqns of modules), the plan's blocks, `tables`
/// and, for all others, the root.
std::vector<FlatGroup> group_parameters(torch::nn::Module& module, const nn::ParallelPlan& plan,
                                        const TableUnits& tables = {},
                                        const std::vector<std::string>& experts = {});

/// Groups the parameters of one unit.
std::vector<FlatGroup> group_parameters(const std::string& unit,
                                        const std::vector<NamedParameter>& parameters);

/// What lies in elements [begin, end) of a flat buffer, by Hugging Face names; offsets count from
/// `begin`. Every tensor (or the box of it that the key map names) is taken row by row, so a piece
/// is a flat range of it.
std::vector<tensor::FlatSegment> segments_in(const FlatLayout& layout, const tensor::KeyMap& keys,
                                             int64_t begin, int64_t end);

/// The key map of a module whose tensors are saved under its own parameters' names.
tensor::KeyMap own_names(const torch::nn::Module& module);

/// The module of a dotted name below `root`.
torch::nn::Module& module_at(torch::nn::Module& root, const std::string& fqn);

}  // namespace automodel::distributed
