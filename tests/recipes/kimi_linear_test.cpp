// A recipe as upstream's for Kimi Linear, with a tiny model.
#include <gtest/gtest.h>

#include "recipes/folders.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::Spread;
using test::TemporaryDirectory;

std::string golden() {
  return test::source_file("tests/golden/kimi_linear");
}

/// The model section of upstream's recipe, and data of the tiny model's vocabulary.
std::vector<std::string> recipe_keys() {
  const std::string config = "--model.config.";
  return {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
          "--model.pretrained_model_name_or_path=none",
          config +
              "_target_=nemo_automodel.components.models.kimi_linear.config.KimiLinear48BConfig."
              "from_pretrained",
          config + "pretrained_model_name_or_path=" + golden(),
          config + "name_or_path=" + golden(),
          config + "kda_mode=chunk",
          config + "kda_unpad_inputs=false",
          config + "kda_use_fused_gate=true",
          config + "kda_use_qk_l2norm_in_kernel=true",
          "--model.trust_remote_code=true",
          "--model.torch_dtype=float32",
          "--model.load_base_model=true",
          "--step_scheduler.max_steps=3",
          "--step_scheduler.ckpt_every_steps=3",
          "--dataset._target_=MockIterableDataset",
          "--dataset.vocab_size=96",
          "--dataset.seq_len=70",
          "--dataset.num_samples=64",
          "--dataset.batch_size=2",
          "--dataset.column_mapping=none",
          "--dataset.path_or_dataset_id=none",
          "--dataset.tokenizer=none"};
}

std::vector<Json> train(const std::string& out, const Spread& spread,
                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = recipe_keys();
  keys.insert(keys.end(), more.begin(), more.end());
  const ProgramResult result = test::run_program(test::on(spread, test::smoke_run(out, keys)));
  EXPECT_EQ(result.status, 0) << result.err;
  return test::read_records(out + "/training.jsonl");
}

TEST(KimiLinearRecipe, TrainsAsOnOneRankWithItsExpertsOnTwo) {
  const TemporaryDirectory folder;
  const auto wanted = train(folder.file("one"), {1, {}});
  ASSERT_EQ(wanted.size(), 3);
  const auto found = train(folder.file("two"), test::sharded(2, {"--distributed.ep_size=2"}));
  test::expect_equal_records(wanted, found, 2e-6);
}

TEST(KimiLinearRecipe, LoadBaseModelReadsTheWeightsOfAConfiguration) {
  const TemporaryDirectory folder;
  const auto read = train(folder.file("read"), {1, {}});
  const auto drawn = train(folder.file("drawn"), {1, {}}, {"--model.load_base_model=false"});
  const auto plain =
      train(folder.file("plain"), {1, {}},
            {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM."
             "from_pretrained",
             "--model.config=none", "--model.pretrained_model_name_or_path=" + golden()});
  ASSERT_FALSE(read.empty() || drawn.empty() || plain.empty());
  EXPECT_EQ(read[0].at("loss"), plain[0].at("loss"));
  EXPECT_NE(drawn[0].at("loss"), plain[0].at("loss"));
}

}  // namespace
}  // namespace automodel::recipes
