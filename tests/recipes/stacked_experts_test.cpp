// Qwen 3.5's experts as its releases hold them: stacked in two tensors of a layer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/hf_folder.h"
#include "recipes/folders.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using checkpoint::HfFolder;
using test::ProgramResult;
using test::Spread;
using test::TemporaryDirectory;

std::string golden(const std::string& name) {
  return test::source_file("tests/golden/" + name);
}

std::map<std::string, at::Tensor> tensors_of(const std::string& path) {
  const HfFolder folder = HfFolder::open(path);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : folder.names()) {
    const HfFolder::Place place = *folder.find(name);
    at::Tensor values =
        at::empty(place.entry->shape, at::TensorOptions().dtype(place.entry->dtype));
    folder.read_elements(place, 0, values.view({-1}));
    tensors.emplace(name, std::move(values));
  }
  return tensors;
}

/// A copy of a golden folder whose experts are stacked. Returns its path.
std::string stacked_folder(const std::string& name, const std::string& path) {
  create_directories(path);
  write_file_atomic(path + "/config.json", read_file(golden(name) + "/config.json"));
  std::vector<std::pair<std::string, at::Tensor>> out;
  const auto tensors = tensors_of(golden(name));
  for (const auto& [tensor, values] : tensors) {
    if (tensor.find(".experts.") == std::string::npos) out.emplace_back(tensor, values);
  }
  for (const auto& [tensor, values] : tensors) {
    constexpr std::string_view kFirst = ".experts.0.gate_proj.weight";
    if (!tensor.ends_with(kFirst)) continue;
    const std::string experts = tensor.substr(0, tensor.size() - kFirst.size()) + ".experts.";
    std::vector<at::Tensor> upper, lower;
    for (int e = 0; tensors.contains(cat(experts, e, ".gate_proj.weight")); ++e) {
      upper.push_back(at::cat({tensors.at(cat(experts, e, ".gate_proj.weight")),
                               tensors.at(cat(experts, e, ".up_proj.weight"))}));
      lower.push_back(tensors.at(cat(experts, e, ".down_proj.weight")));
    }
    out.emplace_back(experts + "gate_up_proj", at::stack(upper));
    out.emplace_back(experts + "down_proj", at::stack(lower));
  }
  checkpoint::write_safetensors(path + "/model.safetensors", out, {{"format", "pt"}});
  return path;
}

/// Two steps on drawn tokens, exported to `out`.
ProgramResult train(const std::string& model, const std::string& out, const Spread& spread,
                    std::vector<std::string> more = {}) {
  std::vector<std::string> keys = {"--model.pretrained_model_name_or_path=" + model,
                                   "--step_scheduler.max_steps=2",
                                   "--step_scheduler.ckpt_every_steps=2",
                                   "--dataset._target_=MockIterableDataset",
                                   "--dataset.vocab_size=96",
                                   "--dataset.seq_len=16",
                                   "--dataset.num_samples=64",
                                   "--dataset.batch_size=2",
                                   "--dataset.column_mapping=none",
                                   "--dataset.path_or_dataset_id=none",
                                   "--dataset.tokenizer=none"};
  keys.insert(keys.end(), more.begin(), more.end());
  return test::run_program(test::on(spread, test::smoke_run(out, keys)));
}

void expect_equal(const std::string& found, const std::string& wanted) {
  const auto values = tensors_of(found);
  const auto others = tensors_of(wanted);
  ASSERT_EQ(values.size(), others.size());
  for (const auto& [name, tensor] : values) {
    ASSERT_TRUE(others.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, others.at(name))) << name;
  }
}

class StackedExperts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Qwen3p5, StackedExperts,
                         testing::Values("qwen3_5_moe", "qwen3_5_moe_tower"));

TEST_P(StackedExperts, ComputeWhatTransformersComputes) {
  const TemporaryDirectory folder;
  const std::string stacked = stacked_folder(GetParam(), folder.file("stacked"));
  const ProgramResult result =
      test::run_program({test::automodel_binary(), "parity", "--model", stacked, "--reference",
                         golden(GetParam()) + "/reference.safetensors"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_P(StackedExperts, TrainAsSingleOnes) {
  const TemporaryDirectory folder;
  const std::string stacked = stacked_folder(GetParam(), folder.file("stacked"));
  for (const Spread& spread : {Spread{1, {}}, test::sharded(2)}) {
    const std::string a = folder.file(cat("a", spread.num_ranks));
    const std::string b = folder.file(cat("b", spread.num_ranks));
    const ProgramResult first = train(stacked, a, spread);
    ASSERT_EQ(first.status, 0) << first.err;
    ASSERT_EQ(train(golden(GetParam()), b, spread).status, 0);
    const std::string exported = "/epoch_0_step_1/model/consolidated";
    expect_equal(a + exported, b + exported);
  }
}

TEST_P(StackedExperts, TakeMergedAdaptersAsSingleOnesDo) {
  const TemporaryDirectory folder;
  const std::string stacked = stacked_folder(GetParam(), folder.file("stacked"));
  const ProgramResult trained =
      train(stacked, folder.file("run"), {1, {}}, {"--peft.target_modules=*experts*"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string adapter = folder.file("run") + "/epoch_0_step_1/model";
  for (const auto& [base, out] :
       {std::pair(stacked, "of_stacked"), {golden(GetParam()), "of_single"}}) {
    const ProgramResult merged = test::run_program(
        {test::automodel_binary(), "merge-lora", base, adapter, folder.file(out)});
    ASSERT_EQ(merged.status, 0) << merged.err;
  }
  const auto parts = tensors_of(folder.file("of_single"));
  const HfFolder whole = HfFolder::open(folder.file("of_stacked"));
  int64_t num_compared = 0;
  for (const auto& [name, wanted] : parts) {
    const auto place = whole.find(name);
    ASSERT_TRUE(place) << name;
    at::Tensor found = at::empty_like(wanted);
    whole.read_elements(*place, 0, found.view({-1}));
    EXPECT_TRUE(at::equal(found, wanted)) << name;
    num_compared += name.find(".experts.") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(num_compared, 0);
  const auto before = tensors_of(golden(GetParam()));
  EXPECT_TRUE(std::ranges::any_of(parts, [&](const auto& part) {
    return part.first.find(".experts.") != std::string::npos &&
           !at::equal(part.second, before.at(part.first));
  }));
}

}  // namespace
}  // namespace automodel::recipes
