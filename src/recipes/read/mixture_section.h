#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "config/node.h"
#include "config/registry.h"
#include "core/field.h"
#include "datasets/samples/mixture.h"
#include "recipes/read/dataset_recipe.h"

namespace automodel::recipes {

/// The keys of torch.utils.data.ConcatDataset.
struct ConcatDatasetSection {
  std::vector<config::Node> datasets;

  static constexpr auto fields() {
    return std::tuple{
        field("datasets", &ConcatDatasetSection::datasets, "sections of the datasets").required()};
  }
};

/// The keys of datasets.interleave_datasets; names and defaults are those of that package.
struct InterleaveDatasetsSection {
  std::vector<config::Node> datasets;
  std::optional<std::vector<double>> probabilities;
  std::optional<int64_t> seed;
  datasets::StoppingStrategy stopping_strategy = datasets::StoppingStrategy::kFirstExhausted;

  static constexpr auto fields() {
    using S = InterleaveDatasetsSection;
    return std::tuple{
        field("datasets", &S::datasets, "sections of the datasets").required(),
        field("probabilities", &S::probabilities,
              "chance of each dataset, with the sum 1; absent: one sample of each in turn")
            .at_least(0),
        field("seed", &S::seed, "of the draws by probabilities; absent: the recipe's").at_least(0),
        field("stopping_strategy", &S::stopping_strategy,
              "the epoch ends with the first dataset that ends (first_exhausted), or when all have "
              "ended, of which the shorter ones begin anew (all_exhausted) or not "
              "(all_exhausted_without_replacement)")};
  }
};

/// Makers of mixtures (DatasetMaker).
std::unique_ptr<DatasetRecipe> read_concatenated(const config::Target& target,
                                                 config::Diagnostics& diagnostics);
std::unique_ptr<DatasetRecipe> read_interleaved(const config::Target& target,
                                                config::Diagnostics& diagnostics);

/// A mixture's section with all that it and its datasets say of their one tokenizer; any other
/// section as it is. Two that say different things are an error.
config::Node with_tokenizer_of_parts(const config::Node& section, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
