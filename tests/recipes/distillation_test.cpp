#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::Not;

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

using NamedSpread = std::pair<const char*, test::Spread>;

/// Runs on every spread have the numbers of a run on one rank.
void expect_records_of_one_rank(const std::vector<NamedSpread>& spreads,
                                const std::vector<std::string>& changes) {
  const TemporaryDirectory folder;
  const std::vector<Json> wanted = records_of({1, {}}, folder.file("one"), changes);
  ASSERT_EQ(wanted.size(), 2U);
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    test::expect_equal_records(wanted, records_of(spread, folder.file(name), changes), 2e-6,
                               {.numbers = {"loss", "ce_loss", "kd_loss", "grad_norm"}});
  }
}

TEST(DistillationTest, LossesDoNotDependOnTheSpread) {
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp", {2, {}}},
      {"fsdp2", test::sharded(2)},
      {"hsdp", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"context parallel", test::sharded(2, {"--distributed.cp_size=2"})},
      {"megatron_fsdp", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"recomputed", test::sharded(2, {"--distributed.activation_checkpointing=true"})},
      {"tensor parallel", test::sharded(2, {"--distributed.tp_size=2"})},
      {"sequence parallel",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"tensor parallel and sharded", test::sharded(4, {"--distributed.tp_size=2"})},
      {"offloaded", test::sharded(2, {"--offload_teacher_model=true"})}};
  expect_records_of_one_rank(spreads, {});
}

TEST(DistillationTest, ACpuIsToldThatNothingIsOffloaded) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(
      kd_run(folder.file("run"), {"--offload_teacher_model=true", "--step_scheduler.max_steps=1"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("offload_teacher_model moves nothing: this run computes on the "
                                 "CPU, whose memory the teacher is in already"));
}

/// A student without the embedding as its head, which stages need, in `changes` of the recipe.
const std::vector<std::string> kUntiedStudent = {
    "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
    "--model.config=tests/recipes/data/llama_8_layers",
    "--model.pretrained_model_name_or_path=", "--step_scheduler.local_batch_size=2"};

test::Spread staged(int num_ranks, const char* schedule, std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"--distributed.pp_size=2", "--distributed.pipeline.pp_microbatch_size=1",
               cat("--distributed.pipeline.pp_schedule=", schedule)});
  return test::sharded(num_ranks, more);
}

/// The teacher of three layers and the student of eight have stages of their own on each rank.
TEST(DistillationTest, StagesHaveTheLossesOfOneRank) {
  expect_records_of_one_rank({{"1f1b", staged(2, "1f1b")},
                              {"sharded stages", staged(4, "1f1b")},
                              {"split stages", staged(4, "1f1b", {"--distributed.tp_size=2"})}},
                             kUntiedStudent);
}

/// ZBVZeroBubble has the last stage on the first rank.
TEST(DistillationTest, SeveralStagesARankHaveTheLossesOfOneRank) {
  std::vector<std::string> changes = kUntiedStudent;
  changes.insert(
      changes.end(),
      {"--teacher_model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
       "--teacher_model.config=tests/recipes/data/llama_8_layers",
       "--teacher_model.pretrained_model_name_or_path=", "--teacher_model.initializer_range=0.3"});
  expect_records_of_one_rank(
      {{"V", staged(2, "ZBVZeroBubble")},
       {"loops", staged(2, "Interleaved1F1B", {"--distributed.pipeline.layers_per_stage=2"})}},
      changes);
}

/// One rank draws what experts on several ranks draw. Without the aux loss, whose mean is over a
/// micro-batch's tokens.
TEST(DistillationTest, ExpertsOnSeveralRanksHaveTheLossesOfOne) {
  const std::vector<std::string> experts = {"_target_=NeMoAutoModelForCausalLM.from_config",
                                            "config=configs/tiny/qwen3_moe",
                                            "pretrained_model_name_or_path="};
  const auto with_experts = [&](const std::vector<const char*>& sections) {
    std::vector<std::string> changes;
    for (const char* section : sections) {
      for (const std::string& change : experts) changes.push_back(cat("--", section, ".", change));
    }
    return changes;
  };
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"on 2", test::sharded(2, {"--distributed.ep_size=2"})},
      {"on 4", test::sharded(4, {"--distributed.ep_size=2"})}};
  std::vector<std::string> both = with_experts({"model", "teacher_model"});
  both.emplace_back("--model.router_aux_loss_coef=0");
  both.emplace_back("--teacher_model.initializer_range=0.3");  // else both are drawn alike
  {
    SCOPED_TRACE("both");
    expect_records_of_one_rank(spreads, both);
  }
  SCOPED_TRACE("the teacher's");
  expect_records_of_one_rank(spreads, with_experts({"teacher_model"}));
}

/// A student's and a teacher's meshes, side by side.
test::Spread apart(int num_ranks, const std::vector<std::string>& student,
                   const std::vector<std::string>& teacher) {
  test::Spread spread = test::sharded(num_ranks, {"--separate_meshes=true"});
  for (const std::string& option : student) spread.options.push_back(cat("--distributed.", option));
  for (const char* policy : {"mp_policy.param_dtype=float32", "mp_policy.reduce_dtype=float32"}) {
    spread.options.push_back(cat("--teacher_distributed.", policy));
  }
  for (const std::string& option : teacher) {
    spread.options.push_back(cat("--teacher_distributed.", option));
  }
  return spread;
}

TEST(DistillationTest, ATeacherOnRanksOfItsOwnGivesTheSameLosses) {
  const std::vector<std::string> stages = {"dp_size=1", "pp_size=2", "pipeline.pp_schedule=1f1b",
                                           "pipeline.pp_microbatch_size=1"};
  std::vector<std::string> of_four = kUntiedStudent;
  of_four.emplace_back("--step_scheduler.global_batch_size=8");
  expect_records_of_one_rank(
      {{"one and one", apart(2, {"dp_size=1"}, {"dp_size=1"})},
       {"two students, stages", apart(4, {"dp_size=2"}, stages)},
       {"two and two", apart(4, {"dp_size=2"}, {"dp_size=2"})},
       {"split teacher", apart(3, {"dp_size=1"}, {"dp_size=1", "tp_size=2"})},
       {"split student", apart(3, {"dp_size=1", "tp_size=2"}, {"dp_size=1"})},
       {"staged student", apart(3,
                                {"dp_size=1", "pp_size=2", "pipeline.pp_schedule=1f1b",
                                 "pipeline.pp_microbatch_size=1"},
                                {"dp_size=1"})},
       {"four students of a sharded teacher", apart(6, {"dp_size=4"}, {"dp_size=2"})}},
      of_four);
}

/// Lengths that neither 4 nor 6 divides are padded on either side alone.
TEST(DistillationTest, ATeacherAndAStudentApartMayEachSplitTheirSequences) {
  const std::vector<std::string> alone = {"dp_size=1"};
  const std::vector<std::string> in_two = {"dp_size=1", "cp_size=2"};
  const std::vector<std::string> in_three = {"dp_size=1", "cp_size=3"};
  std::vector<std::string> stages = {"dp_size=1", "pp_size=2", "pipeline.pp_schedule=1f1b",
                                     "pipeline.pp_microbatch_size=1"};
  std::vector<std::string> split_stages = stages;
  split_stages.emplace_back("cp_size=2");
  expect_records_of_one_rank(
      {{"teacher", apart(3, alone, in_two)},
       {"student", apart(3, in_two, alone)},
       {"both, in two and three", apart(5, in_two, in_three)},
       {"the teacher's tensors too", apart(5, alone, {"dp_size=1", "cp_size=2", "tp_size=2"})},
       {"two students", apart(4, {"dp_size=2"}, in_two)},
       {"the teacher's stages", apart(5, alone, split_stages)},
       {"the student's stages", apart(6, split_stages, in_two)}},
      kUntiedStudent);
}

/// The first and the last stage both have the weight, which is not trained.
TEST(DistillationTest, ATeacherWhoseHeadIsItsEmbeddingMayHaveStages) {
  std::vector<std::string> changes = kUntiedStudent;
  changes.emplace_back(
      "--teacher_model.pretrained_model_name_or_path=tests/recipes/data/tiny_llama");
  const auto stages = [](const char* schedule) {
    return std::vector<std::string>{"dp_size=1", "pp_size=2",
                                    cat("pipeline.pp_schedule=", schedule),
                                    "pipeline.pp_microbatch_size=1"};
  };
  std::vector<std::string> split = stages("1f1b");
  split.emplace_back("tp_size=2");
  expect_records_of_one_rank({{"stages", apart(3, {"dp_size=1"}, stages("1f1b"))},
                              {"split stages", apart(5, {"dp_size=1"}, split)},
                              {"on the student's ranks", staged(2, "1f1b")}},
                             changes);
}

TEST(DistillationTest, AStagedTeachersTiedHeadCountsOnce) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments =
      arguments_of(goldens().at("mixed").at("scenario"), folder.path());
  arguments.insert(arguments.end(), kUntiedStudent.begin(), kUntiedStudent.end());
  arguments.insert(arguments.end(),
                   {"--teacher_model.pretrained_model_name_or_path=tests/recipes/data/tiny_llama",
                    "--step_scheduler.max_steps=1"});
  const ProgramResult run = test::run_program(test::on(staged(2, "1f1b"), arguments));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("teacher: LlamaForCausalLM, 2 layers, hidden 16, 38224 "
                                 "parameters (frozen)"));
}

TEST(DistillationTest, ATeacherOnRanksOfItsOwnIsPartOfValidationAndOfAContinuedRun) {
  const TemporaryDirectory folder;
  const test::Spread spread = apart(2, {"dp_size=1"}, {"dp_size=1"});
  const auto run = [&](const char* place, const test::Spread& on, int steps) {
    std::vector<std::string> arguments =
        arguments_of(goldens().at("mixed").at("scenario"), folder.file(place));
    arguments.push_back(cat("--step_scheduler.max_steps=", steps));
    arguments.emplace_back("--step_scheduler.ckpt_every_steps=1");
    const ProgramResult result = test::run_program(test::on(on, arguments));
    EXPECT_EQ(result.status, 0) << result.err;
  };
  run("one", {1, {}}, 2);
  run("apart", spread, 1);
  run("apart", spread, 2);
  const test::RecordKeys keys{.numbers = {"loss", "ce_loss", "kd_loss"}};
  test::expect_equal_records(read_records(folder.file("one/training.jsonl")),
                             read_records(folder.file("apart/training.jsonl")), 2e-6, keys);
  const auto wanted = read_records(folder.file("one/validation.jsonl"));
  const auto found = read_records(folder.file("apart/validation.jsonl"));
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) expect_losses(found[i], wanted[i], "val_loss");
}

/// The student's ranks end with the teacher's text.
TEST(DistillationTest, AFailureOfATeacherOnRanksOfItsOwnEndsTheRun) {
  const TemporaryDirectory folder;
  std::filesystem::create_directory(folder.file("teacher"));
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(test::source_file(cat("tests/recipes/data/tiny_teacher/", file)),
                               folder.file(cat("teacher/", file)));
  }
  const std::string weights = folder.file("teacher/model.safetensors");
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 100);
  const ProgramResult run = test::run_program(test::on(
      apart(2, {"dp_size=1"}, {"dp_size=1"}),
      kd_run(folder.file("run"),
             {cat("--teacher_model.pretrained_model_name_or_path=", folder.file("teacher"))})));
  EXPECT_EQ(run.status, static_cast<int>(ExitCode::kInput)) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rank 1: "));
  EXPECT_THAT(run.err, HasSubstr("teacher/model.safetensors"));
  EXPECT_THAT(run.err, Not(HasSubstr("killed by signal")));
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

TEST(DistillationTest, ATeacherThatMayHaveNothingToTeachIsTold) {
  const TemporaryDirectory folder;
  const std::string student = with_tokenizer(folder, "tiny_llama", "<|pad|>");
  const auto told = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {test::automodel_binary(), "check", test::source_file(kRecipe),
                               cat("--model.pretrained_model_name_or_path=", student)});
    return test::run_program(more).out;
  };
  EXPECT_THAT(told({}), HasSubstr("warning: the teacher's folder has no tokenizer.json: nothing "
                                  "shows that its ids mean what the student's mean"));
  const std::string teacher = with_tokenizer(folder, "tiny_teacher", "<|pad|>");
  EXPECT_THAT(told({cat("--teacher_model.pretrained_model_name_or_path=", teacher)}),
              Not(HasSubstr("warning")));
  EXPECT_THAT(told({"--teacher_model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
                    cat("--teacher_model.config=", teacher),
                    "--teacher_model.pretrained_model_name_or_path="}),
              HasSubstr("warning: the teacher's weights are drawn at random, so it has nothing to "
                        "teach: from_pretrained loads some"));
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
