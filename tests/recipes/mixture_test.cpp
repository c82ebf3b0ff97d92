// Mixtures of datasets in runs of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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

/// An order in which an epoch would have some rows twice is no order to go on in.
TEST_F(MixtureRunsTest, AnotherOrderIsRefusedUnlessDataMayChange) {
  const auto drawn = [&](const char* more) {
    return mixture("datasets.interleave_datasets",
                   cat(", stopping_strategy: all_exhausted_without_replacement, ", more));
  };
  const std::vector<std::string> steps = {"--step_scheduler.max_steps=3"};
  run("other", drawn("probabilities: [0.5, 0.5]"), {1, steps});
  const auto go_on = [&](const std::string& dataset, std::vector<std::string> more) {
    folder_.write("other.yaml", recipe_text(dataset));
    more.push_back(cat("--checkpoint.checkpoint_dir=", folder_.file("other")));
    return test::run_program(test::on(
        {1, std::move(more)}, {test::automodel_binary(), "run", folder_.file("other.yaml")}));
  };
  for (const char* change : {"probabilities: [0.2, 0.8]", "probabilities: [0.5, 0.5], seed: 7"}) {
    const ProgramResult refused = go_on(drawn(change), {});
    EXPECT_EQ(refused.status, 3) << change;
    EXPECT_THAT(refused.err, HasSubstr("in another order of them, so that an epoch would have some "
                                       "rows twice and others never"));
  }
  const ProgramResult anew =
      go_on(drawn("probabilities: [0.2, 0.8]"), {"--checkpoint.allow_changed_data=true"});
  EXPECT_EQ(anew.status, 0) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("the rows are in another order: epoch 0 begins anew"));
}

class MixtureSectionsTest : public MixtureRunsTest {
 protected:
  void SetUp() override {
    folder_.write("chats.jsonl", R"({"messages": [{"role": "user", "content": "hello"}, )"
                                 R"({"role": "assistant", "content": "good day"}]})"
                                 "\n");
    for (const char* name : {"one", "two"}) {
      folder_.write(cat(name, ".jinja"),
                    cat("{% for m in messages %}", name,
                        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"));
    }
  }

  std::string chats(const std::string& template_name = "") const {
    return cat("{_target_: ChatDataset, path_or_dataset_id: ", folder_.file("chats.jsonl"),
               template_name.empty()
                   ? ""
                   : cat(", chat_template: ", folder_.file(template_name), ".jinja"),
               "}");
  }

  /// A tokenizer without a chat template.
  std::string bare_tokenizer() const {
    const std::string path = folder_.file("bare");
    std::filesystem::remove_all(path);
    std::filesystem::copy(source_file("configs/quickstart_tokenizer"), path);
    const std::string about = path + "/tokenizer_config.json";
    Json config = Json::parse_file(about);
    config.erase("chat_template");
    std::filesystem::remove(about);
    write_file_atomic(about, config.dump());
    return cat(", tokenizer: {pretrained_model_name_or_path: ", path, "}");
  }

  static std::string concatenated(const std::string& parts, const std::string& more = "") {
    return cat("{_target_: ConcatDataset, datasets: [", parts, "]", more, "}");
  }

  ProgramResult check(const std::string& dataset) {
    folder_.write("checked.yaml", recipe_text(dataset));
    return test::run_program({test::automodel_binary(), "check", folder_.file("checked.yaml")});
  }
};

TEST_F(MixtureSectionsTest, ValidationHasTheTemplateThatTheTracesOfItsClassHave) {
  const auto labels = [&](const std::string& name, const std::string& training,
                          const std::string& validation) {
    run(name, cat(training, "\nvalidation_dataset: ", validation));
    return read_records(folder_.file(name + "/validation.jsonl"))
        .at(0)
        .at("num_label_tokens")
        .as_int();
  };
  const std::string whole = concatenated(cat(rows(), ", ", chats("one")), tokenizer());
  const int64_t wanted = labels("named", whole, chats("one"));
  EXPECT_EQ(labels("single", whole, chats()), wanted);
  EXPECT_EQ(labels("mixed", whole, concatenated(chats())), wanted);
}

TEST_F(MixtureSectionsTest, SeveralTemplatesAreTold) {
  const ProgramResult found =
      check(cat(concatenated(cat(chats("one"), ", ", chats("two")), tokenizer()),
                "\nvalidation_dataset: ", chats("one")));
  EXPECT_EQ(found.status, 0) << found.out;
  EXPECT_THAT(found.out, HasSubstr("this dataset is written with another chat template than "
                                   "dataset.datasets.0, whose template the exported model has"));
}

/// The template that a model gets is one that some dataset is written with: the tokenizer has none.
TEST_F(MixtureSectionsTest, TheModelGetsTheFirstTemplateThatIsNamed) {
  const std::string plain = section(source_file(kRows), ", use_hf_chat_template: true");
  const std::string mixed = concatenated(cat(plain, ", ", chats("two")), bare_tokenizer());
  EXPECT_THAT(check(mixed).out, testing::Not(HasSubstr("another chat template")));
  run("named", mixed);
  EXPECT_EQ(read_file(folder_.file("named/LATEST/model/consolidated/chat_template.jinja")),
            read_file(folder_.file("two.jinja")));
}

/// What ends turns and what ends texts are ends for who generates, of each dataset.
TEST_F(MixtureSectionsTest, TheModelEndsWhereAnyOfItsDatasetsDoes) {
  for (const char* end : {"im_end", "im_start"}) {
    folder_.write(cat(end, ".jinja"),
                  cat("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}<|",
                      end, "|>{% endfor %}"));
  }
  const std::string texts = section(source_file(kRows), ", tokenizer: {add_eos_token: true}");
  run("ends",
      concatenated(cat(chats("im_end"), ", ", texts, ", ", chats("im_start")), tokenizer()));
  const Json made =
      Json::parse_file(folder_.file("ends/LATEST/model/consolidated/generation_config.json"));
  // The end of texts is the base's; the others are added in the datasets' order.
  EXPECT_EQ(made.at("eos_token_id").dump(), "[0, 3, 2]");
}

/// Labels at their own tokens are for noise, in a dataset of a mixture too.
TEST_F(MixtureSectionsTest, UnshiftedDatasetsAreRefused) {
  const std::string own = section(source_file(kRows), ", unshifted: true");
  const ProgramResult found = check(concatenated(cat(own, ", ", own), tokenizer()));
  EXPECT_EQ(found.status, 2);
  EXPECT_THAT(found.out, HasSubstr("unshifted: true is for recipe: "));
  EXPECT_THAT(found.out, HasSubstr("[dataset.datasets.1.unshifted]"));
}

TEST_F(MixtureSectionsTest, TracesForToolCallsHaveTheTemplateOfTheTrainingSets) {
  const auto found = [&](const std::string& parts) {
    return check(cat(concatenated(parts, bare_tokenizer()),
                     "\ntool_call_eval: {path: ", folder_.file("chats.jsonl"), "}"));
  };
  EXPECT_THAT(found(cat(rows(), ", ", chats("one"))).out,
              testing::Not(HasSubstr("has no chat template; set chat_template")));
  EXPECT_THAT(found(cat(chats("one"), ", ", chats("two"))).out,
              HasSubstr("the tokenizer's chat template writes these traces"));
}

TEST_F(MixtureSectionsTest, WhatDatasetsSayOfTheirTokenizerIsPutTogether) {
  const std::string path = source_file("configs/quickstart_tokenizer");
  const auto with = [&](const std::string& node) {
    return section(source_file(kRows), cat(", tokenizer: ", node));
  };
  const ProgramResult one = check(
      concatenated(cat(with(path), ", ", with(cat("{pretrained_model_name_or_path: ", path, "}")),
                       ", ", with("{add_eos_token: true}"), ", ", with("{add_eos_token: True}"))));
  EXPECT_EQ(one.status, 0) << one.out;
  const ProgramResult two = check(concatenated(
      cat(with(cat("{pretrained_model_name_or_path: ", path, ", add_eos_token: true}")), ", ",
          with("{add_eos_token: false}"))));
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.out, HasSubstr("all datasets of a mixture are written with one tokenizer, and "
                                 "dataset.datasets.0.tokenizer has another add_eos_token "
                                 "[dataset.datasets.1.tokenizer.add_eos_token]"));
  const ProgramResult wrong = check(concatenated(cat(with(path), ", ", with("{add_eos: true}"))));
  EXPECT_THAT(wrong.out, HasSubstr("[dataset.datasets.1.tokenizer.add_eos]"));
  const ProgramResult validation = check(cat(with("{pretrained_model_name_or_path: nowhere}"),
                                             "\nvalidation_dataset: ", concatenated(with(path))));
  EXPECT_THAT(validation.out, testing::Not(HasSubstr("has another")));
}

TEST_F(MixtureSectionsTest, KeysOfDatasetsAreExplained) {
  const auto explain = [](const char* key) {
    return test::run_program({test::automodel_binary(), "explain", key}).out;
  };
  EXPECT_EQ(explain("dataset.datasets.1.split"), explain("dataset.split"));
  const ProgramResult wrong = check(cat("{_target_: ConcatDataset, datasets: [",
                                        section(source_file(kRows), ", shuffle_seed: 3"), "]}"));
  EXPECT_THAT(wrong.out, HasSubstr("unknown key 'shuffle_seed'"));
  EXPECT_THAT(wrong.out, testing::Not(HasSubstr("did you mean 'dataset.")));
}

}  // namespace
}  // namespace automodel::recipes
