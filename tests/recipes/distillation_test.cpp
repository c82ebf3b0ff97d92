#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/safetensors.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr const char* kRecipe = "recipes/smoke/tiny_llama_kd.yaml";

/// `automodel run` of the smallest distillation with its results in `folder`.
std::vector<std::string> kd_run(const std::string& folder,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {test::automodel_binary(), "run", test::source_file(kRecipe),
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// tests/recipes/data/kd.json: what transformers and PyTorch give for the same recipe.
const Json& goldens() {
  static const Json kGoldens =
      Json::parse(read_file(test::source_file("tests/recipes/data/kd.json")), "kd.json");
  return kGoldens;
}

std::vector<std::string> arguments_of(const Json& scenario, const std::string& folder) {
  std::vector<std::string> arguments = kd_run(folder);
  const auto add = [&](const std::string& key, const std::string& value) {
    arguments.push_back(cat("--", key, "=", value));
  };
  add("step_scheduler.max_steps", scenario.at("max_steps").dump());
  add("optimizer._target_", scenario.at("optimizer").as_string());
  add("optimizer.lr", scenario.at("lr").dump());
  add("optimizer.weight_decay", scenario.at("weight_decay").dump());
  add("kd_ratio", scenario.at("kd_ratio").dump());
  add("kd_loss_fn.temperature", scenario.at("temperature").dump());
  if (scenario.at("validates").as_bool()) {
    add("validation_dataset._target_", "ColumnMappedTextInstructionDataset");
    add("validation_dataset.path_or_dataset_id", "tests/recipes/data/validation.jsonl");
    add("validation_dataset.column_mapping.question", "question");
    add("validation_dataset.column_mapping.answer", "answer");
    add("validation_dataset.tokenizer.pretrained_model_name_or_path",
        "configs/quickstart_tokenizer");
  }
  return arguments;
}

/// Losses are float32 sums of some hundred tokens: 2e-6 is some roundings, of the logarithms that a
/// divergence is a difference of.
void expect_losses(const Json& found, const Json& wanted, const char* total) {
  for (const char* key : {total, "ce_loss", "kd_loss"}) {
    const double value = wanted.at(key).as_double();
    const double size = std::max(std::abs(value), std::log(2048.0));
    EXPECT_NEAR(found.at(key).as_double(), value, 2e-6 * size) << key;
  }
  EXPECT_EQ(found.at("num_label_tokens").as_int(), wanted.at("num_label_tokens").as_int());
}

class DistillationGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(DistillationGoldenTest, LossesAreThoseOfPython) {
  const Json& golden = goldens().at(GetParam());
  const Json& scenario = golden.at("scenario");
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(arguments_of(scenario, folder.file("run")));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> records = read_records(folder.file("run/training.jsonl"));
  const Json::Array& wanted = golden.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(cat("step ", i));
    expect_losses(records[i], wanted[i], "loss");
    const double norm = wanted[i].at("grad_norm").as_double();
    EXPECT_NEAR(records[i].at("grad_norm").as_double(), norm, 2e-5 * norm);
    EXPECT_EQ(records[i].at("kd_ratio").as_double(), scenario.at("kd_ratio").as_double());
    EXPECT_EQ(records[i].at("temperature").as_double(), scenario.at("temperature").as_double());
  }
  if (!scenario.at("validates").as_bool()) return;
  const std::vector<Json> validations = read_records(folder.file("run/validation.jsonl"));
  ASSERT_EQ(validations.size(), 1U);
  expect_losses(validations[0], golden.at("validation"), "val_loss");
}

std::vector<std::string> scenarios() {
  std::vector<std::string> names;
  for (const auto& [name, golden] : goldens().as_object()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Python, DistillationGoldenTest, testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param; });

std::map<std::string, at::Tensor> tensors_of(const std::string& path) {
  const checkpoint::SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : file.tensors()) {
    tensors[entry.name] = file.read(entry.name).to(at::kDouble);
  }
  return tensors;
}

/// Three steps of SGD are three gradients of every tensor.
TEST(DistillationTest, GradientsAreThoseOfPython) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      test::run_program(arguments_of(goldens().at("weights").at("scenario"), folder.file("run")));
  ASSERT_EQ(run.status, 0) << run.err;
  const auto wanted = tensors_of(test::source_file("tests/recipes/data/kd_weights.safetensors"));
  const auto start =
      tensors_of(test::source_file("tests/recipes/data/tiny_llama/model.safetensors"));
  const auto found =
      tensors_of(folder.file("run/LATEST/model/consolidated/model-00001-of-00001.safetensors"));
  // The student's tensors alone.
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(found.contains(name)) << name;
    const at::Tensor moved = tensor - start.at(name);
    const double distance = (found.at(name) - tensor).norm().item<double>();
    EXPECT_LE(distance, 2e-5 * moved.norm().item<double>()) << name;
  }
}

/// A run's losses, which must not depend on how it is spread.
std::vector<Json> records_of(const test::Spread& spread, const std::string& folder,
                             const std::vector<std::string>& changes) {
  std::vector<std::string> more = {"--step_scheduler.max_steps=2",
                                   "--step_scheduler.local_batch_size=1",
                                   "--checkpoint.enabled=false"};
  more.insert(more.end(), changes.begin(), changes.end());
  const ProgramResult run = test::run_program(test::on(spread, kd_run(folder, more)));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

TEST(DistillationTest, LossesDoNotDependOnTheSpread) {
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp", {2, {}}},
      {"fsdp2", test::sharded(2)},
      {"hsdp", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"context parallel", test::sharded(2, {"--distributed.cp_size=2"})},
      {"megatron_fsdp", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"recomputed", test::sharded(2, {"--distributed.activation_checkpointing=true"})}};
  const TemporaryDirectory folder;
  const std::vector<Json> wanted = records_of({1, {}}, folder.file("one"), {});
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    test::expect_equal_records(wanted, records_of(spread, folder.file(name), {}), 2e-6,
                               {.numbers = {"loss", "ce_loss", "kd_loss", "grad_norm"}});
  }
}

TEST(DistillationTest, AdaptersAndPacksDoNotDependOnTheSpread) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> kinds = {
      {"adapters", {"--peft._target_=nemo_automodel.components._peft.lora.PeftConfig"}},
      {"packs", {"--packed_sequence.packed_sequence_size=512"}}};
  for (const auto& [name, changes] : kinds) {
    SCOPED_TRACE(name);
    const TemporaryDirectory folder;
    const std::vector<Json> wanted = records_of({1, {}}, folder.file("one"), changes);
    test::expect_equal_records(wanted, records_of(test::sharded(2), folder.file("two"), changes),
                               2e-6, {.numbers = {"loss", "ce_loss", "kd_loss", "grad_norm"}});
  }
}

/// The losses and norms of a run's steps, as they were written.
std::vector<std::string> contents_of(const std::string& folder) {
  std::vector<std::string> contents;
  for (const Json& record : read_records(path_join(folder, "training.jsonl"))) {
    Json content = Json::object();
    for (const char* key : {"step", "loss", "ce_loss", "kd_loss", "grad_norm"}) {
      content[key] = record.at(key);
    }
    contents.push_back(content.dump());
  }
  return contents;
}

TEST(DistillationTest, AContinuedRunIsTheWholeOneBitForBit) {
  for (const test::Spread& spread : {test::Spread{1, {}}, test::sharded(2)}) {
    SCOPED_TRACE(spread.num_ranks);
    const TemporaryDirectory folder;
    const auto run = [&](const char* place, int steps) {
      const auto result = test::run_program(test::on(
          spread, kd_run(folder.file(place), {cat("--step_scheduler.max_steps=", steps)})));
      EXPECT_EQ(result.status, 0) << result.err;
    };
    run("whole", 6);
    run("parts", 3);
    run("parts", 6);
    EXPECT_EQ(contents_of(folder.file("parts")), contents_of(folder.file("whole")));
  }
}

TEST(DistillationTest, ARunIsNotContinuedWithAnotherTeacherOrWithoutOne) {
  const TemporaryDirectory folder;
  const auto run = [&](const char* recipe, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = kd_run(folder.file("run"), more);
    arguments[2] = test::source_file(recipe);
    return test::run_program(arguments);
  };
  ASSERT_EQ(run(kRecipe, {"--step_scheduler.max_steps=1"}).status, 0);
  const std::string student = test::source_file("tests/recipes/data/tiny_llama");
  const ProgramResult other =
      run(kRecipe, {cat("--teacher_model.pretrained_model_name_or_path=", student)});
  EXPECT_EQ(other.status, 3);
  EXPECT_THAT(other.err, HasSubstr("teacher.hidden_size is "));
  const ProgramResult without = run("recipes/smoke/tiny_llama_sft.yaml", {});
  EXPECT_EQ(without.status, 3);
  EXPECT_THAT(without.err, HasSubstr("in the checkpoint and absent here"));
}

/// The student's weights fit the policy; a narrower teacher's do not.
TEST(DistillationTest, TheTeachersLayersMustFitThePolicyToo) {
  const ProgramResult check = test::run_program(
      {test::automodel_binary(), "check", test::source_file(kRecipe), "--world-size=2",
       "--distributed.strategy=fsdp2", "--teacher_model.torch_dtype=bfloat16",
       "--distributed.mp_policy._target_=torch.distributed.fsdp.MixedPrecisionPolicy",
       "--distributed.mp_policy.output_dtype=float32",
       "--distributed.mp_policy.cast_forward_inputs=false"});
  EXPECT_EQ(check.status, 2);
  EXPECT_THAT(check.out, HasSubstr("the teacher's layers would get float32 hidden states"));
}

/// A copy of a model's folder with a tokenizer, whose tokenizer_config.json names a pad token.
std::string with_tokenizer(const TemporaryDirectory& folder, const char* model, const char* pad) {
  namespace fs = std::filesystem;
  const std::string place = folder.file(model);
  fs::copy(test::source_file(cat("tests/recipes/data/", model)), place);
  fs::copy_file(test::source_file("configs/quickstart_tokenizer/tokenizer.json"),
                place + "/tokenizer.json");
  write_file_atomic(place + "/tokenizer_config.json", cat(R"({"pad_token": ")", pad, R"("})"));
  return place;
}

TEST(DistillationTest, TokenizersWithOtherPadTokensAreRefused) {
  const TemporaryDirectory folder;
  const std::string student = with_tokenizer(folder, "tiny_llama", "<|endoftext|>");
  const std::string teacher = with_tokenizer(folder, "tiny_teacher", "<|pad|>");
  const ProgramResult run = test::run_program(
      kd_run(folder.file("run"), {cat("--model.pretrained_model_name_or_path=", student),
                                  cat("--teacher_model.pretrained_model_name_or_path=", teacher)}));
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err,
              HasSubstr("the pad token of the teacher's tokenizer is '<|pad|>', that of the "
                        "student's '<|endoftext|>' [teacher_model.pretrained_model_name_or_path]"));
}

/// 117480 frozen parameters in float32, half of them on each of two ranks, and nothing that trains
/// them.
TEST(DistillationTest, APlanCountsTheTeacher) {
  const auto plan_of = [](const char* recipe) {
    const ProgramResult run =
        test::run_program({test::automodel_binary(), "plan", test::source_file(recipe), "--json",
                           "--world-size=2", "--distributed.strategy=fsdp2"});
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, recipe);
  };
  const Json student = plan_of("recipes/smoke/tiny_llama_sft.yaml");
  const Json both = plan_of(kRecipe);
  EXPECT_EQ(both.at("num_parameters").as_int(), student.at("num_parameters").as_int());
  const int64_t teacher = both.at("bytes").at("teacher").as_int();
  constexpr int64_t kHalf = 117480 * 4 / 2;
  EXPECT_GE(teacher, kHalf);
  EXPECT_LE(teacher, kHalf + 4096);  // flat buffers are padded
  const int64_t gathered = both.at("bytes").at("teacher_gathered").as_int();
  EXPECT_GT(gathered, 0);
  EXPECT_EQ(both.at("moments").at("step").as_int(),
            student.at("moments").at("step").as_int() + teacher + gathered);
  EXPECT_EQ(both.at("not_counted").as_array()[0].as_string(),
            "the teacher's activations, and distributions of 256 tokens at a time");
}

}  // namespace
}  // namespace automodel::recipes
