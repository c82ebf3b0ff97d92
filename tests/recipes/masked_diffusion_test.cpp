// The modes of DiffusionLMSFTRecipe: batches and losses against AutoModel's recipe
// (tests/golden/masked_diffusion/SOURCE.md), and runs as processes.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "datasets/loading/window_collate.h"
#include "kernels/optimizer/optimizer_step.h"
#include "models/golden_model.h"
#include "recipes/diffusion_runs.h"
#include "recipes/folders.h"
#include "recipes/passes/correcting_diffusion.h"
#include "recipes/passes/introspective_diffusion.h"
#include "recipes/passes/masked_diffusion.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::bytes_of;
using test::expect_equal_diffusion;
using test::ProgramResult;
using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

constexpr int64_t kUnlabelled = -100;

/// A form of the golden: a model, what it learns, and how samples become batches.
struct Form {
  const char* name;
  const char* model;
  std::unique_ptr<DiffusionObjective> (*objective)(models::CausalLM& model);
  datasets::WindowCollaterConfig collater;
};

void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}

models::MaskedDenoiser& denoiser_of(models::CausalLM& model) {
  return dynamic_cast<models::MaskedDenoiser&>(model);
}

std::unique_ptr<DiffusionObjective> masked(models::CausalLM& model) {
  return make_masked_diffusion(denoiser_of(model), {.mask_token_id = 126});
}

std::unique_ptr<DiffusionObjective> correcting(models::CausalLM& model) {
  return make_correcting_diffusion(model, {.mask_token_id = 126,
                                           .vocab_size = 128,
                                           .num_timesteps = 50,
                                           .uniform_ratio = 0.3,
                                           .schedule_shape = 1.5,
                                           .schedule_peak = 0.4});
}

std::unique_ptr<DiffusionObjective> introspective(models::CausalLM& model) {
  model.set_attention_core(make_paired_attention_core(1));
  return make_introspective_diffusion(denoiser_of(model), {.mask_token_id = 126});
}

std::unique_ptr<DiffusionObjective> introspective_by_blocks(models::CausalLM& model) {
  model.set_attention_core(make_paired_attention_core(4));
  return make_introspective_diffusion(denoiser_of(model),
                                      {.mask_token_id = 126, .balances_clean_loss = true});
}

constexpr datasets::WindowCollaterConfig kPlain{.pad_id = 3, .eos_id = 2, .has_responses = false};
constexpr datasets::WindowCollaterConfig kByBlocks{
    .pad_id = 3, .eos_id = 2, .block_size = 8, .has_responses = false};
constexpr datasets::WindowCollaterConfig kSupervised{.pad_id = 3,
                                                     .eos_id = 2,
                                                     .block_size = 8,
                                                     .pad_seq_len_divisible = 12,
                                                     .supervises_padding = true,
                                                     .has_responses = false};
const Form kForms[] = {{"plain", "llada", masked, kPlain},
                       {"blocks", "llada", masked, kSupervised},
                       {"scdd", "llada", correcting, kPlain},
                       {"idlm", "llama_default", introspective, kByBlocks},
                       {"idlm_blocks", "llama_default", introspective_by_blocks, kByBlocks}};

class MaskedDiffusionGolden : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    tensors_ =
        test::read_trusted_safetensors(test::golden_file("masked_diffusion", "recipe.safetensors"));
    model_ = test::load_golden_model(GetParam().model);
    model_->eval();
    objective_ = GetParam().objective(*model_);
  }

  at::Tensor golden(const std::string& name) const {
    for (const auto& [key, value] : tensors_) {
      if (key == cat(GetParam().name, ".", name)) return value;
    }
    throw std::runtime_error("no tensor " + name);
  }

  /// The collated samples of a step's micro-batch.
  tensor::Batch batch(const std::string& place) const {
    std::vector<datasets::Sample> samples;
    for (int i = 0; i < 2; ++i) {
      const at::Tensor ids = golden(cat(place, "sample", i));
      const at::Tensor labels = at::where(golden(cat(place, "supervised", i)).ne(0), ids,
                                          at::full_like(ids, kUnlabelled));
      datasets::Sample sample;
      sample.input_ids.assign(ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel());
      sample.labels.assign(labels.data_ptr<int64_t>(), labels.data_ptr<int64_t>() + ids.numel());
      sample.num_attended = ids.numel();
      samples.push_back(std::move(sample));
    }
    return datasets::window_collater(samples, GetParam().collater);
  }

  /// A step's batches with noise, and the number of its supervised tokens.
  std::pair<std::vector<NoisedBatch>, double> step(int64_t step) const {
    std::pair<std::vector<NoisedBatch>, double> out;
    for (const int64_t micro_batch : {0, 1}) {
      const tensor::Batch whole = batch(cat("s", step, ".", micro_batch, "."));
      out.second += whole.labels.ne(kUnlabelled).sum().item<double>();
      out.first.push_back(objective_->noised(
          whole, {.step = step, .micro_batch = micro_batch, .grad_acc_steps = 2}));
    }
    return out;
  }

  void expect_near(double found, const std::string& name) const {
    const double wanted = golden(name).item<double>();
    EXPECT_LE(std::abs(found - wanted) / wanted, 1e-5) << name;
  }

  tensor::NamedTensors tensors_;
  std::shared_ptr<models::CausalLM> model_;
  std::unique_ptr<DiffusionObjective> objective_;
};

TEST_P(MaskedDiffusionGolden, BatchesAreThoseOfAutoModelsRecipe) {
  const std::string mode = objective_->mode();
  for (const int64_t step : {0, 3}) {
    const auto found = this->step(step).first;
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string place = cat("s", step, ".", i, ".");
      SCOPED_TRACE(place);
      const tensor::Batch whole = batch(place);
      EXPECT_TRUE(at::equal(whole.input_ids, golden(place + "input_ids")));
      EXPECT_TRUE(at::equal(whole.labels.ne(kUnlabelled), golden(place + "loss_mask").ne(0)));
      EXPECT_TRUE(at::equal(whole.padding_mask, golden(place + "attention_mask").eq(0)));
      const at::Tensor& ids = found[i].batch.input_ids;
      const int64_t length = whole.sequence_length();
      EXPECT_TRUE(
          at::equal(ids.narrow(1, ids.size(1) - length, length), golden(place + "noisy_ids")));
      if (mode == "idlm") {
        EXPECT_TRUE(at::equal(ids.narrow(1, 0, length), whole.input_ids));
        continue;
      }
      EXPECT_FALSE(found[i].batch.padding_mask.defined());
      const at::Tensor are_scored = found[i].batch.labels.ne(kUnlabelled);
      if (mode == "scdd") {
        EXPECT_TRUE(at::equal(found[i].times, golden(place + "p_mask")));
        EXPECT_TRUE(at::equal(are_scored, golden(place + "loss_mask").ne(0)));
      } else {
        EXPECT_TRUE(at::equal(found[i].weights, golden(place + "p_mask").reciprocal()));
        EXPECT_TRUE(at::equal(are_scored, golden(place + "is_noise").ne(0)));
      }
    }
  }
}

TEST_P(MaskedDiffusionGolden, LossesOfAStepAreThoseOfAutoModelsRecipe) {
  for (const int64_t step : {0, 3}) {
    const auto [batches, num_supervised] = this->step(step);
    double total = 0, denoising = 0;
    for (const NoisedBatch& each : batches) {
      const DiffusionLoss loss = objective_->loss(each, num_supervised);
      total += loss.total.item<double>();
      denoising += (loss.denoising.defined() ? loss.denoising : loss.total).item<double>();
    }
    expect_near(total, cat("s", step, ".loss"));
    expect_near(denoising, cat("s", step, ".dllm_loss"));
  }
}

TEST_P(MaskedDiffusionGolden, LossesOfThreeAdamWStepsAreThoseOfAutoModelsRecipe) {
  const auto [batches, num_supervised] = step(0);
  const at::Tensor losses = golden("losses");
  std::vector<std::pair<at::Tensor, at::Tensor>> moments;
  for (const at::Tensor& parameter : model_->parameters()) {
    moments.emplace_back(at::zeros({parameter.numel()}), at::zeros({parameter.numel()}));
  }
  for (int64_t step = 0; step < losses.numel(); ++step) {
    model_->zero_grad();
    double total = 0;
    for (const NoisedBatch& each : batches) {
      const at::Tensor loss = objective_->loss(each, num_supervised).total;
      total += loss.item<double>();
      loss.backward();
    }
    const double wanted = losses[step].item<double>();
    EXPECT_LE(std::abs(total - wanted) / wanted, 1e-5) << "step " << step;
    auto moment = moments.begin();
    for (const at::Tensor& parameter : model_->parameters()) {
      kernels::adam_step(parameter.detach().view(-1), parameter.grad().contiguous().view(-1),
                         moment->first, moment->second, {},
                         {.lr = 1e-3, .weight_decay = 0.01, .step = step + 1});
      ++moment;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MaskedDiffusionGolden, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

tensor::Batch supervised_rows(int64_t count, int64_t length) {
  tensor::Batch batch;
  batch.input_ids = at::arange(count * length, at::kLong).view({count, length}).remainder(120);
  batch.labels = batch.input_ids.clone();
  return batch;
}

TEST(MaskedDiffusion, NoiseDoesNotDependOnHowRowsAreDealt) {
  const auto model = test::load_golden_model("llada");
  const tensor::Batch all = supervised_rows(4, 40);
  const auto rows_of = [&](int64_t first, int64_t stride) {
    tensor::Batch batch;
    batch.input_ids = all.input_ids.slice(0, first, 4, stride);
    batch.labels = all.labels.slice(0, first, 4, stride);
    return batch;
  };
  for (const auto& make : {masked, correcting}) {
    const auto objective = make(*model);
    const NoisedBatch one = objective->noised(all, {.step = 2});
    // The second of two ranks has every other row; the second of two micro-batches the last two.
    const NoisedBatch rank =
        objective->noised(rows_of(1, 2), {.step = 2, .dp_rank = 1, .dp_size = 2});
    const NoisedBatch half =
        objective->noised(rows_of(2, 1), {.step = 2, .micro_batch = 1, .grad_acc_steps = 2});
    EXPECT_TRUE(at::equal(rank.batch.input_ids, one.batch.input_ids.slice(0, 1, 4, 2)));
    EXPECT_TRUE(at::equal(half.batch.input_ids, one.batch.input_ids.slice(0, 2, 4)));
  }
}

TEST(MaskedDiffusion, NoTokenIsHiddenMoreSeldomThanEps) {
  const auto model = test::load_golden_model("llada");
  tensor::Batch batch = supervised_rows(6, 50);
  batch.labels.narrow(1, 0, 10).fill_(kUnlabelled);
  const auto objective =
      make_masked_diffusion(denoiser_of(*model), {.eps = 1.0, .mask_token_id = 126});
  const NoisedBatch all = objective->noised(batch, {});
  EXPECT_TRUE(all.batch.input_ids.narrow(1, 10, 40).eq(126).all().item<bool>());
  EXPECT_TRUE(at::equal(all.batch.input_ids.narrow(1, 0, 10), batch.input_ids.narrow(1, 0, 10)));
  EXPECT_TRUE(at::equal(all.weights, at::ones({6})));
}

TEST(MaskedDiffusion, WithoutExchangesTheBoundIsTheMasksLoss) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model("llada");
  model->eval();
  const tensor::Batch batch = supervised_rows(4, 40);
  const auto bound = make_correcting_diffusion(
      *model, {.mask_token_id = 126, .vocab_size = 128, .num_timesteps = 100, .uniform_ratio = 0});
  const NoisedBatch noised = bound->noised(batch, {});
  NoisedBatch hidden = noised;
  const at::Tensor is_hidden = noised.batch.input_ids.eq(126);
  EXPECT_TRUE(at::equal(noised.batch.input_ids, batch.input_ids.masked_fill(is_hidden, 126)));
  hidden.batch.labels = batch.labels.masked_fill(is_hidden.logical_not(), kUnlabelled);
  hidden.weights = noised.times.reciprocal();
  const double wanted = masked(*model)->loss(hidden, 160).total.item<double>();
  const double found = bound->loss(noised, 160).total.item<double>();
  // The mask is no token of the bound's, one of 128 of the other's; its scores here are moderate.
  EXPECT_NEAR(found, wanted, 0.02 * wanted);
}

/// What a token loses in one of many steps is a small difference of what it has at both ends.
TEST(MaskedDiffusion, SmallStepsOfTheBoundKeepTheirDigits) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model("llada");
  model->eval();
  const auto bound = make_correcting_diffusion(
      *model, {.mask_token_id = 126, .vocab_size = 128, .num_timesteps = 1000});
  double sum = 0;
  constexpr int64_t kNumSteps = 40;
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const NoisedBatch noised = bound->noised(supervised_rows(4, 40), {.step = step});
    const double found = bound->loss(noised, 160).total.item<double>();
    NoisedBatch wide = noised;
    wide.times = noised.times.to(at::kDouble);
    model->to(at::kDouble);
    const double wanted = bound->loss(wide, 160).total.item<double>();
    model->to(at::kFloat);
    sum += std::abs(found / wanted - 1);
  }
  EXPECT_LT(sum / kNumSteps, 1e-5);  // differences of float32 numbers: 2e-5
}

// ---- runs ---------------------------------------------------------------------------------------

const test::DiffusionRuns kRuns{"tiny_llada.yaml"};

/// Attention sees padding, as upstream's does, so rows have one length on any number of ranks.
Spread of_one_length(int num_ranks, std::vector<std::string> options = {}) {
  options.emplace_back("--dllm.pad_seq_len_divisible=256");
  return {num_ranks, std::move(options)};
}

TEST(MaskedDiffusionRun, LearnsAndLogsUpstreamsKeys) {
  const TemporaryDirectory folder;
  const std::vector<Json> records = kRuns.records(folder.file("run"));
  ASSERT_EQ(records.size(), 6u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : records[0].as_object()) keys.push_back(key);
  EXPECT_THAT(
      keys, testing::UnorderedElementsAre(
                "step", "epoch", "timestamp", "loss", "dllm_loss", "grad_norm", "lr", "mem", "tps",
                "tps_per_gpu", "mfu", "tokens_per_step", "supervised_tokens", "draft_acc", "mode",
                "data_seconds", "forward_backward_seconds", "update_seconds", "wait_seconds"));
  for (const Json& record : records) {
    EXPECT_EQ(record.at("mode").as_string(), "mdlm");
    EXPECT_EQ(record.at("loss").as_double(), record.at("dllm_loss").as_double());
  }
  // Random weights over 2176 tokens: about log(2176) a supervised token, whatever the probability.
  EXPECT_NEAR(records[0].at("loss").as_double(), std::log(2176.0), 1.5);
  // With every supervised token hidden in every step losses compare.
  const auto all_hidden = kRuns.records(folder.file("hidden"), {1, {"--dllm.eps=1"}});
  ASSERT_EQ(all_hidden.size(), 6u);
  EXPECT_LT(all_hidden[5].at("loss").as_double(), all_hidden[0].at("loss").as_double());
}

TEST(MaskedDiffusionRun, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = kRuns.records(folder.file("one"), of_one_length(1));
  ASSERT_EQ(one.size(), 6u);
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"micro-batches of four", of_one_length(1, {"--step_scheduler.local_batch_size=4"})},
      {"fsdp2", of_one_length(2)},
      {"fsdp2, recomputed", of_one_length(2, {"--distributed.activation_checkpointing=true"})},
      {"ddp", of_one_length(2, {"--distributed={'strategy': 'ddp'}"})},
      {"tensor parallel", of_one_length(2, {"--distributed.tp_size=2"})},
      {"sequence parallel",
       of_one_length(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"fsdp2 on 4", of_one_length(4)}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_diffusion(one, kRuns.records(folder.file(name), spread), 2e-6);
  }
}

TEST(MaskedDiffusionRun, AContinuedRunHasTheLossesOfOneThatWasNotStopped) {
  const TemporaryDirectory folder;
  for (const int num_ranks : {1, 2}) {
    SCOPED_TRACE(num_ranks);
    const std::string whole = folder.file(cat("whole", num_ranks));
    const std::string cut = folder.file(cat("cut", num_ranks));
    const std::vector<Json> wanted = kRuns.records(whole, {num_ranks, {}});
    kRuns.records(cut, {num_ranks, {"--step_scheduler.max_steps=3"}});
    expect_equal_diffusion(wanted, kRuns.records(cut, {num_ranks, {}}), 0);
    const std::string model = "/LATEST/model/consolidated";
    EXPECT_EQ(bytes_of(cut + model), bytes_of(whole + model));
  }
}

/// Losses of a run with a mode's options on one rank and on two, also of one that was stopped. In
/// float64, in which other orders of adding are no matter.
void expect_equal_on_two_ranks(std::vector<std::string> options, const std::string& mode) {
  const TemporaryDirectory folder;
  options.insert(options.end(),
                 {"--model.torch_dtype=float64", "--distributed.mp_policy.param_dtype=float64",
                  "--distributed.mp_policy.reduce_dtype=float64"});
  const std::vector<Json> one = kRuns.records(folder.file("one"), of_one_length(1, options));
  ASSERT_EQ(one.size(), 6u);
  EXPECT_EQ(one[0].at("mode").as_string(), mode);
  expect_equal_diffusion(one, kRuns.records(folder.file("fsdp2"), of_one_length(2, options)), 1e-6);
  std::vector<std::string> by_ddp = options;
  by_ddp.resize(by_ddp.size() - 2);
  by_ddp.emplace_back("--distributed={'strategy': 'ddp'}");
  expect_equal_diffusion(one, kRuns.records(folder.file("ddp"), of_one_length(2, by_ddp)), 1e-6);
  std::vector<std::string> stopped = options;
  stopped.emplace_back("--step_scheduler.max_steps=3");
  kRuns.records(folder.file("cut"), of_one_length(2, stopped));
  expect_equal_diffusion(one, kRuns.records(folder.file("cut"), of_one_length(2, options)), 1e-6);
}

TEST(MaskedDiffusionRun, TokensAreCorrectedAlikeOnAnyRanks) {
  expect_equal_on_two_ranks({"--dllm.mode=scdd", "--dllm.vocab_size=2176"}, "scdd");
}

const std::vector<std::string> kIntrospective = {
    "--dllm.mode=idlm", "--dllm.eps=None",
    "--model.config.pretrained_model_name_or_path=configs/tiny/llama", "--dllm.mask_token_id=2047"};

TEST(MaskedDiffusionRun, AModelThatReadsFromLeftToRightLearnsAlikeOnAnyRanks) {
  std::vector<std::string> options = kIntrospective;
  expect_equal_on_two_ranks(options, "idlm");
  options.emplace_back("--dllm.block_length=4");
  options.emplace_back("--distributed.activation_checkpointing=true");
  const TemporaryDirectory folder;
  const auto records = kRuns.records(folder.file("run"), of_one_length(2, options));
  ASSERT_EQ(records.size(), 6u);
  for (const Json& record : records) {
    EXPECT_GT(record.at("loss").as_double(), record.at("dllm_loss").as_double());
  }
  EXPECT_LT(records[5].at("loss").as_double(), records[0].at("loss").as_double());
}

TEST(MaskedDiffusionRun, PlansCountACopyOfATextAndSayWhatTheyDoNotCount) {
  const auto plan_of = [](std::vector<std::string> options) {
    options.insert(options.begin(), {test::automodel_binary(), "plan",
                                     test::source_file("recipes/smoke/tiny_llada.yaml")});
    const ProgramResult plan = test::run_program(options);
    EXPECT_EQ(plan.status, 0) << plan.err;
    return plan.out;
  };
  EXPECT_THAT(plan_of({}), testing::HasSubstr("2 sequences of 256 tokens"));
  EXPECT_THAT(plan_of(kIntrospective), testing::HasSubstr("2 sequences of 512 tokens"));
  EXPECT_THAT(plan_of({"--dllm.mode=scdd", "--dllm.vocab_size=2176"}),
              testing::HasSubstr("not counted: the logits of a micro-batch's supervised tokens, "
                                 "which mode scdd makes whole"));
}

TEST(MaskedDiffusionRun, AModelWithExpertsLearnsAlikeOnAnyRanks) {
  const TemporaryDirectory folder;
  const auto records = [&](const std::string& name, int num_ranks, const char* option) {
    return kRuns.records(
        folder.file(name),
        of_one_length(num_ranks,
                      {"--model.config.pretrained_model_name_or_path=configs/tiny/llada2",
                       "--model.torch_dtype=float64", "--distributed.mp_policy.param_dtype=float64",
                       "--distributed.mp_policy.reduce_dtype=float64",
                       "--step_scheduler.max_steps=3", option}));
  };
  const auto one = records("one", 1, "--distributed.ep_size=1");
  ASSERT_EQ(one.size(), 3u);
  expect_equal_diffusion(one, records("fsdp2", 2, "--distributed.ep_size=1"), 2e-6);
  expect_equal_diffusion(one, records("ep2", 2, "--distributed.ep_size=2"), 2e-6);
}

TEST(MaskedDiffusionRun, ExportsTheReleasedNames) {
  const TemporaryDirectory folder;
  kRuns.records(folder.file("run"), {1, {"--step_scheduler.max_steps=1"}});
  std::vector<std::string> names;
  for (const auto& [name, bytes] : bytes_of(folder.file("run/LATEST/model/consolidated"))) {
    if (name.find("blocks.1") == std::string::npos) names.push_back(name);
  }
  EXPECT_THAT(
      names,
      testing::UnorderedElementsAre(
          "model.transformer.wte.weight", "model.transformer.ln_f.weight",
          "model.transformer.ff_out.weight", "model.transformer.blocks.0.attn_norm.weight",
          "model.transformer.blocks.0.q_proj.weight", "model.transformer.blocks.0.k_proj.weight",
          "model.transformer.blocks.0.v_proj.weight", "model.transformer.blocks.0.attn_out.weight",
          "model.transformer.blocks.0.ff_norm.weight", "model.transformer.blocks.0.ff_proj.weight",
          "model.transformer.blocks.0.up_proj.weight", "model.transformer.blocks.0.ff_out.weight"));
}

TEST(MaskedDiffusionRun, AdaptersTrainAndContinue) {
  const TemporaryDirectory folder;
  const auto records = [&](const std::string& name, int num_ranks,
                           std::vector<std::string> options) {
    options.insert(options.end(),
                   {"--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
                    "--peft.dim=4", "--peft.target_modules=['*.q_proj','*.att_proj','*.ff_out']"});
    return kRuns.records(folder.file(name), of_one_length(num_ranks, std::move(options)));
  };
  const std::vector<Json> one = records("one", 1, {});
  ASSERT_EQ(one.size(), 6u);
  expect_equal_diffusion(one, records("two", 2, {}), 2e-6);
  records("cut", 1, {"--step_scheduler.max_steps=3"});
  expect_equal_diffusion(one, records("cut", 1, {}), 0);
}

TEST(MaskedDiffusionRun, ValidationIsTheMeanOfSupervisedTokensOnAnyRanks) {
  const TemporaryDirectory folder;
  const auto validated = [&](int num_ranks) {
    const std::string target = folder.file(cat("run", num_ranks));
    std::vector<std::string> options = {
        "--validation_dataset._target_=nemo_automodel.components.datasets.llm."
        "column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
        "--validation_dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
        "--validation_dataset.column_mapping.question=question",
        "--validation_dataset.column_mapping.answer=answer",
        "--validation_dataset.unshifted=true",
        "--validation_dataset.limit_dataset_samples=8",
        "--validation_dataset.tokenizer.pretrained_model_name_or_path=configs/"
        "quickstart_tokenizer",
        "--step_scheduler.val_every_steps=3"};
    kRuns.records(target, of_one_length(num_ranks, std::move(options)));
    return read_records(path_join(target, "validation.jsonl"));
  };
  const auto one = validated(1);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_NEAR(one[0].at("val_loss").as_double(), std::log(2176.0), 2.5);
  const auto two = validated(2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].at("num_label_tokens").as_int(), one[0].at("num_label_tokens").as_int());
}

}  // namespace
}  // namespace automodel::recipes
