#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/file.h"
#include "core/text.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::Not;

/// `automodel COMMAND` of the smallest classification with its results in `folder`.
std::vector<std::string> classification(const char* command, const std::string& folder,
                                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {test::automodel_binary(), command,
                                        test::source_file("recipes/smoke/tiny_classifier.yaml"),
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

ProgramResult classify(const std::string& folder, const std::vector<std::string>& more = {}) {
  return test::run_program(classification("run", folder, more));
}

Json goldens(const std::string& model = "tiny_classifier") {
  const std::map<std::string, const char*> of = {
      {"tiny_classifier", "classification.json"},
      {"tiny_encoder", "encoder_classification.json"},
      {"tiny_modernbert", "modernbert_classification.json"}};
  return Json::parse_file(test::source_file(cat("tests/recipes/data/", of.at(model))));
}

/// The option that trains this model.
std::string of_model(const std::string& model) {
  return cat("--model.pretrained_model_name_or_path=",
             test::source_file(cat("tests/recipes/data/", model)));
}

class ClassifiedModelTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, ClassifiedModelTest,
                         testing::Values("tiny_classifier", "tiny_encoder", "tiny_modernbert"),
                         [](const auto& info) { return info.param; });

TEST_P(ClassifiedModelTest, LossesAndAccuraciesAreThoseOfPython) {
  const TemporaryDirectory folder;
  const ProgramResult run = classify(folder.file("run"), {of_model(GetParam())});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> records = read_records(folder.file("run/training.jsonl"));
  const std::vector<Json> validations = read_records(folder.file("run/validation.jsonl"));
  const Json all = goldens(GetParam());
  const Json::Array& wanted = all.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  size_t num_validations = 0;
  const auto expect_close = [](const Json& found, const Json& expected, double tolerance) {
    EXPECT_NEAR(found.as_double(), expected.as_double(), tolerance * expected.as_double());
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(records[i].at("loss"), wanted[i].at("loss"), 2e-6);
    expect_close(records[i].at("grad_norm"), wanted[i].at("grad_norm"), 2e-5);
    EXPECT_EQ(records[i].at("accuracy").as_double(), wanted[i].at("accuracy").as_double());
    EXPECT_EQ(records[i].at("num_label_tokens").as_int(), 8);
    if (!wanted[i].contains("val_loss")) continue;
    const Json& validation = validations.at(num_validations++);
    EXPECT_EQ(validation.at("step").as_int(), static_cast<int64_t>(i));
    expect_close(validation.at("val_loss"), wanted[i].at("val_loss"), 2e-6);
    EXPECT_EQ(validation.at("val_accuracy").as_double(), wanted[i].at("val_accuracy").as_double());
  }
  EXPECT_EQ(validations.size(), num_validations);
  const double accuracy = records.at(0).at("accuracy").as_double();
  EXPECT_THAT(run.out + run.err, HasSubstr(cat("| accuracy ", format_fixed(accuracy, 4), " |")));
  EXPECT_THAT(run.out + run.err, HasSubstr("2 classes"));
}

/// A folder like `model` whose tensors have other names: `from` in them is replaced by `to`.
std::string renamed_encoder(const TemporaryDirectory& folder, const std::string& from,
                            const std::string& to,
                            const char* model = "tests/recipes/data/tiny_encoder") {
  std::filesystem::copy(test::source_file(model), folder.file("encoder"));
  const std::string path = folder.file("encoder/model.safetensors");
  std::string bytes = read_file(path);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  std::string header = replace_all(bytes.substr(sizeof size, size), from, to);
  EXPECT_LE(header.size(), size);
  header.resize(size, ' ');
  write_file_atomic(path, bytes.replace(sizeof size, size, header));
  return cat("--model.pretrained_model_name_or_path=", folder.file("encoder"));
}

/// AutoModel saves an encoder without its name before the tensors'.
TEST(ClassificationTest, AnEncoderSavedAloneIsTheSame) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      classify(folder.file("run"), {renamed_encoder(folder, "\"bert.", "\"")});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json expected = goldens("tiny_encoder");
  const double loss = expected.at("records").as_array().back().at("loss").as_double();
  EXPECT_NEAR(read_records(folder.file("run/training.jsonl")).back().at("loss").as_double(), loss,
              2e-6 * loss);
}

/// The golden's vocabulary is smaller than the tokenizer's, which is all that is wrong.
TEST(ClassificationTest, ADistilBertSavedAloneFits) {
  const TemporaryDirectory folder;
  const ProgramResult check = test::run_program(classification(
      "check", folder.file("run"),
      {renamed_encoder(folder, "\"distilbert.", "\"", "tests/golden/classifiers/distilbert"),
       "--checkpoint.skip_task_head_prefixes_for_base_model=['classifier.']"}));
  EXPECT_THAT(check.out, Not(HasSubstr("do not fit the config"))) << check.out;
  EXPECT_THAT(check.out, HasSubstr("vocab_size")) << check.out;
}

TEST(ClassificationTest, APoolerThatTheFolderLacksIsDrawnButNotBesideAdapters) {
  const TemporaryDirectory folder;
  const std::string model = renamed_encoder(folder, "\"bert.pooler.", "\"cls.seq.");
  const ProgramResult whole = classify(folder.file("run"), {model});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("no tensors of bert.pooler.dense.; they are drawn"));
  for (const char* command : {"check", "run"}) {
    const ProgramResult adapted = test::run_program(
        classification(command, folder.file("adapted"),
                       {model, "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
                        "--peft.target_modules=['*.query']"}));
    EXPECT_NE(adapted.status, 0);
    EXPECT_THAT(adapted.out + adapted.err,
                HasSubstr("have no tensors of bert.pooler.dense.: they would be drawn and stay as "
                          "they are beside adapters"));
  }
}

TEST(ClassificationTest, ATextThatIsLongerThanAnEncodersPositionsIsNamed) {
  const TemporaryDirectory folder;
  std::string words;
  for (int i = 0; i < 80; ++i) words += "dog ";
  const std::string rows =
      folder.write("rows.jsonl",
                   cat("{\"sentence1\": \"", words, "\", \"sentence2\": \"cat\", \"label\": 1}\n"));
  const ProgramResult run =
      classify(folder.file("run"),
               {of_model("tiny_encoder"), "--dataset.max_length=none", "--dataset.split=train",
                cat("--dataset.path_or_dataset_id=", rows), "--validation_dataset=none"});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("the model has positions for 64: max_length: 64 cuts texts"));
}

/// A run on several ranks that computes what one rank does.
struct ClassifyingMesh {
  const char* name;
  std::vector<std::string> options;
  const char* model = "tiny_classifier";
};

class ClassifyingMeshTest : public testing::TestWithParam<ClassifyingMesh> {};

TEST_P(ClassifyingMeshTest, AnyMeshHasTheSameLossesAndAccuracies) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = GetParam().options;
  options.insert(options.end(), {"--nproc-per-node=2", "--checkpoint.save_consolidated=false",
                                 of_model(GetParam().model)});
  const ProgramResult run = classify(folder.file("run"), options);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> records = read_records(folder.file("run/training.jsonl"));
  const std::vector<Json> validations = read_records(folder.file("run/validation.jsonl"));
  const Json all = goldens(GetParam().model);
  const Json::Array& wanted = all.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double loss = wanted[i].at("loss").as_double();
    EXPECT_NEAR(records[i].at("loss").as_double(), loss, 2e-5 * loss) << i;
    EXPECT_EQ(records[i].at("accuracy").as_double(), wanted[i].at("accuracy").as_double()) << i;
  }
  ASSERT_EQ(validations.size(), 2);
  const Json& last = wanted.back();
  EXPECT_NEAR(validations[1].at("val_loss").as_double(), last.at("val_loss").as_double(), 2e-5);
  EXPECT_EQ(validations[1].at("val_accuracy").as_double(), last.at("val_accuracy").as_double());
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ClassifyingMeshTest,
    testing::Values(
        ClassifyingMesh{"ddp", {}},
        ClassifyingMesh{"megatron_fsdp", {"--distributed.strategy=megatron_fsdp"}},
        ClassifyingMesh{"fsdp2", test::sharded(2).options},
        ClassifyingMesh{"encoder_ddp", {}, "tiny_encoder"},
        ClassifyingMesh{"encoder_fsdp2", test::sharded(2).options, "tiny_encoder"},
        ClassifyingMesh{"modernbert_fsdp2", test::sharded(2).options, "tiny_modernbert"},
        ClassifyingMesh{"modernbert_recomputed",
                        test::sharded(2, {"--distributed.activation_checkpointing=true"}).options,
                        "tiny_modernbert"},
        ClassifyingMesh{"context", test::sharded(2, {"--distributed.cp_size=2"}).options},
        ClassifyingMesh{"stages", test::sharded(2, {"--distributed.pp_size=2",
                                                    "--distributed.pipeline.pp_schedule=1f1b",
                                                    "--distributed.pipeline.pp_microbatch_size=2"})
                                      .options}),
    [](const auto& info) { return info.param.name; });

/// Another model, since the recipe's has one head of keys.
TEST(ClassificationTest, TensorParallelRanksShareTheHead) {
  const std::vector<std::string> model = {
      "--model._target_=NeMoAutoModelForSequenceClassification.from_config",
      "--model.config=configs/tiny/qwen3",
      "--model.pretrained_model_name_or_path=none",
      "--checkpoint.enabled=false",
      "--optimizer.lr=1e-3",
      "--distributed.strategy=fsdp2",
  };
  const TemporaryDirectory folder;
  const auto losses = [&](const char* name, std::vector<std::string> options) {
    options.insert(options.end(), model.begin(), model.end());
    const std::string log = folder.file(name);
    options.push_back("--checkpoint.enabled=true");
    options.push_back("--checkpoint.save_consolidated=false");
    const ProgramResult run = classify(log, options);
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(log + "/training.jsonl");
  };
  const std::vector<Json> whole = losses("whole", {});
  for (const char* sequence : {"false", "true"}) {
    const std::vector<Json> split =
        losses(sequence, {"--nproc-per-node=2", "--distributed.tp_size=2",
                          cat("--distributed.sequence_parallel=", sequence)});
    ASSERT_EQ(split.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      const double loss = whole[i].at("loss").as_double();
      EXPECT_NEAR(split[i].at("loss").as_double(), loss, 2e-5 * loss) << sequence << " " << i;
      EXPECT_EQ(split[i].at("accuracy").as_double(), whole[i].at("accuracy").as_double());
    }
  }
}

double last_validation(const std::string& folder) {
  return read_records(folder + "/validation.jsonl").back().at("val_loss").as_double();
}

const std::vector<std::string> kEncoderAdapters = {
    "--peft.target_modules=['*.query','*.value','*intermediate.dense']", "--peft.dim=4",
    of_model("tiny_encoder")};

/// The loss that a folder's model has on the validation set.
double loss_of_folder(const std::string& model, const std::string& logs) {
  const ProgramResult run =
      classify(logs, {cat("--model.pretrained_model_name_or_path=", model), "--optimizer.lr=0",
                      "--step_scheduler.max_steps=1", "--checkpoint.save_consolidated=false"});
  EXPECT_EQ(run.status, 0) << run.err;
  return last_validation(logs);
}

TEST(ClassificationTest, TheExportNamesClassesAndThePadToken) {
  const TemporaryDirectory folder;
  const ProgramResult run = classify(
      folder.file("run"), {"--model.id2label={'0':'other','1':'same'}", "--model.pad_token_id=7"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string exported = folder.file("run/LATEST/model/consolidated");
  const Json config = Json::parse_file(exported + "/config.json");
  EXPECT_EQ(config.at("architectures").dump(), R"(["LlamaForSequenceClassification"])");
  EXPECT_EQ(config.at("id2label").dump(), R"({"0": "other", "1": "same"})");
  EXPECT_EQ(config.at("label2id").dump(), R"({"other": 0, "same": 1})");
  EXPECT_EQ(config.at("pad_token_id").as_int(), 1);  // the tokenizer's
  EXPECT_NEAR(loss_of_folder(exported, folder.file("again")), last_validation(folder.file("run")),
              1e-6);
  const ProgramResult compared =
      test::run_program({test::automodel_binary(), "parity", "--export", exported});
  EXPECT_EQ(compared.status, 0) << compared.out << compared.err;
}

const std::vector<std::string> kAdapters = {"--peft.match_all_linear=true", "--peft.dim=4"};

TEST(ClassificationTest, AdaptersAreTrainedWithTheHeadAndContinuedWithIt) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = kAdapters;
  ASSERT_EQ(classify(folder.file("whole"), options).status, 0);
  options.emplace_back("--step_scheduler.max_steps=3");
  ASSERT_EQ(classify(folder.file("parts"), options).status, 0);
  const ProgramResult second = classify(folder.file("parts"), kAdapters);
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out + second.err, HasSubstr("resumed from"));
  const std::string adapter = folder.file("whole/LATEST/model");
  const auto weights = [](const std::string& path) {
    return read_file(path + "/adapter_model.safetensors");
  };
  EXPECT_EQ(weights(adapter), weights(folder.file("parts/LATEST/model")));
  EXPECT_THAT(weights(adapter), HasSubstr("base_model.model.score.weight"));
  const Json config = Json::parse_file(adapter + "/adapter_config.json");
  EXPECT_EQ(config.at("task_type").as_string(), "SEQ_CLS");
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["score"])");
  EXPECT_THAT(config.at("target_modules").dump(), Not(HasSubstr("score")));
  // The merged folder is a classifier as good as base and adapter.
  const ProgramResult merge = test::run_program(
      {test::automodel_binary(), "merge-lora",
       test::source_file("tests/recipes/data/tiny_classifier"), adapter, folder.file("merged")});
  ASSERT_EQ(merge.status, 0) << merge.err;
  EXPECT_NEAR(loss_of_folder(folder.file("merged"), folder.file("again")),
              last_validation(folder.file("whole")), 1e-6);
}

/// Its head is called otherwise and has a bias.
TEST(ClassificationTest, AdaptersOfAnEncoderAreTrainedWithItsHead) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = kEncoderAdapters;
  ASSERT_EQ(classify(folder.file("whole"), options).status, 0);
  options.emplace_back("--step_scheduler.max_steps=3");
  ASSERT_EQ(classify(folder.file("parts"), options).status, 0);
  const ProgramResult second = classify(folder.file("parts"), kEncoderAdapters);
  ASSERT_EQ(second.status, 0) << second.err;
  const std::string adapter = folder.file("whole/LATEST/model");
  const std::string weights = read_file(adapter + "/adapter_model.safetensors");
  EXPECT_EQ(weights, read_file(folder.file("parts/LATEST/model/adapter_model.safetensors")));
  EXPECT_THAT(weights, HasSubstr("base_model.model.classifier.weight"));
  EXPECT_THAT(weights, HasSubstr("base_model.model.classifier.bias"));
  EXPECT_THAT(weights, Not(HasSubstr("pooler")));
  const Json config = Json::parse_file(adapter + "/adapter_config.json");
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["classifier"])");
  const ProgramResult merge = test::run_program(
      {test::automodel_binary(), "merge-lora", test::source_file("tests/recipes/data/tiny_encoder"),
       adapter, folder.file("merged")});
  ASSERT_EQ(merge.status, 0) << merge.err;
  EXPECT_NEAR(loss_of_folder(folder.file("merged"), folder.file("again")),
              last_validation(folder.file("whole")), 1e-6);
}

/// Its head has a module of its own before the one with a row a class.
TEST(ClassificationTest, AdaptersOfAModernBertAreTrainedWithBothModulesOfItsHead) {
  const TemporaryDirectory folder;
  const std::vector<std::string> options = {"--peft.target_modules=['*.Wqkv','*.Wo']",
                                            "--peft.dim=4", of_model("tiny_modernbert")};
  const ProgramResult whole = classify(folder.file("whole"), options);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out + whole.err, HasSubstr("head, classifier: the head of 2 classes"));
  const std::string adapter = folder.file("whole/LATEST/model");
  const Json config = Json::parse_file(adapter + "/adapter_config.json");
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["head", "classifier"])");
  const std::string weights = read_file(adapter + "/adapter_model.safetensors");
  for (const char* name : {"head.dense.weight", "head.norm.weight", "classifier.bias"}) {
    EXPECT_THAT(weights, HasSubstr(cat("base_model.model.", name)));
  }
  const ProgramResult merge = test::run_program(
      {test::automodel_binary(), "merge-lora",
       test::source_file("tests/recipes/data/tiny_modernbert"), adapter, folder.file("merged")});
  ASSERT_EQ(merge.status, 0) << merge.err;
  EXPECT_NEAR(loss_of_folder(folder.file("merged"), folder.file("again")),
              last_validation(folder.file("whole")), 1e-6);
}

TEST(ClassificationTest, AnEncoderThatFilledMasksGetsANewHead) {
  const TemporaryDirectory folder;
  const std::string base = folder.file("base");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_encoder"), base);
  Json config = Json::parse_file(base + "/config.json");
  config["architectures"] = Json(Json::Array{Json("BertForMaskedLM")});
  write_file_atomic(base + "/config.json", config.dump());
  const std::vector<std::string> options = {
      cat("--model.pretrained_model_name_or_path=", base),
      "--checkpoint.skip_task_head_prefixes_for_base_model=['classifier.']",
      "--step_scheduler.max_steps=1"};
  const ProgramResult run = classify(folder.file("run"), options);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json exported = Json::parse_file(folder.file("run/LATEST/model/consolidated/config.json"));
  EXPECT_EQ(exported.at("architectures").dump(), R"(["BertForSequenceClassification"])");
  const double drawn = read_records(folder.file("run/training.jsonl"))[0].at("loss").as_double();
  EXPECT_GT(
      std::abs(drawn - goldens("tiny_encoder").at("records").as_array()[0].at("loss").as_double()),
      1e-3);
}

TEST(ClassificationTest, AnAdapterMakesAClassifierOfALanguageModel) {
  const TemporaryDirectory folder;
  const std::string base = test::source_file("tests/recipes/data/tiny_llama");
  std::vector<std::string> options = kAdapters;
  options.push_back(cat("--model.pretrained_model_name_or_path=", base));
  const ProgramResult run = classify(folder.file("run"), options);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("no tensors of score.; they are drawn"));
  const ProgramResult merge =
      test::run_program({test::automodel_binary(), "merge-lora", base,
                         folder.file("run/LATEST/model"), folder.file("merged")});
  ASSERT_EQ(merge.status, 0) << merge.err;
  const Json config = Json::parse_file(folder.file("merged/config.json"));
  EXPECT_EQ(config.at("architectures").dump(), R"(["LlamaForSequenceClassification"])");
  EXPECT_EQ(config.at("id2label").size(), 2);
  EXPECT_EQ(config.at("pad_token_id").as_int(), 1);
  EXPECT_NEAR(loss_of_folder(folder.file("merged"), folder.file("again")),
              last_validation(folder.file("run")), 1e-6);
}

TEST(ClassificationTest, InspectDataShowsClasses) {
  const ProgramResult shown =
      test::run_program({test::automodel_binary(), "inspect-data",
                         test::source_file("recipes/llm_finetune/classify_quickstart.yaml")});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("[[Romeo]]"));
  EXPECT_THAT(shown.out, HasSubstr("classes: Coriolanus 64, Gloucester 77, Menenius 75, Romeo 79"));
  EXPECT_THAT(shown.out, Not(HasSubstr("count in the loss (")));
}

/// A copy of the recipe's model whose classes are called a and b.
std::string folder_with_names(const std::string& folder) {
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_classifier"), folder);
  Json config = Json::parse_file(folder + "/config.json");
  config["id2label"] = Json(Json::Object{{"0", "a"}, {"1", "b"}});
  write_file_atomic(folder + "/config.json", config.dump());
  return folder;
}

/// A configuration's own keys count as those of the model section do.
TEST(ClassificationTest, ClassesMayBeNamedInTheConfiguration) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      classify(folder.file("run"),
               {"--model._target_=NeMoAutoModelForSequenceClassification.from_config",
                "--model.pretrained_model_name_or_path=none", "--model.num_labels=none",
                "--model.config._target_=transformers.AutoConfig.from_pretrained",
                cat("--model.config.pretrained_model_name_or_path=",
                    folder_with_names(folder.file("named"))),
                "--model.config.id2label=['x','y','z']", "--step_scheduler.max_steps=1"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json config = Json::parse_file(folder.file("run/LATEST/model/consolidated/config.json"));
  EXPECT_EQ(config.at("id2label").dump(), R"({"0": "x", "1": "y", "2": "z"})");
}

/// A recipe that is wrong, or warned of, and what is said of it.
struct Classified {
  const char* name;
  std::vector<std::string> options;
  int status;
  const char* text;
};

class ClassificationMistakeTest : public testing::TestWithParam<Classified> {};

TEST_P(ClassificationMistakeTest, IsToldOf) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = GetParam().options;
  for (std::string& option : options) {
    if (option.find("@NAMED@") == std::string::npos) continue;
    option = replace_all(option, "@NAMED@", folder_with_names(folder.file("named")));
  }
  const ProgramResult checked =
      test::run_program(classification("check", folder.file("run"), options));
  EXPECT_EQ(checked.status, GetParam().status) << checked.out << checked.err;
  EXPECT_THAT(checked.out + checked.err, HasSubstr(GetParam().text));
}

const Classified kMistakes[] = {
    {"one_label", {"--model.num_labels=1"}, 6, "one label is a number to predict (regression)"},
    {"fewer_names",
     {"--model.num_labels=3", "--model.id2label={'0':'a','1':'b'}"},
     2,
     "num_labels is 3, id2label names 2 classes [model.num_labels]"},
    {"a_hole",
     {"--model.id2label={'0':'a','2':'b'}"},
     2,
     "'2' is no number of one of 2 classes: they are 0 to 1"},
    {"one_name",
     {"--model.num_labels=none", "--model.id2label={'0':'a'}"},
     2,
     "a classifier has two classes or more"},
    {"a_name_twice", {"--model.id2label={'0':'a','1':'a'}"}, 2, "two classes are called 'a'"},
    {"no_names", {"--model.id2label=yes"}, 2, "expected names by number"},
    {"other_ids",
     {"--model.label2id={'LABEL_0':1,'LABEL_1':0}"},
     2,
     "label2id does not say the numbers that classes have"},
    {"more_than_the_folder_has", {"--model.num_labels=3"}, 2, "score.weight"},
    {"a_new_head_instead",
     {"--model.num_labels=3"},
     2,
     "checkpoint.skip_task_head_prefixes_for_base_model: ['score.'] draws a head for other "
     "classes"},
    {"no_name", {"--model.id2label={'0':'','1':'b'}"}, 2, "a class needs a name"},
    {"wild_numbers",
     {"--model.num_labels=1000000000000"},
     2,
     "classes are 2 to 1000000, found 1000000000000"},
    {"a_misspelt_class",
     {"--model._target_=nemo_automodel.NeMoAutoModelForSequenceClasification.from_pretrained"},
     2,
     "tiny_classifier.yaml: 1 mistake"},
    {"an_adapter_of_the_head",
     {"--peft.target_modules=['*score']"},
     2,
     "'*score' chooses no layer: the head of a classifier (score) is trained whole"},
    {"an_encoder_over_tensor_ranks",
     {of_model("tiny_encoder"), "--distributed.strategy=fsdp2", "--distributed.tp_size=2",
      "--world-size=2"},
     2,
     "an encoder's pooler and embeddings are not split"},
    {"an_encoder_as_language_model",
     {of_model("tiny_encoder"),
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
      "--model.num_labels=none"},
     2,
     "which classifies sequences"},
    {"an_adapter_of_an_encoders_head",
     {of_model("tiny_encoder"), "--peft.target_modules=['classifier']"},
     2,
     "'classifier' chooses no layer: the head of a classifier (classifier) is trained whole"},
    {"names_in_another_order",
     {"--model.pretrained_model_name_or_path=@NAMED@", "--model.num_labels=none",
      "--model.id2label=['b','a']"},
     0,
     "the head of the model was trained for other names or another order: a, b"},
    {"two_numbers",
     {"--model._target_=NeMoAutoModelForSequenceClassification.from_config",
      "--model.pretrained_model_name_or_path=none",
      "--model.config._target_="
      "transformers.AutoConfig.from_pretrained",
      "--model.config.num_labels=4",
      "--model.config.pretrained_model_name_or_path=configs/tiny/qwen3"},
     2,
     "model.num_labels says otherwise: one of them is enough"},
    {"several_labels_a_text",
     {"--model.problem_type=multi_label_classification"},
     6,
     "'multi_label_classification' is not in this version"},
    {"a_language_model",
     {"--model._target_=NeMoAutoModelForCausalLM.from_pretrained"},
     2,
     "which classifies sequences: "
     "nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained and recipe: "
     "TrainFinetuneRecipeForSequenceClassification train it"},
    {"the_recipe_of_language_models",
     {"--recipe=TrainFinetuneRecipeForNextTokenPrediction"},
     2,
     "a model that classifies sequences is trained by recipe: "
     "TrainFinetuneRecipeForSequenceClassification [model._target_]"},
    {"data_without_classes",
     {"--validation_dataset._target_=MockIterableDataset", "--validation_dataset.vocab_size=64",
      "--validation_dataset.path_or_dataset_id=none", "--validation_dataset.split=none",
      "--validation_dataset.max_length=none"},
     2,
     "this dataset has tokens to predict and no classes"},
    {"a_family_without_the_class",
     {"--model.config=configs/tiny/granite",
      "--model._target_=NeMoAutoModelForSequenceClassification.from_config",
      "--model.pretrained_model_name_or_path=none"},
     6,
     "sequence classification of GraniteForCausalLM models is not in this version"},
    {"a_loss", {"--loss_fn._target_=torch.nn.CrossEntropyLoss"}, 0, "'loss_fn' has no effect here"},
    {"a_split_head",
     {"--distributed.strategy=fsdp2", "--distributed.tp_size=2", "--world-size=2",
      "--model._target_=NeMoAutoModelForSequenceClassification.from_config",
      "--model.config=configs/tiny/qwen3", "--model.pretrained_model_name_or_path=none",
      "--distributed.tp_plan={'score':'colwise'}"},
     2,
     "the head of a classifier, score, is not split: leave it out"},
};

INSTANTIATE_TEST_SUITE_P(All, ClassificationMistakeTest, testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace automodel::recipes
