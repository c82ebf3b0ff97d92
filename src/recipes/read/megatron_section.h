#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "config/node.h"
#include "config/registry.h"
#include "core/field.h"
#include "datasets/samples/most_tokens.h"
#include "recipes/read/dataset_recipe.h"

namespace automodel::recipes {

/// The keys of MegatronPretraining; names and defaults are upstream's.
struct MegatronSection {
  config::Node paths;
  int64_t seq_length = 2048;
  int64_t seed = 1234;
  std::optional<config::Node> split;
  std::string splits_to_build;
  std::optional<int64_t> num_train_samples;
  std::optional<int64_t> num_val_samples;
  std::optional<int64_t> num_test_samples;
  std::optional<config::Node> trainer_limit_val_batches;
  std::optional<config::Node> trainer_limit_test_batches;
  std::optional<std::string> index_mapping_dir;
  std::optional<int64_t> num_dataset_builder_threads;
  std::optional<bool> create_attention_mask;
  std::optional<bool> mmap_bin_files;

  static constexpr auto fields() {
    using S = MegatronSection;
    return std::tuple{
        field(
            "paths", &S::paths,
            "token files without .bin and .idx: one, a glob, a list, weights and files in turn, a "
            "mapping of train, validation and test to such, or a JSON file with a list or mapping")
            .required(),
        field("seq_length", &S::seq_length, "tokens of a sample")
            .at_least(1)
            .at_most(datasets::kMostTokens),
        field("seed", &S::seed, "of the order of documents and samples")
            .at_least(0)
            .at_most(4294967295),
        field("split", &S::split,
              "shares of training, validation and test in the documents (default: 900,50,50); not "
              "where paths has a part for each"),
        field("splits_to_build", &S::splits_to_build,
              "which part this is: train, validation or test")
            .required(),
        field("num_train_samples", &S::num_train_samples,
              "samples for training (default: max_steps * global_batch_size, else one epoch)")
            .at_least(1),
        field("num_val_samples", &S::num_val_samples, "samples of a validation").at_least(1),
        field("num_test_samples", &S::num_test_samples, "samples of the test part").at_least(1),
        field(
            "trainer_limit_val_batches", &S::trainer_limit_val_batches,
            "global batches of each validation (default: 1); 1.0, where paths has a part for each: "
            "all of it"),
        field("trainer_limit_test_batches", &S::trainer_limit_test_batches, "batches of a test")
            .without_effect("upstream ignores it too"),
        field("index_mapping_dir", &S::index_mapping_dir, "folder of kept indices")
            .without_effect("indices are built in memory, in seconds"),
        field("num_dataset_builder_threads", &S::num_dataset_builder_threads,
              "threads that build indices")
            .without_effect("indices are built in seconds"),
        field("create_attention_mask", &S::create_attention_mask, "masks in batches")
            .without_effect("attention is causal without them"),
        field("mmap_bin_files", &S::mmap_bin_files, "how .bin files are read")
            .without_effect("files are read piece by piece")};
  }
};

/// Reads the options of MegatronPretraining; returns nullptr after reporting errors in them.
std::unique_ptr<DatasetRecipe> read_megatron(const config::Target& target,
                                             config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
