// Steps that are recorded once and launched again, against steps that are computed one by one.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world/world.h"
#include "config/load.h"
#include "distributed/golden_training.h"
#include "kernels/base/fused.h"
#include "models/golden_model.h"
#include "recipes/build/build_engine.h"
#include "recipes/read/read_distributed.h"
#include "support/errors.h"
#include "support/program.h"
#include "support/temporary_directory.h"
#include "training/operator_recording.h"
#include "training/train_step.h"

namespace automodel::recipes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A group whose labels are a power of two, by which dividing early or late is the same.
std::vector<tensor::Batch> random_group(int64_t step, int64_t length = 16) {
  std::vector<tensor::Batch> group;
  for (int64_t i = 0; i < 2; ++i) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(7 * step + i));
    const at::Tensor tokens = at::randint(64, {2, length + 1}, generator, at::kLong);
    group.push_back({.input_ids = tokens.narrow(1, 0, length).contiguous(),
                     .labels = tokens.narrow(1, 1, length).contiguous()});
  }
  return group;
}

/// What a step is made of, and what it does to the graph.
struct Plan {
  std::string distributed;
  const char* golden = "llama_default";  ///< folder of the model
  at::ScalarType dtype = at::kFloat;
  std::function<std::vector<tensor::Batch>(int64_t step)> group = [](int64_t step) {
    return random_group(step);
  };
  int64_t validated_after = -1;  ///< the step
  std::function<void()> in_loss = [] {};
  std::function<void()> in_backward = [] {};  ///< when a parameter's gradient is there
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<int64_t> computed;  ///< batches whose loss the host computed, of each step
  distributed::Tensors weights;
  test::Warnings warnings;
};

constexpr int64_t kNumSteps = 7;

Outcome train(const Plan& plan, std::unique_ptr<tensor::KernelGraph> kernels) {
  Outcome outcome;
  const kernels::PlainPathScope plain;
  comm::World world(comm::WorldOptions{});
  Recipe recipe;
  const config::Document document = config::load_text(plan.distributed, "recipe.yaml", {});
  config::Diagnostics diagnostics(document.sources);
  recipe.distributed = read_distributed(*document.root.find("distributed"), diagnostics);
  diagnostics.throw_if_errors();
  Json config = Json::parse_file(test::golden_file(plan.golden, "config.json"));
  const auto model = models::build_causal_lm(config, plan.dtype);
  model->train();
  const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = 1}));
  const auto engine = build_engine(recipe, *model, mesh, {});
  distributed::load_golden(
      *engine, test::read_trusted_safetensors(test::golden_file(plan.golden, "model.safetensors")));
  engine->parameters_changed();
  optim::AdamConfig adam;
  adam.lr = 1e-2;
  adam.is_decoupled = true;
  const auto optimizer = optim::make_adam(adam, engine->trained(), engine->gradients());
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.requires_grad())
      parameter.register_hook([&](const at::Tensor&) { plan.in_backward(); });
  }
  int64_t num_computed = 0;
  training::TrainStepOptions options;
  options.reporter = &outcome.warnings;
  if (kernels != nullptr) {
    options.graph = std::make_shared<training::StepGraph>(std::move(kernels), at::kCPU);
  }
  training::TrainStep train_step(
      *engine, *optimizer, optim::LrSchedule::constant(adam.lr, 0),
      [&](const tensor::Batch& batch, double divisor, int64_t, int64_t) {
        ++num_computed;
        plan.in_loss();
        return model->loss(batch, divisor, -100);
      },
      options);
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const auto result = train_step.run(plan.group(step), step);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.computed.push_back(std::exchange(num_computed, 0));
    if (step == plan.validated_after) {
      bool is_given = false;
      train_step.evaluate(
          [&](tensor::Batch& batch) {
            batch = random_group(99, 32)[0];
            return !std::exchange(is_given, true);
          },
          step);
      num_computed = 0;
    }
  }
  outcome.weights =
      distributed::whole_tensors(engine->parameters(), model->key_map(), world.group());
  return outcome;
}

/// What differs between two runs; "" when nothing does.
std::string difference(const Outcome& a, const Outcome& b) {
  if (a.losses != b.losses)
    return cat("losses ", testing::PrintToString(a.losses), " and ",
               testing::PrintToString(b.losses));
  if (a.norms != b.norms)
    return cat("norms ", testing::PrintToString(a.norms), " and ", testing::PrintToString(b.norms));
  for (const auto& [name, value] : a.weights) {
    if (!at::equal(value, b.weights.at(name))) return name;
  }
  return "";
}

Outcome train_recorded(const Plan& plan) {
  return train(plan, std::make_unique<test::OperatorRecording>());
}

constexpr const char* kReplicas = "distributed:\n  strategy: ddp\n";

TEST(StepGraphTest, RecordedStepsComputeWhatOthersDo) {
  const std::string fsdp = "distributed:\n  strategy: fsdp2\n";
  for (const Plan& plan :
       std::vector<Plan>{{.distributed = kReplicas},
                         {.distributed = kReplicas, .dtype = at::kBFloat16},
                         {.distributed = fsdp + "  activation_checkpointing: true\n"},
                         {.distributed = "distributed:\n  strategy: megatron_fsdp\n"},
                         {.distributed = fsdp, .golden = "gemma2"},
                         {.distributed = fsdp, .golden = "qwen3_5"},
                         {.distributed = fsdp, .golden = "falcon_h1"},
                         {.distributed = fsdp, .golden = "gemma3_text"}}) {
    const Outcome each = train(plan, nullptr);
    const Outcome recorded = train_recorded(plan);
    EXPECT_EQ(difference(each, recorded), "") << plan.distributed << plan.dtype;
    EXPECT_THAT(each.computed, ElementsAre(2, 2, 2, 2, 2, 2, 2));
    EXPECT_THAT(recorded.computed, ElementsAre(2, 2, 2, 0, 0, 0, 0)) << plan.distributed;
    EXPECT_LT(each.losses.back(), each.losses.front());
  }
}

TEST(StepGraphTest, OtherStepsAndValidationDropTheRecording) {
  Plan plan{.distributed = kReplicas};
  plan.validated_after = 2;
  EXPECT_THAT(train_recorded(plan).computed, ElementsAre(2, 2, 2, 2, 2, 2, 0));
  EXPECT_EQ(difference(train(plan, nullptr), train_recorded(plan)), "");
  plan.validated_after = -1;
  plan.group = [](int64_t step) { return random_group(step, step == 3 ? 32 : 16); };
  EXPECT_THAT(train_recorded(plan).computed, ElementsAre(2, 2, 2, 2, 2, 2, 2));
  EXPECT_EQ(difference(train(plan, nullptr), train_recorded(plan)), "");
  plan.group = [](int64_t step) {
    std::vector<tensor::Batch> group = random_group(step);
    if (step == 4) group.pop_back();
    return group;
  };
  EXPECT_THAT(train_recorded(plan).computed, ElementsAre(2, 2, 2, 0, 1, 2, 2));
  EXPECT_EQ(difference(train(plan, nullptr), train_recorded(plan)), "");
}

TEST(StepGraphTest, MasksThatTheHostReadsAreNotRecorded) {
  Plan plan{.distributed = kReplicas};
  plan.group = [](int64_t step) {
    std::vector<tensor::Batch> group = random_group(step);
    group[1].document_ids = at::zeros({2, 16}, at::kLong);
    if (step > 3) group[1].document_ids.narrow(1, 8, 8).fill_(1);
    return group;
  };
  const Outcome recorded = train_recorded(plan);
  EXPECT_THAT(recorded.computed, ElementsAre(2, 2, 2, 2, 2, 2, 2));
  EXPECT_EQ(difference(train(plan, nullptr), recorded), "");
}

TEST(StepGraphTest, AStepThatDrawsRandomNumbersIsNotRecorded) {
  const Plan plan{.distributed = kReplicas, .golden = "gpt2"};  // which has dropout
  const Outcome recorded = train_recorded(plan);
  EXPECT_THAT(recorded.computed, ElementsAre(2, 2, 4, 2, 2, 2, 2));
  EXPECT_EQ(difference(train(plan, nullptr), recorded), "");
  EXPECT_THAT(testing::PrintToString(recorded.warnings.texts),
              HasSubstr("a step cannot be recorded: it draws random numbers (dropout, noise), "
                        "other ones in every step; all steps are launched kernel by kernel"));
}

/// Sets a flag while it lives.
struct Told {
  explicit Told(bool& told) : flag(told) { flag = true; }
  ~Told() { flag = false; }
  bool& flag;
};

/// Records, and says when.
class WatchedRecording final : public tensor::KernelGraph {
 public:
  explicit WatchedRecording(bool& is_recording) : is_recording_(is_recording) {}
  void run(const std::function<void()>& work) override { recording_.run(work); }
  void replay() override { recording_.replay(); }
  void forget() override { recording_.forget(); }
  void record(const std::function<void()>& work) override {
    recording_.record([&] {
      const Told told(is_recording_);
      work();
    });
  }

 private:
  bool& is_recording_;
  test::OperatorRecording recording_;
};

TEST(StepGraphTest, WhatCannotBeRecordedIsComputedStepByStep) {
  for (const std::string& distributed :
       {std::string(kReplicas), cat(kReplicas, "  activation_checkpointing: true\n")}) {
    for (const int64_t failing : {1, 2, 3}) {  // before the first, before the second, in a backward
      Plan plan{.distributed = distributed};
      const Outcome each = train(plan, nullptr);
      bool is_recording = false;
      int64_t num_losses = 0, num_gradients = 0;
      const auto fail = [] {
        throw std::runtime_error("operation not permitted when stream is capturing");
      };
      plan.in_loss = [&] {
        num_losses = is_recording ? num_losses + 1 : 0;
        if (num_losses == failing) fail();
      };
      plan.in_backward = [&] {
        if (is_recording && failing == 3 && ++num_gradients == 5) fail();
      };
      const Outcome outcome = train(plan, std::make_unique<WatchedRecording>(is_recording));
      EXPECT_EQ(difference(each, outcome), "") << distributed << failing;
      EXPECT_EQ(outcome.computed[3], 2);
      EXPECT_THAT(testing::PrintToString(outcome.warnings.texts),
                  HasSubstr("a step cannot be recorded: operation not permitted when stream is "
                            "capturing; all steps are launched kernel by kernel"));
    }
  }
}

TEST(StepGraphTest, ARunThatCannotRecordSaysWhy) {
  const test::TemporaryDirectory folder;
  const auto told = [&](const std::string& recipe, std::vector<std::string> more) {
    std::vector<std::string> command = {
        test::automodel_binary(),         "run",
        test::source_file(recipe),        cat("--checkpoint.checkpoint_dir=", folder.file("run")),
        "--checkpoint.enabled=false",     "--step_scheduler.max_steps=1",
        "--model.backend.cuda_graph=true"};
    command.insert(command.end(), more.begin(), more.end());
    const test::ProgramResult run = test::run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.err;
  };
  const std::string smoke = "recipes/smoke/tiny_llama_sft.yaml";
  EXPECT_THAT(told(smoke, {}),
              HasSubstr("WARNING | automodel | model.backend.cuda_graph has no effect: this "
                        "run has no CUDA device\n"));
  EXPECT_THAT(told(smoke, {"--nproc-per-node=2"}),
              HasSubstr("cuda_graph has no effect: only a run of one rank records steps\n"));
  EXPECT_THAT(told("recipes/smoke/tiny_qwen3_moe.yaml", {}),
              HasSubstr("cuda_graph has no effect: which experts compute what differs"));
}

}  // namespace
}  // namespace automodel::recipes
