// Block diffusion: batches and losses against AutoModel's recipe (tests/golden/dllm/SOURCE.md),
// folders, and runs as processes.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "datasets/loading/window_collate.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/fill_by_name.h"
#include "models/diffusion_gemma/diffusion_model.h"
#include "models/golden_model.h"
#include "recipes/diffusion_runs.h"
#include "recipes/folders.h"
#include "recipes/passes/block_diffusion.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using models::BlockDiffusionBatch;
using models::diffusion_gemma::DiffusionGemmaModel;
using test::bytes_of;
using test::expect_equal_diffusion;
using test::ProgramResult;
using test::read_records;
using test::save_again;
using test::Spread;
using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr int64_t kIgnored = -100;
constexpr BlockDiffusionOptions kGoldenOptions = {.vocab_size = 96, .block_size = 8};
constexpr datasets::WindowCollaterConfig kGoldenCollater = {
    .pad_id = 0, .eos_id = 1, .block_size = 8, .pad_seq_len_divisible = 4};

/// The tensors of AutoModel's recipe.
class RecipeGolden final {
 public:
  RecipeGolden()
      : tensors_(test::read_trusted_safetensors(test::golden_file("dllm", "recipe.safetensors"))) {}

  at::Tensor at(const std::string& name) const {
    for (const auto& [key, value] : tensors_) {
      if (key == name) return value;
    }
    throw std::runtime_error("no tensor " + name);
  }

  /// The collated samples of a step's micro-batch.
  tensor::Batch batch(const std::string& place) const {
    std::vector<datasets::Sample> samples;
    for (int i = 0; i < 2; ++i) {
      const at::Tensor ids = at(cat(place, "sample", i));
      const auto prompt = at(cat(place, "prompt", i)).item<int64_t>();
      datasets::Sample sample;
      sample.input_ids.assign(ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel());
      sample.labels = sample.input_ids;
      std::fill_n(sample.labels.begin(), prompt, kIgnored);
      sample.num_attended = ids.numel();
      samples.push_back(std::move(sample));
    }
    return datasets::window_collater(samples, kGoldenCollater);
  }

 private:
  tensor::NamedTensors tensors_;
};

MicroBatchPlace golden_place(int64_t step, int64_t micro_batch) {
  return {.step = step, .micro_batch = micro_batch, .grad_acc_steps = 2};
}

TEST(BlockDiffusionBatches, AreThoseOfAutoModelsRecipe) {
  at::set_num_threads(1);
  const RecipeGolden golden;
  for (const int64_t step : {0, 3}) {
    for (const int64_t micro_batch : {0, 1}) {
      const std::string place = cat("s", step, ".", micro_batch, ".");
      SCOPED_TRACE(place);
      const tensor::Batch batch = golden.batch(place);
      EXPECT_TRUE(at::equal(batch.input_ids, golden.at(place + "input_ids")));
      EXPECT_TRUE(at::equal(batch.labels.ne(kIgnored), golden.at(place + "loss_mask").ne(0)));
      EXPECT_TRUE(at::equal(batch.padding_mask, golden.at(place + "attention_mask").eq(0)));
      const BlockDiffusionBatch found = make_block_diffusion_batch(
          batch, golden_place(step, micro_batch), kGoldenOptions, kIgnored);
      EXPECT_TRUE(at::equal(found.canvas_ids, golden.at(place + "canvas_ids")));
      EXPECT_TRUE(at::equal(found.canvas_labels, golden.at(place + "canvas_labels")));
      EXPECT_TRUE(at::equal(found.is_conditioned, golden.at(place + "is_conditioned").ne(0)));
    }
  }
}

TEST(BlockDiffusionBatches, LossesOfAStepAreThoseOfAutoModelsRecipe) {
  at::set_num_threads(1);
  const RecipeGolden golden;
  const auto loaded = test::load_golden_model("diffusion_gemma");
  auto& model = dynamic_cast<DiffusionGemmaModel&>(*loaded);
  model.train();
  const auto parameters = model.named_parameters();
  for (int i = 0; i < 4; ++i) {  // upstream takes the decoder's scalars for both passes
    const std::string layer = cat("model.layers.", i, ".");
    parameters[layer + "encoder_layer_scalar"].detach().copy_(
        parameters[layer + "layer_scalar"].detach());
  }
  for (const int64_t step : {0, 3}) {
    std::vector<BlockDiffusionBatch> batches;
    models::BlockDiffusionScale scale{0, 0, 0.7};
    for (const int64_t micro_batch : {0, 1}) {
      batches.push_back(
          make_block_diffusion_batch(golden.batch(cat("s", step, ".", micro_batch, ".")),
                                     golden_place(step, micro_batch), kGoldenOptions, kIgnored));
      scale.canvas_divisor += batches.back().canvas_labels.ne(kIgnored).sum().item<double>();
      scale.text_divisor += batches.back().text_labels.ne(kIgnored).sum().item<double>();
    }
    double total = 0;
    double canvas = 0;
    for (const BlockDiffusionBatch& batch : batches) {
      const auto loss = model.block_diffusion_loss(batch, scale, kIgnored);
      total += loss.total.item<double>();
      canvas += loss.canvas.item<double>();
    }
    const auto wanted = golden.at(cat("s", step, ".loss")).item<double>();
    const auto wanted_canvas = golden.at(cat("s", step, ".dllm_loss")).item<double>();
    EXPECT_LE(std::abs(total - wanted) / wanted, 1e-5) << "step " << step;
    EXPECT_LE(std::abs(canvas - wanted_canvas) / wanted_canvas, 1e-5) << "step " << step;
  }
}

TEST(BlockDiffusionBatches, NoiseDoesNotDependOnHowRowsAreDealt) {
  // Rows 0 to 3 of step 2: as two micro-batches of two on one rank, and one each on two ranks.
  const MicroBatchPlace one{.step = 2, .micro_batch = 1, .grad_acc_steps = 2};
  const MicroBatchPlace two{.step = 2, .dp_rank = 1, .dp_size = 2, .grad_acc_steps = 1};
  EXPECT_EQ(corruption_sample_seed(42, one, 2, 1), corruption_sample_seed(42, two, 2, 1));
  EXPECT_EQ(corruption_sample_seed(42, {.step = 2}, 4, 1), corruption_sample_seed(42, two, 2, 0));
}

// ---- folders ------------------------------------------------------------------------------------

std::string golden_folder() {
  return test::source_file("tests/golden/diffusion_gemma");
}

TEST(DiffusionGemmaFolder, AbsentScalarsOfTheEncoderAreTheDecoders) {
  const TemporaryDirectory folder;
  const auto original = checkpoint::HfFolder::open(golden_folder());
  const auto model = models::build_causal_lm(original.config(), at::kFloat);
  distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                   comm::ProcessGroup::solo(), {});
  checkpoint::LoadOptions options{.skipped_prefixes = model->kept_prefixes()};
  checkpoint::load_weights(original, model->key_map(), engine.parameters(), options);
  std::vector<tensor::FlatShard> without = engine.parameters();
  for (tensor::FlatShard& shard : without) {
    std::erase_if(shard.segments, [](const tensor::FlatSegment& segment) {
      return segment.fqn.starts_with("model.encoder.language_model.");
    });
  }
  const std::string bare = folder.file("bare");
  checkpoint::save_hf_folder(bare, checkpoint::ShardSource(without),
                             {.config = model->hf_config()});
  save_again(bare, folder.file("saved"));
  const auto saved = bytes_of(folder.file("saved"));
  EXPECT_EQ(saved.at("model.encoder.language_model.layers.2.layer_scalar"),
            saved.at("model.decoder.layers.2.layer_scalar"));
}

// ---- runs ---------------------------------------------------------------------------------------

const test::DiffusionRuns kRuns{"tiny_diffusion_gemma.yaml"};

/// One block a response, one length and every row conditioned: what upstream draws by micro-batch
/// and not by row then is the same on any number of ranks. In float64: choices of experts flip with
/// the last bit, and single precision then runs apart.
Spread without_draws_by_micro_batch(int num_ranks, std::vector<std::string> options = {}) {
  const bool has_own_section = !options.empty() && options[0].starts_with("--distributed={");
  for (const char* option :
       {"--dllm.block_size=128", "--dllm.pad_seq_len_divisible=128", "--dataset.seq_length=128",
        "--dllm.self_conditioning_p=1", "--model.torch_dtype=float64"}) {
    options.emplace_back(option);
  }
  for (const char* key : {"param_dtype", "reduce_dtype"}) {
    if (!has_own_section) options.push_back(cat("--distributed.mp_policy.", key, "=float64"));
  }
  return {num_ranks, std::move(options)};
}

TEST(DiffusionGemmaRun, LearnsAndLogsUpstreamsKeys) {
  const TemporaryDirectory folder;
  const std::vector<Json> records = kRuns.records(folder.file("run"));
  ASSERT_EQ(records.size(), 6u);
  EXPECT_LT(records[5].at("loss").as_double(), records[0].at("loss").as_double());
  std::vector<std::string> keys;
  for (const auto& [key, value] : records[0].as_object()) keys.push_back(key);
  EXPECT_THAT(
      keys, testing::UnorderedElementsAre(
                "step", "epoch", "timestamp", "loss", "dllm_loss", "grad_norm", "lr", "mem", "tps",
                "tps_per_gpu", "mfu", "tokens_per_step", "supervised_tokens", "draft_acc", "mode",
                "data_seconds", "forward_backward_seconds", "update_seconds", "wait_seconds"));
  EXPECT_EQ(records[0].at("mode").as_string(), "block_diffusion");
  EXPECT_TRUE(records[0].at("draft_acc").is_null());
  // Random weights over 2048 tokens: each of the two losses is near log(2048).
  EXPECT_NEAR(records[0].at("dllm_loss").as_double(), std::log(2048.0), 0.5);
  EXPECT_NEAR(records[0].at("loss").as_double(), 2 * std::log(2048.0), 1.0);
}

TEST(DiffusionGemmaRun, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const auto shortened = [](Spread spread) {
    spread.options.emplace_back("--step_scheduler.max_steps=3");
    return spread;
  };
  const std::vector<Json> one =
      kRuns.records(folder.file("one"), shortened(without_draws_by_micro_batch(1)));
  ASSERT_EQ(one.size(), 3u);
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"fsdp2 on 2", without_draws_by_micro_batch(2)},
      {"fsdp2 on 2, reduced after every micro-batch",
       without_draws_by_micro_batch(
           2, {"--step_scheduler.local_batch_size=1", "--distributed.defer_fsdp_grad_sync=false"})},
      {"fsdp2 on 2, recomputed",
       without_draws_by_micro_batch(2, {"--distributed.activation_checkpointing=true"})},
      {"ep2 on 4, two replicas",
       without_draws_by_micro_batch(
           4, {"--step_scheduler.local_batch_size=1", "--distributed.dp_replicate_size=2",
               "--distributed.ep_size=2"})},
      {"ep2 on 2", without_draws_by_micro_batch(2, {"--distributed.ep_size=2"})},
      {"ddp on 2", without_draws_by_micro_batch(2, {"--distributed={'strategy': 'ddp'}"})},
      {"zero 1 on 2",
       without_draws_by_micro_batch(
           2, {"--distributed={'strategy': 'megatron_fsdp', 'zero_dp_strategy': 1}"})}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_diffusion(one, kRuns.records(folder.file(name), shortened(spread)), 1e-6);
  }
}

TEST(DiffusionGemmaRun, WithoutTheTextsShareALossIsTheCanvassOnAnySpread) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, int num_ranks, const char* option) {
    return kRuns.records(
        folder.file(name),
        without_draws_by_micro_batch(
            num_ranks, {"--dllm.encoder_loss_weight=0", "--step_scheduler.max_steps=2", option}));
  };
  const std::vector<Json> one = run("one", 1, "--distributed.ep_size=1");
  ASSERT_EQ(one.size(), 2u);
  for (const Json& record : one) {
    EXPECT_EQ(record.at("loss").as_double(), record.at("dllm_loss").as_double());
  }
  expect_equal_diffusion(one, run("fsdp2", 2, "--distributed.ep_size=1"), 1e-6);
  expect_equal_diffusion(one, run("ep2", 2, "--distributed.ep_size=2"), 1e-6);
}

TEST(DiffusionGemmaRun, AContinuedRunHasTheLossesOfOneThatWasNotStopped) {
  const TemporaryDirectory folder;
  const std::vector<Json> whole = kRuns.records(folder.file("whole"));
  kRuns.records(folder.file("run"), {1, {"--step_scheduler.max_steps=3"}});
  expect_equal_diffusion(whole, kRuns.records(folder.file("run")), 0);
}

TEST(DiffusionGemmaRun, CheckpointsLoadOnOtherSpreads) {
  const TemporaryDirectory folder;
  const std::vector<Json> whole =
      kRuns.records(folder.file("whole"), without_draws_by_micro_batch(1));
  const Spread spreads[] = {
      without_draws_by_micro_batch(1), without_draws_by_micro_batch(2),
      without_draws_by_micro_batch(2, {"--distributed.ep_size=2"}),
      without_draws_by_micro_batch(4, {"--step_scheduler.local_batch_size=1"})};
  for (size_t i = 0; i < std::size(spreads); ++i) {
    SCOPED_TRACE(i);
    Spread saving = spreads[i];
    saving.options.push_back("--step_scheduler.max_steps=3");
    const std::string target = folder.file(cat("run", i));
    kRuns.records(target, saving);
    expect_equal_diffusion(whole, kRuns.records(target, spreads[(i + 1) % std::size(spreads)]),
                           1e-6);
  }
}

/// A folder of the smoke recipe's model with random weights and two tensors of a vision tower.
void write_folder_with_tower(const std::string& path) {
  const auto model = models::build_causal_lm(
      Json::parse_file(test::source_file("configs/tiny/diffusion_gemma/config.json")), at::kFloat);
  distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                   comm::ProcessGroup::solo(), {});
  distributed::fill_by_name(engine);
  std::vector<tensor::FlatShard> shards = engine.parameters();
  const auto whole = [](const char* name, int64_t offset) {
    return tensor::FlatSegment{name, tensor::ShardSpec::whole({3}), offset};
  };
  shards.push_back({"",
                    at::arange(6, at::kFloat),
                    {whole("model.encoder.vision_tower.a.weight", 0),
                     whole("model.encoder.embed_vision.b.weight", 3)}});
  checkpoint::save_hf_folder(path, checkpoint::ShardSource(shards), {.config = model->hf_config()});
}

TEST(DiffusionGemmaRun, AFolderIsTrainedAndExportedWithItsVisionTower) {
  const TemporaryDirectory folder;
  const std::string base = folder.file("base");
  write_folder_with_tower(base);
  const auto before = bytes_of(base);
  for (const int num_ranks : {1, 2}) {
    SCOPED_TRACE(num_ranks);
    const std::string target = folder.file(cat("run", num_ranks));
    std::vector<std::string> arguments = kRuns.command(target, {num_ranks, {}});
    for (const std::string& more :
         {std::string("--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained"),
          cat("--model.pretrained_model_name_or_path=", base), std::string("--model.config=None"),
          std::string("--step_scheduler.max_steps=2")}) {
      arguments.push_back(more);
    }
    const ProgramResult run = test::run_program(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("weights: 2 tensors of model.encoder.vision_tower. and "
                                   "model.encoder.embed_vision. are not trained; they are saved "
                                   "as they came"));
    const auto after = bytes_of(target + "/LATEST/model/consolidated");
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, bytes] : before) {
      const bool is_kept = name.find("vision") != std::string::npos ||
                           name.find("router") != std::string::npos ||
                           name.ends_with("layer_scalar");
      EXPECT_EQ(after.at(name) == bytes, is_kept) << name;
    }
  }
}

const std::vector<std::string> kAdapters = {
    "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig", "--peft.dim=8",
    "--peft.target_modules=['*self_attn.*_proj','*.mlp.down_proj','*.experts']"};

std::vector<std::string> with_adapters(std::vector<std::string> options) {
  options.insert(options.begin(), kAdapters.begin(), kAdapters.end());
  return options;
}

TEST(DiffusionGemmaRun, AdaptersDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const auto spread = [](int num_ranks, const std::vector<std::string>& options) {
    return without_draws_by_micro_batch(num_ranks, with_adapters(options));
  };
  const std::vector<Json> one = kRuns.records(folder.file("one"), spread(1, {}));
  ASSERT_EQ(one.size(), 6u);
  EXPECT_LT(one[5].at("loss").as_double(), one[0].at("loss").as_double());
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"fsdp2", spread(2, {})},
      {"recomputed", spread(2, {"--distributed.activation_checkpointing=true"})},
      {"ep2", spread(2, {"--distributed.ep_size=2"})}};
  for (const auto& [name, other] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_diffusion(one, kRuns.records(folder.file(name), other), 1e-6);
  }
  const checkpoint::SafetensorsFile saved(
      path_join(folder.file("ep2"), "LATEST/model/adapter_model.safetensors"));
  // Of four layers: q, k, o and down_proj, v in two of them, and experts' two products; for the
  // modules of both of transformers' stacks.
  EXPECT_EQ(saved.tensors().size(), size_t{2} * 2 * (4 * 6 + 2));
  for (const checkpoint::TensorEntry& entry : saved.tensors()) {
    const size_t place = entry.name.find("model.decoder.");
    if (place == std::string::npos) continue;
    const std::string twin =
        std::string(entry.name).replace(place, 13, "model.encoder.language_model");
    EXPECT_TRUE(at::equal(saved.read(entry.name), saved.read(twin))) << entry.name;
  }
}

TEST(DiffusionGemmaRun, AdaptersWithDropoutContinueAndAreRecomputed) {
  const TemporaryDirectory folder;
  const auto records = [&](const std::string& name, std::vector<std::string> options) {
    options.emplace_back("--peft.dropout=0.2");
    return kRuns.records(folder.file(name), {1, with_adapters(std::move(options))});
  };
  const std::vector<Json> whole = records("whole", {});
  ASSERT_EQ(whole.size(), 6u);
  EXPECT_NE(whole[5].at("loss").as_double(),
            kRuns.records(folder.file("kept"), {1, with_adapters({})})[5].at("loss").as_double());
  expect_equal_diffusion(whole,
                         records("recomputed", {"--distributed.activation_checkpointing=true"}), 0);
  records("run", {"--step_scheduler.max_steps=3"});
  expect_equal_diffusion(whole, records("run", {}), 0);
}

TEST(DiffusionGemmaRun, AnAdapterOfTheHeadIsRefused) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(
      kRuns.command(folder.path(), {1,
                                    {"--peft.target_modules=['*']",
                                     "--peft._target_=nemo_automodel.components._peft.lora."
                                     "PeftConfig"}}));
  EXPECT_EQ(run.status, 6);
  EXPECT_THAT(run.err, HasSubstr("an adapter of lm_head of DiffusionGemmaForBlockDiffusion is not "
                                 "in this version: name other layers in target_modules, such as "
                                 "'*_proj'"));
}

TEST(DiffusionGemmaRun, ValidationScoresTheCanvasAlone) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments = kRuns.command(folder.file("run"));
  for (const std::string& more :
       {std::string("--validation_dataset._target_=nemo_automodel.components.datasets.llm."
                    "column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset"),
        std::string("--validation_dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl"),
        std::string("--validation_dataset.column_mapping.question=question"),
        std::string("--validation_dataset.column_mapping.answer=answer"),
        std::string("--validation_dataset.unshifted=true"),
        std::string("--validation_dataset.limit_dataset_samples=4"),
        std::string("--validation_dataset.tokenizer.pretrained_model_name_or_path=configs/"
                    "quickstart_tokenizer"),
        std::string("--step_scheduler.val_every_steps=3")}) {
    arguments.push_back(more);
  }
  const ProgramResult run = test::run_program(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const auto records = read_records(folder.file("run/validation.jsonl"));
  ASSERT_EQ(records.size(), 2u);
  for (const Json& record : records) {
    EXPECT_LT(record.at("val_loss").as_double(), 9.0);         // one loss, not two
    EXPECT_EQ(record.at("num_label_tokens").as_int() % 8, 0);  // whole blocks
  }
}

}  // namespace
}  // namespace automodel::recipes
