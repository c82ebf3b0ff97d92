// Names of models' tensors that other rooms go by.
#include <gtest/gtest.h>

#include "checkpoint/hf_folder.h"
#include "models/causal_lm.h"
#include "models/golden_families.h"
#include "recipes/section_recipe.h"

namespace automodel::recipes {
namespace {

class ModelNamesTest : public testing::TestWithParam<std::string> {};

/// A tied model's files may hold both, and adapters and exports find them by their names.
TEST_P(ModelNamesTest, EmbeddingAndHeadAreKnownByThem) {
  const auto model = golden_model(GetParam());
  for (const tensor::ParameterPart& part : model->key_map()) {
    if (part.parameter == "model.embed_tokens.weight") {
      EXPECT_TRUE(checkpoint::is_embedding_name(part.name)) << part.name;
    }
    if (part.parameter == "lm_head.weight") {
      EXPECT_TRUE(checkpoint::is_head_name(part.name)) << part.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelNamesTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel::recipes
