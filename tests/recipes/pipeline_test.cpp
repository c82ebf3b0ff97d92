#include <gtest/gtest.h>

#include <cmath>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

using Options = std::vector<std::string>;

/// Six steps of an untied Llama of eight layers, four sequences a batch.
Options deep_run(const std::string& folder, const Spread& spread, const Options& more = {}) {
  Options options = {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
                     "--model.config=tests/recipes/data/llama_8_layers",
                     "--model.pretrained_model_name_or_path=",
                     "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                     "--step_scheduler.global_batch_size=16",
                     "--step_scheduler.local_batch_size=4"};
  options.insert(options.end(), more.begin(), more.end());
  return test::on(spread, test::smoke_run(folder, options));
}

std::vector<Json> records_of_deep_run(const std::string& folder, const Spread& spread,
                                      const Options& more = {}) {
  Options arguments = deep_run(folder, spread, more);
  arguments.emplace_back("--checkpoint.enabled=false");
  const ProgramResult run = test::run_program(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// Stages on two pipeline ranks (of which `num_ranks` are a multiple).
Spread staged(int num_ranks, const std::string& schedule, const Options& more = {}) {
  Options options = {"--distributed.pp_size=2",
                     cat("--distributed.pipeline.pp_schedule=", schedule)};
  options.insert(options.end(), more.begin(), more.end());
  return test::sharded(num_ranks, options);
}

using NamedSpread = std::pair<const char*, Spread>;

void expect_losses_of_one_process(const std::vector<NamedSpread>& spreads) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of_deep_run(folder.file("one"), {1, {}});
  ASSERT_EQ(one.size(), 6u);
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    test::expect_equal_records(one, records_of_deep_run(folder.file(name), spread), 2e-6);
  }
}

TEST(PipelineRunTest, EveryScheduleGivesTheLossesOfOneProcess) {
  expect_losses_of_one_process(
      {{"1F1B", staged(2, "1f1b")},
       {"GPipe", staged(2, "gpipe")},
       {"Interleaved1F1B", staged(2, "Interleaved1F1B")},
       {"LoopedBFS", staged(2, "LoopedBFS")},
       {"InterleavedZeroBubble", staged(2, "InterleavedZeroBubble")},
       {"ZBVZeroBubble", staged(2, "ZBVZeroBubble")},
       {"four stages a rank",
        staged(2, "InterleavedZeroBubble", {"--distributed.pipeline.layers_per_stage=1"})},
       {"two sequences a micro-batch",
        staged(2, "1f1b", {"--distributed.pipeline.pp_microbatch_size=2"})},
       {"stages by name",
        staged(2, "1f1b",
               {"--distributed.pipeline.module_fqns_per_model_part=[['model.embed_tokens', "
                "'model.layers.0', 'model.rotary_emb'], ['model.layers.1', 'model.layers.2', "
                "'model.layers.3', 'model.layers.4', 'model.layers.5', 'model.layers.6', "
                "'model.layers.7', 'model.norm', 'lm_head']]"})},
       {"a schedule of a file",
        staged(2, "1f1b",
               {"--distributed.pipeline.pp_schedule_csv=tests/recipes/data/schedule_good.csv",
                "--distributed.pipeline.pp_microbatch_size=2"})}});
}

TEST(PipelineRunTest, StagesAreShardedSplitAndRecomputed) {
  expect_losses_of_one_process(
      {{"pp2 x fsdp2, reduced after every micro-batch",
        staged(4, "InterleavedZeroBubble", {"--distributed.defer_fsdp_grad_sync=false"})},
       {"pp2 x tp2 with split sequences",
        staged(4, "ZBVZeroBubble",
               {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
       {"recomputed", staged(2, "1f1b", {"--distributed.activation_checkpointing=true"})},
       {"recomputed with split backwards",
        staged(2, "ZBVZeroBubble", {"--distributed.activation_checkpointing=selective"})},
       {"pp2 x fsdp2, recomputed with split backwards",
        staged(4, "ZBVZeroBubble", {"--distributed.activation_checkpointing=true"})},
       {"pp4",
        test::sharded(4, {"--distributed.pp_size=4", "--distributed.pipeline.pp_schedule=1f1b"})}});
}

TEST(PipelineRunTest, EveryScheduleIsShardedAndSplitOverTensorParallelRanks) {
  std::vector<NamedSpread> spreads;
  for (const char* schedule : {"1f1b", "gpipe", "Interleaved1F1B", "LoopedBFS",
                               "InterleavedZeroBubble", "ZBVZeroBubble"}) {
    spreads.emplace_back(schedule, staged(4, schedule));
    spreads.emplace_back(schedule, staged(4, schedule, {"--distributed.tp_size=2"}));
  }
  expect_losses_of_one_process(spreads);
}

TEST(PipelineRunTest, ComputesInBfloat16ByDefaultWhereStagesAreSharded) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of_deep_run(folder.file("one"), {1, {}});
  const Spread spread{4,
                      {"--distributed.strategy=fsdp2", "--distributed.pp_size=2",
                       "--distributed.pipeline.pp_schedule=ZBVZeroBubble"}};
  const std::vector<Json> four = records_of_deep_run(folder.file("four"), spread);
  const std::vector<Json> stored =
      records_of_deep_run(folder.file("stored"), {1, {"--model.torch_dtype=bfloat16"}});
  EXPECT_NE(four[0].at("loss").as_double(), one[0].at("loss").as_double());
  test::expect_rounded_as_peer(one, four, stored);
}

TEST(PipelineRunTest, ValidationLossesAreThoseOfOneProcess) {
  const TemporaryDirectory folder;
  // 21 rows: the last batch of each pass has one sequence only.
  const Options validation = {
      "--validation_dataset._target_=nemo_automodel.components.datasets.llm."
      "column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
      "--validation_dataset.path_or_dataset_id=tests/recipes/data/rows.jsonl",
      "--validation_dataset.column_mapping.question=question",
      "--validation_dataset.column_mapping.answer=answer",
      "--validation_dataset.tokenizer._target_=transformers.AutoTokenizer.from_pretrained",
      "--validation_dataset.tokenizer.pretrained_model_name_or_path=configs/quickstart_tokenizer",
      "--step_scheduler.val_every_steps=3"};
  records_of_deep_run(folder.file("one"), {1, {}}, validation);
  const auto wanted = read_records(folder.file("one/validation.jsonl"));
  ASSERT_FALSE(wanted.empty());
  for (const char* schedule : {"1f1b", "ZBVZeroBubble"}) {
    records_of_deep_run(folder.file(schedule), staged(2, schedule), validation);
    const auto found = read_records(path_join(folder.file(schedule), "validation.jsonl"));
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(found[i].at("val_loss").as_double() / wanted[i].at("val_loss").as_double(), 1,
                  2e-6);
      EXPECT_EQ(found[i].at("num_label_tokens").as_int(),
                wanted[i].at("num_label_tokens").as_int());
    }
  }
}

/// An epoch of 21 rows in batches of 8: the last one has five sequences.
TEST(PipelineRunTest, ASmallerLastBatchIsTrained) {
  const TemporaryDirectory folder;
  const Options rows = {"--dataset.path_or_dataset_id=tests/recipes/data/rows.jsonl",
                        "--step_scheduler.global_batch_size=8",
                        "--step_scheduler.local_batch_size=8", "--step_scheduler.max_steps=3"};
  const std::vector<Json> one = records_of_deep_run(folder.file("one"), {1, {}}, rows);
  ASSERT_EQ(one.size(), 3u);
  for (const char* schedule : {"1f1b", "InterleavedZeroBubble", "ZBVZeroBubble"}) {
    test::expect_equal_records(
        one, records_of_deep_run(folder.file(schedule), staged(2, schedule), rows), 2e-6);
  }
}

/// Saved on one pipeline, continued on another: the steps of the run that went on.
TEST(PipelineRunTest, CheckpointsFitAnyPipeline) {
  const TemporaryDirectory folder;
  const std::vector<NamedSpread> spreads = {{"one", {1, {}}},
                                            {"pp2", staged(2, "1f1b")},
                                            {"pp2v", staged(2, "ZBVZeroBubble")},
                                            {"pp2fsdp2", staged(4, "Interleaved1F1B")}};
  for (const auto& [from, saved] : spreads) {
    ASSERT_EQ(test::run_program(deep_run(folder.file(from), saved)).status, 0);
    std::vector<Json> wanted = read_records(path_join(folder.file(from), "training.jsonl"));
    wanted.erase(wanted.begin(), wanted.begin() + 3);
    for (const auto& [to, loaded] : spreads) {
      SCOPED_TRACE(cat(from, " to ", to));
      const std::string place = folder.file(cat(from, "-", to));
      const ProgramResult run = test::run_program(
          deep_run(place, loaded,
                   {cat("--checkpoint.restore_from=", folder.file(from), "/epoch_0_step_2")}));
      ASSERT_EQ(run.status, 0) << run.err;
      test::expect_equal_records(wanted, read_records(path_join(place, "training.jsonl")), 2e-6);
    }
  }
}

TEST(PipelineRunTest, EveryRankLoadsItsStagesOfAFolderThatAPipelineExported) {
  const TemporaryDirectory folder;
  const ProgramResult saved =
      test::run_program(deep_run(folder.file("saved"), staged(2, "ZBVZeroBubble")));
  ASSERT_EQ(saved.status, 0) << saved.err;
  const auto losses_from = [&](const std::string& place, const Spread& spread) {
    const ProgramResult run = test::run_program(test::on(
        spread,
        test::smoke_run(folder.file(place),
                        {cat("--model.pretrained_model_name_or_path=", folder.file("saved"),
                             "/LATEST/model/consolidated"),
                         "--checkpoint.enabled=false", "--step_scheduler.local_batch_size=4"})));
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(path_join(folder.file(place), "training.jsonl"));
  };
  const std::vector<Json> one = losses_from("one", {1, {}});
  ASSERT_EQ(one.size(), 6u);
  test::expect_equal_records(one, losses_from("two", staged(2, "1f1b")), 2e-6);
}

TEST(PipelineRunTest, ALossThatIsNotFiniteNamesTheLastStagesRank) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      test::run_program(deep_run(folder.file("run"), staged(2, "1f1b"), {"--optimizer.lr=1e8"}));
  EXPECT_EQ(run.status, 5);
  EXPECT_NE(run.err.find("(non-finite on rank 1)"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace automodel::recipes
