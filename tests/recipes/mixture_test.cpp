// Mixtures of datasets in runs of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::expect_equal_records;
using test::ProgramResult;
using test::read_records;
using test::source_file;
using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr const char* kRows = "tests/recipes/data/rows.jsonl";
constexpr const char* kMoreRows = "tests/recipes/data/validation.jsonl";

/// A section of questions and answers as a value in one line.
std::string section(const std::string& paths, const std::string& more = "") {
  return cat("{_target_: ColumnMappedTextInstructionDataset, path_or_dataset_id: ", paths,
             ", column_mapping: {question: question, answer: answer}", more, "}");
}

std::string tokenizer() {
  return cat(", tokenizer: {pretrained_model_name_or_path: ", source_file("configs"),
             "/quickstart_tokenizer}");
}

/// A recipe with this dataset; six steps of four samples, in a new order.
std::string recipe_text(const std::string& dataset) {
  return cat(
      "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
      "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 6, "
      "ckpt_every_steps: 3}\n"
      "dist_env: {backend: gloo}\n"
      "model:\n"
      "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
      "  pretrained_model_name_or_path: ",
      source_file("tests/recipes/data/tiny_llama"),
      "\n  torch_dtype: float32\n"
      "distributed: {strategy: ddp}\n"
      "dataloader: {shuffle: true}\n"
      "optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-3}\n"
      "dataset: ",
      dataset, "\n");
}

class MixtureRunsTest : public testing::Test {
 protected:
  /// Runs a recipe with the dataset, which must go well, in a folder of that name.
  std::vector<Json> run(const std::string& name, const std::string& dataset,
                        const test::Spread& spread = {}) {
    folder_.write(name + ".yaml", recipe_text(dataset));
    last_ = test::run_program(
        test::on(spread, {test::automodel_binary(), "run", folder_.file(name + ".yaml"),
                          cat("--checkpoint.checkpoint_dir=", folder_.file(name))}));
    EXPECT_EQ(last_.status, 0) << last_.err;
    return read_records(folder_.file(name + "/training.jsonl"));
  }

  std::string rows() const { return section(source_file(kRows)); }
  std::string more_rows() const { return section(source_file(kMoreRows)); }

  /// {_target_: NAME, datasets: [the rows, with a tokenizer, and more rows], ...}
  std::string mixture(const std::string& name, const std::string& more = "") const {
    return cat("{_target_: ", name, ", datasets: [", section(source_file(kRows), tokenizer()), ", ",
               more_rows(), "]", more, "}");
  }

  TemporaryDirectory folder_;
  ProgramResult last_;
};

TEST_F(MixtureRunsTest, DatasetsThatFollowEachOtherAreOne) {
  const std::vector<Json> wanted =
      run("list",
          section(cat("[", source_file(kRows), ", ", source_file(kMoreRows), "]"), tokenizer()));
  const std::string mixed = mixture("torch.utils.data.ConcatDataset");
  expect_equal_records(wanted, run("mixed", mixed), 0);
  EXPECT_THAT(last_.out, HasSubstr("dataset: 27 samples an epoch: 21 of dataset.datasets.0, 6 of "
                                   "dataset.datasets.1"));
  expect_equal_records(wanted, run("ranks", mixed, test::sharded(2)), 1e-5);

  run("resumed", mixed, {1, {"--step_scheduler.max_steps=3"}});
  expect_equal_records(wanted, run("resumed", mixed), 0);
  EXPECT_THAT(last_.out, HasSubstr("resum"));
}

TEST_F(MixtureRunsTest, InterleavedDatasetsEndWithTheFirstOrTheLast) {
  run("turns", mixture("datasets.interleave_datasets", ", seed: 3"));
  EXPECT_THAT(last_.err, HasSubstr("'seed' has no effect without probabilities"));
  EXPECT_THAT(last_.out, HasSubstr("dataset: 12 samples an epoch: 6 of dataset.datasets.0 (which "
                                   "has 21), 6 of dataset.datasets.1"));
  run("all", mixture("datasets.interleave_datasets", ", stopping_strategy: all_exhausted"));
  EXPECT_THAT(last_.out, HasSubstr("dataset: 42 samples an epoch: 21 of dataset.datasets.0, 21 of "
                                   "dataset.datasets.1 (which has 6)"));
}

TEST_F(MixtureRunsTest, DrawsDependOnProbabilitiesAndSeed) {
  const auto losses = [&](const std::string& name, const std::string& more) {
    std::string text;
    for (const Json& record : run(name, mixture("datasets.interleave_datasets", more))) {
      text += cat(record.at("loss").as_double(), " ");
    }
    return text;
  };
  const std::string all = ", stopping_strategy: all_exhausted";
  const std::string drawn = losses("drawn", all + ", probabilities: [0.5, 0.5]");
  // Without a seed the draws are those of the recipe's, which is 42.
  EXPECT_EQ(losses("of_recipe", all + ", probabilities: [0.5, 0.5], seed: 42"), drawn);
  EXPECT_NE(losses("other_seed", all + ", probabilities: [0.5, 0.5], seed: 43"), drawn);
  EXPECT_NE(losses("others", all + ", probabilities: [0.9, 0.1]"), drawn);
}

TEST_F(MixtureRunsTest, AMixturesValidationPacksAndPartsOfItsOwn) {
  folder_.write("chats.jsonl", R"({"messages": [{"role": "user", "content": "hello"}, )"
                               R"({"role": "assistant", "content": "good day"}]})"
                               "\n");
  folder_.write("chat.jinja",
                "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}"
                "{% endgeneration %}{% endfor %}");
  const std::string chats =
      cat("{_target_: ChatDataset, path_or_dataset_id: ", folder_.file("chats.jsonl"),
          ", chat_template: ", folder_.file("chat.jinja"), "}");
  const std::string inner =
      cat("{_target_: ConcatDataset, datasets: [", more_rows(), ", ", chats, "]}");
  const std::string mixed =
      cat("{_target_: ConcatDataset, datasets: [", rows(), ", ", inner, "]", tokenizer(), "}");
  run("mixed", cat(mixed, "\npacked_sequence: {packed_sequence_size: 512}",
                   "\nvalidation_dataset: ", inner));
  EXPECT_THAT(last_.out, HasSubstr("dataset.datasets.1: 7 samples") /* the inner mixture's own */)
      << "told under the name of the section";
  const std::vector<Json> validation = read_records(folder_.file("mixed/validation.jsonl"));
  ASSERT_FALSE(validation.empty());
  const ProgramResult shown =
      test::run_program({test::automodel_binary(), "inspect-data", folder_.file("mixed.yaml"),
                         "--packed_sequence=none"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("chats.jsonl:1"));
  EXPECT_THAT(shown.out, HasSubstr("28 rows; of the first ones of each dataset:"));
}

}  // namespace
}  // namespace automodel::recipes
