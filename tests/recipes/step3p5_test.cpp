// Recipes as upstream's for Step 3.5, with a tiny model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "recipes/folders.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using checkpoint::HfFolder;
using test::ProgramResult;
using test::Spread;
using test::TemporaryDirectory;

constexpr const char* kExported = "/epoch_0_step_1/model/consolidated";

std::string golden(const char* file = "") {
  return test::source_file("tests/golden/step3p5") + file;
}

std::map<std::string, at::Tensor> tensors_of(const std::string& folder) {
  const HfFolder opened = HfFolder::open(folder);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : opened.names()) {
    tensors[name] = opened.file(opened.find(name)->file).read(name);
  }
  return tensors;
}

/// A copy of the golden folder with tensors of a layer that predicts further tokens, as releases
/// have.
std::string released_folder(const std::string& path) {
  create_directories(path);
  write_file_atomic(path + "/config.json", read_file(golden("/config.json")));
  auto tensors = tensors_of(golden());
  tensors["model.layers.4.eh_proj.weight"] = at::arange(2048, at::kFloat).view({32, 64});
  tensors["model.layers.5.moe.gate.weight"] = at::arange(192, at::kFloat).view({6, 32});
  std::vector<checkpoint::TensorInfo> infos;
  for (const auto& [name, value] : tensors)
    infos.push_back({name, at::kFloat, value.sizes().vec()});
  checkpoint::SafetensorsWriter writer(path + "/model.safetensors", infos, {{"format", "pt"}});
  for (const auto& [name, value] : tensors) writer.write(value.reshape({-1}));
  writer.finish();
  return path;
}

std::vector<std::string> data_keys() {
  return {"--step_scheduler.max_steps=2",
          "--step_scheduler.ckpt_every_steps=2",
          "--dataset._target_=MockIterableDataset",
          "--dataset.vocab_size=96",
          "--dataset.seq_len=20",
          "--dataset.num_samples=64",
          "--dataset.batch_size=2",
          "--dataset.column_mapping=none",
          "--dataset.path_or_dataset_id=none",
          "--dataset.tokenizer=none"};
}

/// Two steps, exported to `out`.
ProgramResult train(const std::string& model, const std::string& out, const Spread& spread,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = data_keys();
  keys.push_back("--model.pretrained_model_name_or_path=" + model);
  keys.insert(keys.end(), more.begin(), more.end());
  return test::run_program(test::on(spread, test::smoke_run(out, keys)));
}

/// The model and adapters of upstream's recipe.
std::vector<Json> train_as_upstream(const std::string& out, const Spread& spread) {
  std::vector<std::string> keys = data_keys();
  const std::string config = "--model.config.";
  for (const std::string& key : std::vector<std::string>{
           "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
           "--model.pretrained_model_name_or_path=none",
           config + "_target_=transformers.AutoConfig.from_pretrained",
           config + "pretrained_model_name_or_path=" + golden(), config + "trust_remote_code=true",
           "--model.trust_remote_code=true", "--model.torch_dtype=float32",
           "--model.backend.fake_balanced_gate=true",
           "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
           "--peft.target_modules=*", "--peft.dim=6", "--peft.alpha=6", "--peft.dropout=0.0",
           "--peft.moe_rank_scaling=true"}) {
    keys.push_back(key);
  }
  const ProgramResult result = test::run_program(test::on(spread, test::smoke_run(out, keys)));
  EXPECT_EQ(result.status, 0) << result.err;
  return test::read_records(out + "/training.jsonl");
}

TEST(StepRecipe, AdaptersOfAllLayersTrainAsOnOneRankWithTheExpertsOnTwo) {
  const TemporaryDirectory folder;
  const auto wanted = train_as_upstream(folder.file("one"), {1, {}});
  ASSERT_EQ(wanted.size(), 2);
  const auto found = train_as_upstream(
      folder.file("two"),
      test::sharded(2, {"--distributed.ep_size=2", "--distributed.activation_checkpointing=true"}));
  test::expect_equal_records(wanted, found, 2e-6);
}

/// One rank, two that share each tensor, and two with half of the experts each.
TEST(StepRecipe, ExportsTheReleasedTensorsWhateverTheMesh) {
  const TemporaryDirectory folder;
  const std::string released = released_folder(folder.file("released"));
  const auto before = tensors_of(released);
  const ProgramResult whole = train(released, folder.file("whole"), {1, {}});
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto wanted = tensors_of(folder.file("whole") + kExported);
  ASSERT_EQ(wanted.size(), before.size());
  for (const auto& [name, value] : before) {
    ASSERT_TRUE(wanted.contains(name)) << name;
    EXPECT_EQ(wanted.at(name).sizes(), value.sizes()) << name;
    const bool is_behind =
        name.starts_with("model.layers.4.") || name.starts_with("model.layers.5.");
    const bool is_kept = is_behind || name.ends_with(".router_bias");
    EXPECT_EQ(at::equal(wanted.at(name), value), is_kept) << name;
  }
  for (const int ep : {1, 2}) {
    const std::string out = folder.file(cat("ep", ep));
    const ProgramResult result =
        train(released, out, test::sharded(2, {cat("--distributed.ep_size=", ep)}));
    ASSERT_EQ(result.status, 0) << result.err;
    for (const auto& [name, value] : tensors_of(out + kExported)) {
      EXPECT_TRUE(at::allclose(value, wanted.at(name), 1e-4, 1e-5)) << ep << " " << name;
    }
  }
}

/// What the merged folder computes is what the adapted model does.
TEST(StepRecipe, AdaptersOfExpertsMergeIntoTheirTensors) {
  const TemporaryDirectory folder;
  const std::string out = folder.file("run");
  const ProgramResult trained = train(golden(), out, {1, {}},
                                      {"--peft.target_modules=*moe.experts", "--peft.dim=4",
                                       "--peft.alpha=32", "--optimizer.lr=0.05"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string adapter = out + "/epoch_0_step_1/model";
  const ProgramResult merged = test::run_program(
      {test::automodel_binary(), "merge-lora", golden(), adapter, folder.file("merged")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const auto before = tensors_of(golden());
  const auto after = tensors_of(folder.file("merged"));
  const checkpoint::SafetensorsFile file(adapter + "/adapter_model.safetensors");
  constexpr int64_t kExperts = 6, kRank = 4, kInner = 24;
  for (const int layer : {1, 2, 3}) {
    const std::string name = cat("model.layers.", layer, ".moe.");
    const auto factor = [&](const char* inner, const char* which) {
      return file.read(
          cat("base_model.model.", name, "experts", inner, ".lora_", which, ".weight"));
    };
    // A is [E r, in] and B [out, r E], r before E.
    const auto update = [&](const char* inner) {
      const at::Tensor a = factor(inner, "A").view({kExperts, kRank, -1});
      const at::Tensor b = factor(inner, "B").unflatten(1, {kRank, kExperts}).permute({2, 0, 1});
      return at::bmm(b.contiguous(), a) * 8;
    };
    const at::Tensor gate_up = update(".base_layer");
    for (const auto& [matrix, change] : {std::pair("gate_proj", gate_up.narrow(1, 0, kInner)),
                                         {"up_proj", gate_up.narrow(1, kInner, kInner)},
                                         {"down_proj", update("")}}) {
      const std::string tensor = cat(name, matrix, ".weight");
      EXPECT_GT(change.abs().max().item<double>(), 1e-3) << tensor;
      EXPECT_TRUE(at::allclose(after.at(tensor), before.at(tensor) + change, 1e-5, 1e-6)) << tensor;
    }
  }
  for (const auto& [name, value] : before) {
    if (name.find(".moe.") != std::string::npos) continue;
    EXPECT_TRUE(at::equal(after.at(name), value)) << name;
  }
}

}  // namespace
}  // namespace automodel::recipes
