// Runs of DiffusionGemma whose experts lie on several ranks.
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

std::vector<Json> diffusion_records(const std::string& folder, const char* recomputes) {
  const test::ProgramResult run = test::run_program(test::on(
      {2, {"--distributed.ep_size=2", cat("--distributed.activation_checkpointing=", recomputes)}},
      {test::automodel_binary(), "run",
       test::source_file("recipes/smoke/tiny_diffusion_gemma.yaml"),
       cat("--checkpoint.checkpoint_dir=", folder)}));
  EXPECT_EQ(run.status, 0) << run.err;
  return test::read_records(path_join(folder, "training.jsonl"));
}

/// The layers run three times forward and twice backward, and their experts' whole gradients are
/// averaged once. Any other rounding grows: Adam makes full steps of gradients that nearly cancel.
TEST(DiffusionExpertsTest, RecomputationChangesNothing) {
  const test::TemporaryDirectory folder;
  const std::vector<Json> plain = diffusion_records(folder.file("plain"), "false");
  ASSERT_EQ(plain.size(), 6u);
  for (const char* recomputes : {"true", "selective"}) {
    const std::vector<Json> again = diffusion_records(folder.file(recomputes), recomputes);
    ASSERT_EQ(again.size(), 6u);
    for (size_t i = 0; i < plain.size(); ++i) {
      for (const char* key : {"loss", "dllm_loss", "grad_norm"}) {
        EXPECT_EQ(again[i].at(key).as_double(), plain[i].at(key).as_double())
            << key << " of step " << i << ", " << recomputes;
      }
    }
  }
}

}  // namespace
}  // namespace automodel::recipes
