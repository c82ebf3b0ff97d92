#include <gtest/gtest.h>

#include <cmath>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

/// tests/recipes/data/losses.json: what transformers and PyTorch give for the same recipe.
const Json& goldens() {
  static const Json kGoldens =
      Json::parse(read_file(test::source_file("tests/recipes/data/losses.json")), "losses.json");
  return kGoldens;
}

/// `automodel run` arguments for a scenario of the goldens.
std::vector<std::string> arguments_of(const Json& scenario, const std::string& checkpoint_dir) {
  std::vector<std::string> arguments = test::smoke_run(
      checkpoint_dir,
      {"--checkpoint.save_consolidated=false", "--step_scheduler.ckpt_every_steps=1000"});
  const auto add = [&](const std::string& key, const std::string& value) {
    arguments.push_back(cat("--", key, "=", value));
  };
  for (const char* key : {"global_batch_size", "local_batch_size", "num_epochs"}) {
    add(cat("step_scheduler.", key), cat(scenario.at(key).as_int()));
  }
  const Json& max_steps = scenario.at("max_steps");
  add("step_scheduler.max_steps", max_steps.is_null() ? "none" : cat(max_steps.as_int()));
  add("dataloader.shuffle", scenario.at("shuffle").as_bool() ? "true" : "false");
  add("optimizer._target_", scenario.at("optimizer").as_string());
  add("optimizer.lr", scenario.at("lr").dump());
  add("optimizer.weight_decay", scenario.at("weight_decay").dump());
  add("clip_grad_norm.max_norm", scenario.at("max_norm").dump());
  if (const Json& schedule = scenario.at("schedule"); schedule.is_object()) {
    add("lr_scheduler.lr_decay_style", "cosine");
    add("lr_scheduler.lr_warmup_steps", schedule.at("warmup").dump());
    add("lr_scheduler.init_lr", schedule.at("init").dump());
    add("lr_scheduler.min_lr", schedule.at("min").dump());
  }
  if (const Json& every = scenario.at("val_every_steps"); !every.is_null()) {
    add("step_scheduler.val_every_steps", every.dump());
    add("validation_dataset._target_",
        "nemo_automodel.components.datasets.llm.column_mapped_text_instruction_dataset."
        "ColumnMappedTextInstructionDataset");
    add("validation_dataset.path_or_dataset_id", "tests/recipes/data/validation.jsonl");
    add("validation_dataset.column_mapping.question", "question");
    add("validation_dataset.column_mapping.answer", "answer");
    add("validation_dataset.tokenizer.pretrained_model_name_or_path",
        "configs/quickstart_tokenizer");
  }
  return arguments;
}

void expect_close(double found, double wanted, double relative, const std::string& what) {
  EXPECT_NEAR(found, wanted, relative * std::abs(wanted)) << what;
}

/// Losses are float32 sums of some hundred tokens: 2e-6 is some roundings.
constexpr double kLossTolerance = 2e-6;

class LossesTest : public testing::TestWithParam<std::string> {};

TEST_P(LossesTest, EqualThoseOfPython) {
  const Json& golden = goldens().at(GetParam());
  const TemporaryDirectory folder;
  const ProgramResult run =
      test::run_program(arguments_of(golden.at("scenario"), folder.file("run")));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> records = read_records(folder.file("run/training.jsonl"));
  const Json::Array& wanted = golden.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  size_t num_validations = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string where = cat(GetParam(), " step ", i);
    EXPECT_EQ(records[i].at("step").as_int(), wanted[i].at("step").as_int()) << where;
    EXPECT_EQ(records[i].at("epoch").as_int(), wanted[i].at("epoch").as_int()) << where;
    EXPECT_EQ(records[i].at("num_label_tokens").as_int(), wanted[i].at("num_label_tokens").as_int())
        << where;
    expect_close(records[i].at("loss").as_double(), wanted[i].at("loss").as_double(),
                 kLossTolerance, where + " loss");
    expect_close(records[i].at("grad_norm").as_double(), wanted[i].at("grad_norm").as_double(),
                 2e-5, where + " grad_norm");
    expect_close(records[i].at("lr").as_double(), wanted[i].at("lr").as_double(), 1e-12,
                 where + " lr");
    if (wanted[i].contains("val_loss")) ++num_validations;
  }
  if (num_validations == 0) return;
  const std::vector<Json> validations = read_records(folder.file("run/validation.jsonl"));
  ASSERT_EQ(validations.size(), num_validations);
  for (size_t i = 0, next = 0; i < wanted.size(); ++i) {
    if (!wanted[i].contains("val_loss")) continue;
    const Json& validation = validations[next++];
    EXPECT_EQ(validation.at("step").as_int(), wanted[i].at("step").as_int());
    EXPECT_EQ(validation.at("num_label_tokens").as_int(),
              wanted[i].at("val_num_label_tokens").as_int());
    expect_close(validation.at("val_loss").as_double(), wanted[i].at("val_loss").as_double(),
                 kLossTolerance, cat("validation at step ", i));
  }
}

std::vector<std::string> scenarios() {
  std::vector<std::string> names;
  for (const auto& [name, golden] : goldens().as_object()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Python, LossesTest, testing::ValuesIn(scenarios()), [](const auto& info) {
  return replace_all(replace_all(info.param, ".", "_"), "-", "_");
});

}  // namespace
}  // namespace automodel::recipes
