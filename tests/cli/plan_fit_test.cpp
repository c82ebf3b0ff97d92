#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using testing::HasSubstr;

constexpr const char* k70B = "recipes/llm_pretrain/llama3.3_70b_64_ranks.yaml";
constexpr double kGiB = 1024.0 * 1024 * 1024;

ProgramResult plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {test::automodel_binary(), "plan"});
  return test::run_program(arguments);
}

Json plan_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const ProgramResult run = plan(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, "plan");
}

/// The words of a recipe's `# Plan:` line and those that go on with it; none without one.
std::vector<std::string> plan_line(const std::string& text) {
  const size_t begin = text.find("# Plan:");
  if (begin == std::string::npos) return {};
  const std::string line =
      replace_all(text.substr(begin, text.find("# Run:", begin) - begin), "\\\n#", " ");
  std::vector<std::string> words;
  for (const std::string& word : split(line.substr(0, line.find('\n')), ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return {words.begin() + 2, words.end()};  // "#", "Plan:"
}

TEST(PlanFitTest, ShippedRecipesFitTheMachinesOfTheirHeaders) {
  int num_devices = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test::source_file("recipes"))) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_file(entry.path());
    const std::string header = text.substr(0, text.find("\nrecipe:"));
    const std::vector<std::string> words = plan_line(header);
    const bool names_machine = header.find(" GB") != std::string::npos ||
                               header.find(" GiB of memory") != std::string::npos;
    EXPECT_EQ(names_machine, !words.empty()) << entry.path();
    if (words.empty()) continue;
    ASSERT_GE(words.size(), 3u);
    EXPECT_EQ(words[0], "automodel");
    EXPECT_EQ(test::source_file(words[2]), entry.path());
    const Json made = plan_json({words.begin() + 2, words.end()});
    EXPECT_TRUE(made.at("fit").at("fits").as_bool()) << entry.path() << made.at("fit").dump(2);
    num_devices += made.at("device").as_string() == "cuda" ? 1 : 0;
  }
  EXPECT_EQ(num_devices, 5);
}

TEST(PlanFitTest, WhatDoesNotFitNamesItsLargestPartsAndWhatWouldHelp) {
  const std::vector<std::string> arguments = {k70B,    "--world-size",
                                              "64",    "--device-memory",
                                              "80GiB", "--distributed.defer_fsdp_grad_sync=true"};
  const Json made = plan_json(arguments);
  const Json& fit = made.at("fit");
  EXPECT_FALSE(fit.at("fits").as_bool());
  EXPECT_EQ(fit.at("memory").as_int(), int64_t{80} << 30);
  EXPECT_GT(fit.at("needed").as_double(), 250 * kGiB);
  // 70.6e9 sums of two micro-batches in float32, whole.
  EXPECT_GT(fit.at("largest").at("gradients not yet reduced").as_double(), 70.5e9 * 4);
  const Json* found = nullptr;
  for (const Json& change : fit.at("changes").as_array()) {
    const std::string& text = change.at("change").as_string();
    if (text == "distributed.defer_fsdp_grad_sync=false") found = &change;
    EXPECT_LT(change.at("needed").as_int(), fit.at("needed").as_int()) << text;
  }
  ASSERT_NE(found, nullptr) << fit.dump(2);
  EXPECT_TRUE(found->at("fits").as_bool());
  // The number is that of a plan of the changed recipe.
  const Json changed = plan_json({k70B, "--world-size", "64", "--device-memory", "80GiB",
                                  "--distributed.defer_fsdp_grad_sync=false"});
  EXPECT_EQ(found->at("needed").as_int(), changed.at("fit").at("needed").as_int());

  const ProgramResult text = plan(arguments);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("80GiB: does not fit, "));
  EXPECT_THAT(text.out, HasSubstr("  largest: gradients not yet reduced 26"));
  EXPECT_THAT(text.out,
              testing::ContainsRegex("distributed.defer_fsdp_grad_sync=false +[0-9.]+ GiB +fits"));
}

TEST(PlanFitTest, ADeviceAttendsWithoutWholeScores) {
  const std::vector<std::string> arguments = {"recipes/smoke/mock_pretrain.yaml",
                                              "--dataset.seq_len=16384", "--world-size", "2"};
  const auto activations = [&](const char* device, const std::string& dtype) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--device", device, "--distributed.mp_policy.param_dtype=" + dtype});
    const Json made = plan_json(all);
    const Json& bytes = made.at("bytes");
    return bytes.at("activations").as_double() + bytes.at("working").as_double();
  };
  // Whole scores of 4 sequences of 4 heads: 16 GiB, of which a layer of the CPU's plain path, in
  // float16, keeps two.
  EXPECT_GT(activations("cpu", "float16"), 64 * kGiB);
  EXPECT_LT(activations("cpu", "bfloat16"), 2 * kGiB);
  EXPECT_LT(activations("cuda", "bfloat16"), 2 * kGiB);
}

TEST(PlanFitTest, OffloadingMovesStateToTheHost) {
  const std::vector<std::string> arguments = {k70B, "--world-size", "64"};
  std::vector<std::string> offloaded = arguments;
  offloaded.emplace_back("--distributed.offload_policy.pin_memory=true");
  const Json on_device = plan_json(arguments);
  const Json on_host = plan_json(offloaded);
  EXPECT_EQ(on_device.at("host").at("resting").as_int(), 0);
  const Json& bytes = on_device.at("bytes");
  EXPECT_EQ(on_host.at("host").at("resting").as_int(),
            bytes.at("state").as_int() + bytes.at("gradients").as_int());
  EXPECT_EQ(on_host.at("bytes").at("state").as_int(), 0);
  EXPECT_LT(on_host.at("moments").at("step").as_int(), on_device.at("moments").at("step").as_int());
  // A CPU has nothing to move to.
  offloaded.insert(offloaded.end(), {"--device", "cpu"});
  EXPECT_EQ(plan_json(offloaded).at("host").at("resting").as_int(), 0);
}

TEST(PlanFitTest, LoadingAndSavingAreCounted) {
  const Json made = plan_json({k70B, "--world-size", "64"});
  const int64_t state = made.at("bytes").at("state").as_int();
  const Json& moments = made.at("moments");
  // Buffers of the largest unit, the head's, are there once: 128256 x 8192 elements of the gathered
  // and the gradient's bfloat16, the float32 that is reduced, and of that this rank's 64th in the
  // dtype of the weights.
  const int64_t head = int64_t{128256} * 8192;
  EXPECT_EQ(moments.at("loading").as_int(), state + head * (2 + 2 + 4) + head / 64 * 2);
  EXPECT_EQ(moments.at("saving").as_int(), state);
  EXPECT_LT(moments.at("saving").as_int(), moments.at("step").as_int());
  // Four readers' pieces of 4 Mi elements of at most 4 bytes.
  EXPECT_EQ(made.at("host").at("loading").as_int(), int64_t{64} << 20);
  EXPECT_EQ(made.at("host").at("saving").as_int(), int64_t{32} << 20);
}

TEST(PlanFitTest, DevicesAreKnownByNameAndSizesByTheirUnit) {
  const auto memory_of = [](const std::string& device) {
    return plan_json({"recipes/smoke/mock_pretrain.yaml", "--device-memory", device})
        .at("fit")
        .at("memory")
        .as_int();
  };
  EXPECT_EQ(memory_of("h100"), int64_t{79} << 30);
  EXPECT_EQ(memory_of("A100-80G"), int64_t{79} << 30);
  EXPECT_EQ(memory_of("80GB"), 80'000'000'000);
  EXPECT_EQ(memory_of("1.5 GiB"), int64_t{3} << 29);
  for (const char* wrong : {"80", "h10", "-1GiB", "nanGB", "1e30GB", "GiB", ""}) {
    const ProgramResult run =
        plan({"recipes/smoke/mock_pretrain.yaml", cat("--device-memory=", wrong)});
    if (*wrong == '\0') continue;  // not asked
    EXPECT_EQ(run.status, 2) << wrong;
    EXPECT_THAT(run.err, HasSubstr("--device-memory takes a size with its unit"));
  }
  EXPECT_THAT(plan({"recipes/smoke/mock_pretrain.yaml", "--device-memory=h1000"}).err,
              HasSubstr("did you mean 'h100'?"));
}

TEST(PlanFitTest, APlanIsForTheDeviceThatARunWouldChoose) {
  const auto device_of = [](std::vector<std::string> options) {
    options.insert(options.begin(), "recipes/smoke/mock_pretrain.yaml");
    return plan_json(options).at("device").as_string();
  };
  EXPECT_EQ(device_of({}), "cpu");
  EXPECT_EQ(device_of({"--dist_env.backend=nccl"}), "cuda");
  EXPECT_EQ(device_of({"--device-memory=1GiB"}), "cuda");
  EXPECT_EQ(device_of({"--device-memory=1GiB", "--device", "cpu"}), "cpu");
}

}  // namespace
}  // namespace automodel::cli
