// Training with multi-token prediction: on ranks, by recomputation, from checkpoints, with
// adapters.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "comm/ranks.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/recompute/recompute.h"
#include "distributed/strategies/parallelizer.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "recipes/build/build_engine.h"
#include "recipes/engine_values.h"
#include "recipes/folders.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using distributed::Engine;
using test::ProgramResult;
using test::Spread;
using test::TemporaryDirectory;
using testing::HasSubstr;
using Mode = distributed::ActivationCheckpointingMode;

constexpr int64_t kSequences = 4;
constexpr int64_t kLength = 12;

/// Layers of every kind, the further ones among them; one depth's layers serve all if repeated.
std::shared_ptr<models::CausalLM> build(bool is_repeated) {
  Json config = Json::parse_file(test::source_file("tests/golden/nemotron_h_moe/config.json"));
  config["num_nextn_predict_layers"] = 2;
  config["mtp_use_repeated_layer"] = is_repeated;
  config["mtp_loss_scaling_factor"] = 0.5;
  config["mtp_layers_block_type"] =
      Json(Json::Array{Json("attention"), Json("mamba"), Json("moe")});
  auto model = models::build_causal_lm(config, at::kFloat);
  model->train();
  return model;
}

/// The sequences that rank `part` of `num_parts` reads, each of two documents.
tensor::Batch part_of_batch(int part, int num_parts) {
  tensor::Batch batch;
  batch.input_ids = at::remainder(at::arange(kSequences * kLength).pow(2) * 7 + 3, 90)
                        .view({kSequences, kLength});
  batch.labels = at::remainder(batch.input_ids * 5 + 1, 90);
  batch.labels.select(1, 0).fill_(-100);
  batch.document_ids = at::arange(kLength).ge(5).to(at::kLong).expand({kSequences, kLength});
  return batch.sequences(part * kSequences / num_parts, kSequences / num_parts);
}

/// Two micro-batches. Gradients are averaged over `num_parts` ranks.
double train(models::CausalLM& model, Engine& engine, int part, int num_parts) {
  fill_by_name(engine);
  engine.parameters_changed();
  double sum = 0;
  const tensor::Batch all = part_of_batch(part, num_parts);
  const int64_t half = all.num_sequences() / 2;
  for (const bool is_last : {false, true}) {
    const tensor::Batch batch = half == 0 ? all : all.sequences(is_last ? half : 0, half);
    engine.begin_micro_batch(is_last);
    const at::Tensor loss = model.loss(batch, (half == 0 ? 80.0 : 40.0) / num_parts, -100);
    loss.backward();
    engine.end_micro_batch();
    sum += loss.item<double>();
  }
  engine.reduce_gradients();
  return sum / num_parts;
}

struct Place {
  const char* name;
  mesh::MeshSizes sizes;
  int ep = 1;
  Mode recompute = Mode::kOff;
};

void expect_as_whole(comm::World& world, bool is_repeated, const Place& place) {
  const std::string name = cat(place.name, is_repeated ? ", repeated" : "");
  const auto whole = build(is_repeated);
  distributed::recompute_blocks(*whole, whole->parallel_plan(), Mode::kOff);
  distributed::DataParallel whole_engine(*whole, whole->parallel_plan(), whole->key_map(),
                                         comm::ProcessGroup::solo(), {});
  const double wanted = train(*whole, whole_engine, 0, 1);
  const auto gradients = whole_gradients(whole_engine);

  const distributed::DeviceMesh mesh(world, mesh::Mesh(place.sizes), place.ep);
  const auto model = build(is_repeated);
  distributed::ParallelizeOptions options;
  options.mp_policy =
      distributed::MixedPrecisionPolicy{.param_dtype = "float32", .reduce_dtype = "float32"};
  options.activation_checkpointing = place.recompute;
  const auto engine =
      distributed::fsdp2_strategy_parallelize(parallel_model(*model), mesh, options);
  const comm::ProcessGroup& dp = mesh.group("dp");
  at::Tensor sum = at::tensor({train(*model, *engine, dp.rank(), dp.size())}, at::kDouble);
  dp.all_reduce(sum, comm::ReduceOp::kSum);
  const auto loss = sum.item<double>();
  comm::expect(std::abs(loss / wanted - 1) < 2e-6, cat(name, ": loss ", loss, " not ", wanted));
  expect_gradients(*engine, gradients, 1e-5, name);
}

TEST(NextTokensTest, RanksHaveTheGradientsOfOne) {
  for (const bool is_repeated : {false, true}) {
    comm::expect_ranks(2, [&](comm::World& world) {
      expect_as_whole(world, is_repeated, {"fsdp2", {.dp_shard = 2}});
      expect_as_whole(world, is_repeated, {"recomputed", {.dp_shard = 2}, 1, Mode::kFull});
      expect_as_whole(world, is_repeated, {"ep2", {.dp_shard = 2}, 2});
      expect_as_whole(world, is_repeated, {"ep2 recomputed", {.dp_shard = 2}, 2, Mode::kFull});
    });
    comm::expect_ranks(4, [&](comm::World& world) {
      expect_as_whole(world, is_repeated,
                      {"ep2 inside replicas", {.dp_replicate = 2, .dp_shard = 2}, 2});
    });
  }
}

/// Loss and gradients of one step on one rank.
std::pair<double, std::map<std::string, at::Tensor>> step(bool is_repeated, Mode mode) {
  const auto model = build(is_repeated);
  distributed::recompute_blocks(*model, model->parallel_plan(), mode);
  distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                   comm::ProcessGroup::solo(), {});
  const double loss = train(*model, engine, 0, 1);
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, gradient] : whole_gradients(engine)) copies[name] = gradient.clone();
  return {loss, copies};
}

TEST(NextTokensTest, RecomputationChangesNoBit) {
  at::set_num_threads(1);
  for (const bool is_repeated : {false, true}) {
    const auto [loss, gradients] = step(is_repeated, Mode::kOff);
    for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
      const auto [again, found] = step(is_repeated, mode);
      EXPECT_EQ(again, loss);
      for (const auto& [name, gradient] : gradients) {
        EXPECT_TRUE(at::equal(found.at(name), gradient)) << name;
      }
    }
  }
}

std::string golden(const char* name) {
  return test::source_file(cat("tests/golden/", name));
}

/// A run of a drawn model on packed documents.
ProgramResult run_packed(const std::string& out, const Spread& spread,
                         const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {"--model._target_=NeMoAutoModelForCausalLM.from_config",
                                   "--model.pretrained_model_name_or_path=none",
                                   cat("--model.config=", golden("nemotron_h_moe")),
                                   "--model.vocab_size=4096",
                                   "--model.num_nextn_predict_layers=2",
                                   "--model.mtp_use_repeated_layer=true",
                                   "--model.mtp_loss_scaling_factor=0.3",
                                   "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                                   "--packed_sequence.packed_sequence_size=256",
                                   "--packed_sequence.max_packs=24",
                                   "--packed_sequence.packing_strategy=thd",
                                   "--dataloader.collate_fn=packed_sequence_thd_collater",
                                   "--step_scheduler.max_steps=4",
                                   "--step_scheduler.ckpt_every_steps=2"};
  keys.insert(keys.end(), more.begin(), more.end());
  return test::run_program(test::on(spread, test::smoke_run(out, keys)));
}

std::vector<Json> records(const std::string& out, const Spread& spread,
                          const std::vector<std::string>& more = {}) {
  const ProgramResult result = run_packed(out, spread, more);
  EXPECT_EQ(result.status, 0) << result.err;
  return test::read_records(out + "/training.jsonl");
}

std::string newest(const std::string& folder) {
  return std::filesystem::canonical(path_join(folder, "LATEST")).string();
}

TEST(NextTokensRecipe, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const auto one = records(folder.file("one"), {1, {}});
  ASSERT_EQ(one.size(), 4U);
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"ddp", {2, {}}},
      {"fsdp2", test::sharded(2)},
      {"ep2", test::sharded(2, {"--distributed.ep_size=2"})},
      {"recomputed", {1, {"--distributed.activation_checkpointing=true"}}}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    test::expect_equal_records(one, records(folder.file(name), spread), 1e-5);
  }
  const auto plain = records(folder.file("plain"), {1, {}}, {"--model.num_nextn_predict_layers=0"});
  ASSERT_FALSE(plain.empty());
  // The reported loss has the part of the tokens further ahead. A model that knows nothing yet
  // loses as much there, and documents' ends have no such labels.
  const double ratio = one[0].at("loss").as_double() / plain[0].at("loss").as_double();
  EXPECT_NEAR(ratio, 1.3, 0.02);
}

TEST(NextTokensRecipe, ContinuesToTheLastBitAndExportsUpstreamsNames) {
  const TemporaryDirectory folder;
  const auto whole = records(folder.file("whole"), test::sharded(2));
  records(folder.file("parts"), test::sharded(2), {"--step_scheduler.max_steps=2"});
  test::expect_equal_records(whole, records(folder.file("parts"), test::sharded(2)), 0);
  const auto tensors = [&](const char* name) {
    return test::bytes_of(newest(folder.file(name)) + "/model/consolidated");
  };
  const auto exported = tensors("whole");
  EXPECT_EQ(exported, tensors("parts"));
  for (const char* name :
       {"mtp.layers.0.enorm.weight", "mtp.layers.0.hnorm.weight", "mtp.layers.0.eh_proj.weight",
        "mtp.layers.0.norm.weight", "mtp.layers.0.mixer.q_proj.weight",
        "mtp.layers.1.mixer.experts.3.up_proj.weight",
        "mtp.layers.1.mixer.gate.e_score_correction_bias", "mtp.layers.1.final_layernorm.weight"}) {
    EXPECT_TRUE(exported.contains(name)) << name;
  }
  EXPECT_FALSE(exported.contains("mtp.layers.2.norm.weight"));
}

const char* const kFusion = "mtp.layers.0.eh_proj.weight";

at::Tensor tensor_of(const std::string& folder, const std::string& name) {
  const auto opened = checkpoint::HfFolder::open(folder);
  const auto place = *opened.find(name);
  const at::Tensor values = at::empty(place.entry->shape);
  opened.read_elements(place, 0, values.view({-1}));
  return values;
}

/// One step on mock tokens, whose learning rate is 1e-3.
ProgramResult train_from(const std::string& folder, const std::string& out,
                         std::vector<std::string> more) {
  more.insert(more.end(),
              {"--model.pretrained_model_name_or_path=" + folder,
               "--dataset._target_=MockIterableDataset", "--dataset.vocab_size=90",
               "--dataset.seq_len=20", "--dataset.num_samples=64", "--dataset.batch_size=2",
               "--dataset.column_mapping=none", "--dataset.path_or_dataset_id=none",
               "--dataset.tokenizer=none", "--step_scheduler.max_steps=1"});
  return test::run_program(test::smoke_run(out, more));
}

/// A folder whose config.json asks for the layers and that has their weights trains them without
/// any key.
TEST(NextTokensRecipe, WeightsComeFromTheFolder) {
  const TemporaryDirectory folder;
  const ProgramResult run = train_from(golden("nemotron_h_mtp"), folder.file("out"), {});
  ASSERT_EQ(run.status, 0) << run.err;
  const at::Tensor before = tensor_of(golden("nemotron_h_mtp"), kFusion);
  const at::Tensor after = tensor_of(newest(folder.file("out")) + "/model/consolidated", kFusion);
  EXPECT_GT((after - before).abs().max().item<double>(), 1e-4);
  EXPECT_LT((after - before).abs().max().item<double>(), 1.1e-3);
}

TEST(NextTokensRecipe, WeightsThatTheFolderLacksAreDrawn) {
  const TemporaryDirectory folder;
  const std::string from = golden("nemotron_h_moe");
  const ProgramResult run =
      train_from(from, folder.file("out"), {"--model.num_nextn_predict_layers=1"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr(from + ": no tensors of mtp.layers.; they are drawn"));
  const at::Tensor drawn = tensor_of(newest(folder.file("out")) + "/model/consolidated", kFusion);
  EXPECT_NEAR(drawn.std().item<double>(), 0.02, 0.004);  // initializer_range
}

TEST(NextTokensRecipe, AdaptersAreAlsoOfTheLayersAheadAndContinue) {
  const TemporaryDirectory folder;
  const std::vector<std::string> adapters = {
      "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
      "--peft.exclude_modules=[\"*.out_proj\"]", "--peft.dim=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), adapters.begin(), adapters.end());
    return more;
  };
  const auto one = records(folder.file("one"), {1, {}}, adapters);
  ASSERT_EQ(one.size(), 4U);
  const Spread two = test::sharded(2, {"--distributed.ep_size=2"});
  test::expect_equal_records(one, records(folder.file("two"), two, adapters), 1e-5);
  records(folder.file("parts"), {1, {}}, with({"--step_scheduler.max_steps=2"}));
  test::expect_equal_records(one, records(folder.file("parts"), {1, {}}, adapters), 0);
  const checkpoint::SafetensorsFile file(newest(folder.file("one")) +
                                         "/model/adapter_model.safetensors");
  std::map<std::string, double> moved;
  for (const auto& entry : file.tensors()) {
    moved[entry.name] = file.read(entry.name).abs().max().item<double>();
  }
  for (const char* module : {"eh_proj", "mixer.q_proj", "mixer.o_proj"}) {
    const std::string name = cat("base_model.model.mtp.layers.0.", module, ".lora_B.weight");
    ASSERT_TRUE(moved.contains(name)) << name;
    EXPECT_GT(moved.at(name), 0) << name;
  }
}

}  // namespace
}  // namespace automodel::recipes
