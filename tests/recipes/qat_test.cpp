// Runs of quantization-aware training beside PyTorch's with torchao's quantizer: qat.yaml and
// qat.json of tests/recipes/data (scripts/goldens/make_qat_goldens.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult quantized(const char* command, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {test::automodel_binary(), command,
                                        test::source_file("tests/recipes/data/qat.yaml")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(arguments);
}

std::vector<Json> quantized_records(const std::string& folder, std::vector<std::string> more = {}) {
  more.push_back(cat("--checkpoint.checkpoint_dir=", folder));
  const ProgramResult run = quantized("run", more);
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

struct QatMesh {
  const char* name;
  test::Spread spread;
};

class QatRunTest : public testing::TestWithParam<QatMesh> {};

TEST_P(QatRunTest, LossesAreThoseOfTorchao) {
  const TemporaryDirectory folder;
  const std::vector<Json> records =
      quantized_records(folder.file("run"), test::on(GetParam().spread, {}));
  const Json golden = Json::parse_file(test::source_file("tests/recipes/data/qat.json"));
  const Json::Array& wanted = golden.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    const auto expect_close = [&](const char* key, const char* spread, double tolerance) {
      const double expected = wanted[i].at(key).as_double();
      EXPECT_NEAR(records[i].at(key).as_double(), expected,
                  2 * wanted[i].at(spread).as_double() + tolerance * expected)
          << key;
    };
    expect_close("loss", "loss_spread", 2e-6);
    expect_close("grad_norm", "norm_spread", 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, QatRunTest,
    testing::Values(QatMesh{"one", {}}, QatMesh{"ddp", {2, {}}}, QatMesh{"fsdp2", test::sharded(2)},
                    QatMesh{"recomputed",
                            test::sharded(2, {"--distributed.activation_checkpointing=true"})},
                    QatMesh{"cp2", test::sharded(2, {"--distributed.cp_size=2"})},
                    QatMesh{"megatron_fsdp", {2, {"--distributed.strategy=megatron_fsdp"}}}),
    [](const auto& info) { return info.param.name; });

TEST(QatTest, StagesOfAPipelineRoundAsOneModelDoes) {
  const TemporaryDirectory folder;
  const std::vector<std::string> options = {
      "--model._target_=NeMoAutoModelForCausalLM.from_config",
      "--model.pretrained_model_name_or_path=none",
      cat("--model.config=", test::source_file("configs/tiny/llama")),
      "--qat.qat_config.groupsize=16", "--optimizer.lr=1e-4"};
  const std::vector<std::string> staged = test::on(
      test::sharded(2, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1F1B"}),
      options);
  const std::vector<Json> one = quantized_records(folder.file("one"), options);
  const std::vector<Json> two = quantized_records(folder.file("two"), staged);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    const double loss = one[i].at("loss").as_double();
    EXPECT_NEAR(two[i].at("loss").as_double(), loss, 1e-4 * loss) << i;
  }
}

/// The step at which rounding begins is the run's, not the process's.
TEST(QatTest, AResumedRunContinuesToTheBit) {
  const TemporaryDirectory folder;
  const std::vector<std::string> late = {"--qat.fake_quant_after_n_steps=4"};
  const std::vector<Json> whole = quantized_records(folder.file("whole"), late);
  quantized_records(folder.file("parts"),
                    {"--qat.fake_quant_after_n_steps=4", "--step_scheduler.max_steps=3"});
  test::expect_equal_records(whole, quantized_records(folder.file("parts"), late), 0);
}

TEST(QatTest, TellsWhichLayersStayAsTheyAre) {
  const ProgramResult some = quantized("check", {"--qat.qat_config.groupsize=16"});
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_THAT(some.err + some.out,
              HasSubstr("rows of model.layers.0.mlp.down_proj and 1 more are no multiple of 16: "
                        "they are not rounded"));
  const ProgramResult none = quantized("check", {"--qat.qat_config.groupsize=256"});
  EXPECT_EQ(none.status, 2) << none.err;
  EXPECT_THAT(none.err + none.out, HasSubstr("no layer would be rounded"));
  const ProgramResult padded = quantized(
      "check", {"--qat.qat_config.groupsize=16", "--qat.qat_config.padding_allowed=true"});
  EXPECT_EQ(padded.status, 2) << padded.err;
}

/// A model whose rows can be cut into groups of 32.
TEST(QatTest, WeightsAloneAreRoundedOtherwise) {
  const TemporaryDirectory folder;
  const auto last_loss = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {
        "--model._target_=NeMoAutoModelForCausalLM.from_config",
        "--model.pretrained_model_name_or_path=none",
        cat("--model.config=", test::source_file("configs/tiny/llama")),
        "--step_scheduler.max_steps=3"};
    options.insert(options.end(), more.begin(), more.end());
    const std::vector<Json> records = quantized_records(folder.file(name), options);
    return records.empty() ? 0.0 : records.back().at("loss").as_double();
  };
  const double both = last_loss("both", {"--qat.qat_config.groupsize=32"});
  const std::vector<std::string> alone = {"--qat.qat_config.groupsize=32",
                                          "--qat.qat_config.quantizer_type=int4_weight_only",
                                          "--qat.qat_config.inner_k_tiles=2"};
  const double weights = last_loss("weights", alone);
  const double none = last_loss("none", {"--qat=none"});
  EXPECT_NE(both, weights);
  EXPECT_NE(weights, none);
  EXPECT_NEAR(weights, none, 0.05 * none);
  const ProgramResult odd = quantized("check", {"--qat.qat_config.quantizer_type=int4_weight_only",
                                                "--qat.qat_config.groupsize=32"});
  EXPECT_EQ(odd.status, 2);
  EXPECT_THAT(odd.err + odd.out, HasSubstr("are no multiple of 128 (of groupsize and of 16 x "
                                           "inner_k_tiles)"));
}

/// Whatever the reason, a run that would round nothing is a mistake.
TEST(QatTest, RoundingNothingIsAMistake) {
  const auto checked = [](const char* golden, std::vector<std::string> more) {
    more.insert(more.end(), {"--model._target_=NeMoAutoModelForCausalLM.from_config",
                             "--model.pretrained_model_name_or_path=none",
                             cat("--model.config=", test::source_file("tests/golden/"), golden),
                             "--qat.qat_config.quantizer_type=int4_weight_only"});
    const ProgramResult check = quantized("check", more);
    EXPECT_EQ(check.status, 2) << check.err;
    return check.err + check.out;
  };
  EXPECT_THAT(checked("phi", {"--qat.qat_config.groupsize=32", "--qat.qat_config.inner_k_tiles=2"}),
              HasSubstr("all layers of this model have one"));
  EXPECT_THAT(checked("gpt2", {"--qat.qat_config.groupsize=128"}),
              HasSubstr("rows of the head are no multiple of 128"));
}

TEST(QatTest, RefusesWhatIsNotBuiltWithIt) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--peft.dim=4", "--peft.target_modules=['*_proj']"},
           {"--distributed.tp_size=2", "--distributed.strategy=fsdp2"},
           {"--distributed.strategy=fsdp2", "--distributed.autocast_dtype=bfloat16"}}) {
    const ProgramResult check = quantized("check", options);
    EXPECT_EQ(check.status, 6) << options[0] << check.err;
    EXPECT_THAT(check.err + check.out, HasSubstr("with qat"));
  }
}

}  // namespace
}  // namespace automodel::recipes
