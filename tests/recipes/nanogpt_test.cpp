// Pretraining as upstream's nanoGPT recipe has it: .bin files and upstream's own GPT-2 builder.
#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/check/check_run.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;

constexpr const char* kRecipe = "recipes/llm_pretrain/nanogpt_pretrain.yaml";

/// Runs the recipe with a narrower model, a constant learning rate and short samples.
ProgramResult train(const std::string& folder, const test::Spread& spread,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      test::automodel_binary(),
      "run",
      test::source_file(kRecipe),
      cat("--checkpoint.checkpoint_dir=", folder),
      "--model.n_embd=32",
      "--model.n_layer=2",
      "--dataset.seq_len=32",
      "--validation_dataset.seq_len=64",
      "--dataset.align_to_bos=true",
      "--dataset.bos_token=0",
      "--step_scheduler.global_batch_size=4",
      "--step_scheduler.local_batch_size=1",  // one mask of dropout for each sequence
      "--lr_scheduler=none",
  };
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(test::on(spread, arguments));
}

std::vector<Json> records_of(const std::string& folder) {
  return test::read_records(path_join(folder, "training.jsonl"));
}

std::vector<std::string> numbers_of(const std::vector<Json>& records) {
  std::vector<std::string> numbers;
  for (const Json& record : records) {
    numbers.push_back(cat(record.at("step").dump(), " ", record.at("loss").dump(), " ",
                          record.at("grad_norm").dump()));
  }
  return numbers;
}

TEST(NanogptRunTest, LossesDoNotDependOnTheNumberOfRanks) {
  const TemporaryDirectory folder;
  const std::vector<std::string> short_run = {"--step_scheduler.max_steps=6",
                                              "--step_scheduler.val_every_steps=3"};
  ASSERT_EQ(train(folder.file("one"), {1, {}}, short_run).status, 0);
  const std::vector<Json> wanted = records_of(folder.file("one"));
  ASSERT_EQ(wanted.size(), 6U);
  for (const test::Spread& spread : {test::Spread{2, {}}, test::sharded(4)}) {
    const std::string place = folder.file(cat("ranks", spread.num_ranks));
    const ProgramResult run = train(place, spread, short_run);
    ASSERT_EQ(run.status, 0) << run.err;
    test::expect_equal_records(wanted, records_of(place), 2e-5);
    EXPECT_EQ(test::read_records(path_join(place, "validation.jsonl")).size(), 2U);
  }
}

/// The run goes through the files more than twice, in a new order each time.
TEST(NanogptRunTest, AStoppedRunContinuesBitForBit) {
  const TemporaryDirectory folder;
  const std::vector<std::string> passes = {
      "--validation_dataset=none",
      "--validation_dataloader=none",
      cat("--dataset.file_pattern=", test::source_file("tests/datasets/data/nanogpt/"), "*.bin"),
      "--dataset.seq_len=16",
      "--dataset.bos_token=1",
      "--step_scheduler.ckpt_every_steps=1000"};
  const auto with_steps = [&](int steps) {
    std::vector<std::string> more = passes;
    more.push_back(cat("--step_scheduler.max_steps=", steps));
    return more;
  };
  const ProgramResult whole = train(folder.file("whole"), {1, {}}, with_steps(24));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const ProgramResult half = train(folder.file("halves"), {1, {}}, with_steps(13));
  ASSERT_EQ(half.status, 0) << half.err;
  const ProgramResult rest = train(folder.file("halves"), {1, {}}, with_steps(24));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(numbers_of(records_of(folder.file("halves"))),
            numbers_of(records_of(folder.file("whole"))));
  EXPECT_EQ(records_of(folder.file("halves")).size(), 24U);
}

/// A run of other files than its checkpoint's is refused.
TEST(NanogptRunTest, ACheckpointOfOtherFilesIsRefused) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train(folder.file("run"), {1, {}}, {"--step_scheduler.max_steps=2"}).status, 0);
  const ProgramResult other = train(
      folder.file("run"), {1, {}},
      {"--step_scheduler.max_steps=4",
       cat("--dataset.file_pattern=", test::source_file("recipes/data/shakespeare_val.bin"))});
  EXPECT_EQ(other.status, 3);
  EXPECT_NE(other.err.find("the checkpoint's recipes/data/shakespeare_train_0.bin had"),
            std::string::npos)
      << other.err;
}

/// What an export says is loaded again, by `parity` and as the base of another run.
TEST(NanogptRunTest, AnExportIsAGpt2ThatLoadsAgain) {
  const TemporaryDirectory folder;
  const ProgramResult run = train(folder.file("run"), {1, {}}, {"--step_scheduler.max_steps=2"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string exported = folder.file("run/LATEST/model/consolidated");
  const Json config = Json::parse_file(path_join(exported, "config.json"));
  EXPECT_EQ(config.at("architectures").dump(), "[\"GPT2LMHeadModel\"]");
  EXPECT_EQ(config.at("activation_function").as_string(), "gelu");
  EXPECT_EQ(config.at("resid_pdrop").as_double(), 0.0);
  EXPECT_EQ(config.at("bos_token_id").as_int(), 0);
  EXPECT_FALSE(config.contains("scale_residual_init"));
  const ProgramResult parity =
      test::run_program({test::automodel_binary(), "parity", "--export", exported});
  EXPECT_EQ(parity.status, 0) << parity.out << parity.err;

  const ProgramResult again =
      train(folder.file("again"), {1, {}},
            {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
             cat("--model.pretrained_model_name_or_path=", exported),
             "--step_scheduler.max_steps=1", "--model.torch_dtype=float32"});
  ASSERT_EQ(again.status, 0) << again.err;
}

/// What is told of the shipped recipe with some changes, without the place.
std::vector<std::string> warnings_of(const std::vector<std::string>& changes) {
  const config::Document document = config::load_recipe(test::source_file(kRecipe), changes);
  config::Diagnostics diagnostics(document.sources);
  const Recipe recipe = read_recipe(document.root, diagnostics);
  check_run(recipe, {.world_size = 1}, diagnostics);
  EXPECT_EQ(diagnostics.count(config::Severity::kError), 0U);
  std::vector<std::string> texts;
  for (const auto& finding : diagnostics.findings()) {
    if (finding.severity == config::Severity::kWarning) texts.push_back(finding.text);
  }
  return texts;
}

TEST(NanogptRunTest, KeysWithoutEffectAreToldSo) {
  EXPECT_EQ(warnings_of({}), std::vector<std::string>());
  const std::string order =
      "' has no effect: samples are read one after another, in the order in which the files have "
      "them; shuffle_files of the dataset shuffles the files";
  const auto told = [](std::vector<std::string> changes, const std::string& text) {
    EXPECT_EQ(warnings_of(changes), std::vector<std::string>{text}) << changes[0];
  };
  told({"--dataloader.shuffle=true"}, "'shuffle" + order);
  told({"--dataloader.group_by_length=true"}, "'group_by_length" + order);
  told({"--dataloader.num_workers=2"}, "'num_workers" + order);
  told({"--validation_dataloader.prefetch_factor=2"}, "'prefetch_factor" + order);
  told({"--step_scheduler.num_epochs=1"},
       "'num_epochs' has no effect: the first epoch of this dataset has no end");
  told({"--dataset.bos_token=0"}, "'bos_token' has no effect without align_to_bos: true");
  told(
      {"--model.dropout=0.2"},
      "'dropout' has no effect: build_gpt2_model passes over it; it takes vocab_size, n_positions, "
      "n_ctx, n_embd, n_layer, n_head, bos_token_id, eos_token_id, attn_implementation");
}

ModelRecipe model_of(const std::string& arguments) {
  const config::Document document = config::load_text(
      cat("model:\n  _target_: nemo_automodel.components.models.gpt2.build_gpt2_model\n",
          arguments),
      "recipe.yaml");
  config::Diagnostics diagnostics(document.sources);
  Recipe recipe = read_recipe(document.root, diagnostics);
  return std::move(recipe.model);
}

TEST(Gpt2BuilderTest, HasUpstreamsDefaults) {
  const ModelRecipe plan = model_of("");
  EXPECT_TRUE(plan.is_new());
  EXPECT_EQ(plan.dtype, at::kFloat);
  const auto model = models::build_causal_lm(plan.hf_config, at::kFloat);
  int64_t num_parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) num_parameters += parameter.numel();
  // wte, wpe, 12 blocks (four linear layers, two norms), the last norm.
  EXPECT_EQ(num_parameters, 50257 * 768 + 2048 * 768 +
                                12 * (12 * 768 * 768 + (3 + 1 + 4 + 1) * 768 + 4 * 768) + 2 * 768);
  EXPECT_EQ(plan.hf_config.at("bos_token_id").as_int(), 50256);
  EXPECT_TRUE(model_of("  vocab_size: 100\n").hf_config.at("bos_token_id").is_null());
}

/// The arguments of the golden module of upstream's give the golden folder's configuration, and
/// rules of initial values that the module's own fit.
TEST(Gpt2BuilderTest, IsTheModelOfAutoModel) {
  const std::string golden = test::source_file("tests/golden/gpt2_builder/");
  const Json made = Json::parse_file(golden + "arguments.json");
  std::string arguments;
  for (const auto& [key, value] : made.at("arguments").as_object()) {
    arguments += cat("  ", key, ": ", value.dump(), "\n");
  }
  const ModelRecipe plan = model_of(arguments);
  const Json config = Json::parse_file(golden + "config.json");
  for (const auto& [key, value] : plan.hf_config.as_object()) {
    if (key == "scale_residual_init") continue;
    EXPECT_EQ(config.at(key).dump(), value.dump()) << key;
  }

  const auto model = models::build_causal_lm(plan.hf_config, at::kFloat);
  std::map<std::string, tensor::InitRule> rules;
  for (const models::ParameterInit& init : model->initial_values()) {
    rules[init.parameter] = init.rule;
  }
  const Json& initial = made.at("initial");
  for (const tensor::ParameterPart& part : model->key_map()) {
    if (!initial.contains(part.name)) continue;  // the tied head
    const Json::Array& moments = initial.at(part.name).as_array();
    const tensor::InitRule& rule = rules.at(part.parameter);
    double numel = 1;
    for (const int64_t size : part.shape) numel *= static_cast<double>(size);
    const bool is_drawn = rule.kind == tensor::InitRule::Kind::kNormal;
    // Five deviations of a sample's mean, and of its deviation.
    EXPECT_NEAR(moments[0].as_double(), rule.a, 5 * rule.b / std::sqrt(numel)) << part.name;
    EXPECT_NEAR(moments[1].as_double(), is_drawn ? rule.b : 0.0, 5 * rule.b / std::sqrt(2 * numel))
        << part.name;
  }
  EXPECT_EQ(initial.size(), 28U);
}

}  // namespace
}  // namespace automodel::recipes
