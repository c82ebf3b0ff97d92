// Mixed precision from the YAML key to the numbers, against PyTorch (tests/golden/precision/).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "comm/ranks.h"
#include "config/load.h"
#include "distributed/golden_training.h"
#include "models/golden_model.h"
#include "recipes/build/build_engine.h"
#include "recipes/check/check_precision.h"
#include "recipes/read/read_distributed.h"
#include "training/train_step.h"

namespace automodel::recipes {
namespace {

using distributed::golden_distance;
using distributed::Tensors;

constexpr int64_t kNumSteps = 5;

/// One combination of dtypes, named as in scripts/goldens/make_precision_goldens.py.
struct PrecisionCase {
  std::string param, reduce, output;  // "absent" too
  bool casts = true;
  bool autocasts = false;
  bool recomputes = false;

  std::string name() const {
    return cat(param, "-", reduce, "-", output, casts ? "-cast" : "-plain",
               autocasts ? "-autocast" : "");
  }

  /// Nothing is rounded to 16 bits.
  bool is_exact() const { return !autocasts && name().find("bfloat16") == std::string::npos; }

  /// The section of a recipe. Where torch's default is meant, cast_forward_inputs is not written.
  std::string yaml() const {
    std::string policy;
    const auto add = [&](const char* key, const std::string& value) {
      if (value != "absent") policy += cat("    ", key, ": ", value, "\n");
    };
    add("param_dtype", param);
    add("reduce_dtype", reduce);
    add("output_dtype", output);
    add("cast_forward_inputs", casts ? "absent" : "false");
    return cat("distributed:\n  strategy: fsdp2\n", autocasts ? "  autocast_dtype: bfloat16\n" : "",
               recomputes ? "  activation_checkpointing: true\n" : "",
               policy.empty() ? "  mp_policy: {}\n" : cat("  mp_policy:\n", policy));
  }
};

std::vector<PrecisionCase> all_cases(bool autocasts) {
  std::vector<PrecisionCase> cases;
  for (const char* param : {"float32", "bfloat16", "absent"}) {
    for (const char* reduce : {"float32", "bfloat16", "absent"}) {
      for (const char* output : {"float32", "bfloat16", "absent"}) {
        for (const bool casts : {true, false}) {
          cases.push_back({param, reduce, output, casts, autocasts});
        }
      }
    }
  }
  return cases;
}

/// A recipe's `distributed` section for a model stored in float32, and what check says of it.
struct CheckedRecipe {
  explicit CheckedRecipe(const std::string& text, int64_t world_size = 2) {
    const config::Document document = config::load_text(text, "recipe.yaml", {});
    config::Diagnostics diagnostics(document.sources);
    recipe.root = document.root;
    recipe.model.dtype = at::kFloat;
    recipe.distributed = read_distributed(*document.root.find("distributed"), diagnostics);
    check_precision(recipe, world_size, diagnostics);
    errors = join(diagnostics.render_all(config::Severity::kError), "\n");
    warnings = join(diagnostics.render_all(config::Severity::kWarning), "\n");
  }

  Recipe recipe;
  std::string errors, warnings;
};

std::shared_ptr<models::CausalLM> golden_llama(bool is_tied) {
  Json config = Json::parse_file(test::golden_file("llama_default", "config.json"));
  if (is_tied) config["tie_word_embeddings"] = Json(true);
  auto model = models::build_causal_lm(config, at::kFloat);
  model->train();
  return model;
}

/// Losses and norms of five steps, gradients of the first one, weights after the last.
struct Trained {
  std::vector<double> losses, norms;
  Tensors gradient, weight;
};

Trained train(const Recipe& recipe, bool is_tied, comm::World& world) {
  using distributed::kGoldenIgnoreIndex;
  using distributed::kGoldenRows;
  const auto model = golden_llama(is_tied);
  const comm::ProcessGroup& group = world.group();
  const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = group.size()}));
  const auto engine = build_engine(recipe, *model, mesh, {});
  distributed::load_golden(*engine, test::read_trusted_safetensors(
                                        test::golden_file("llama_default", "model.safetensors")));
  engine->parameters_changed();
  const int64_t count = kGoldenRows / group.size();
  const auto rows = [&](int64_t step) {
    return distributed::golden_llama_rows(step * kGoldenRows + group.rank() * count, count);
  };
  Trained trained;
  const tensor::Batch all = distributed::golden_llama_rows(0, kGoldenRows);
  const double labels = all.labels.ne(kGoldenIgnoreIndex).sum().item<double>();
  engine->begin_micro_batch(true);
  model->loss(rows(0), labels / group.size(), kGoldenIgnoreIndex).backward();
  engine->end_micro_batch();
  engine->reduce_gradients();
  trained.gradient = distributed::whole_tensors(engine->gradients(), model->key_map(), group);
  engine->zero_gradients();
  optim::AdamConfig adam;
  adam.weight_decay = 0.01;
  adam.is_decoupled = true;
  const auto optimizer = optim::make_adam(adam, engine->trained(), engine->gradients());
  training::TrainStep train_step(*engine, *optimizer,
                                 optim::LrSchedule::constant(adam.lr, adam.weight_decay),
                                 [&](const tensor::Batch& batch, double divisor, int64_t, int64_t) {
                                   return model->loss(batch, divisor, kGoldenIgnoreIndex);
                                 },
                                 {});
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const auto result = train_step.run({rows(step)}, step);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.grad_norm);
  }
  trained.weight = distributed::whole_tensors(engine->parameters(), model->key_map(), group);
  return trained;
}

/// PyTorch's results, and the run in float64.
class PrecisionGoldens final {
 public:
  explicit PrecisionGoldens(bool is_tied) {
    if (!is_tied) read("fsdp2", "llama");
    read("precision", is_tied ? "tied" : "llama");
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }

  /// What is too far from PyTorch's or float64's numbers; "" when nothing is.
  ///
  /// Nothing rounded: 2e-6, as in fsdp_golden_test.cpp. Else at most twice as far from float64 as
  /// PyTorch, each gradient and all weights together, and all gradients together at least half as
  /// far: what the policy rounds is rounded.
  std::string findings(const std::string& name, const Trained& ours, bool is_exact) const {
    const at::Tensor& theirs = tensors_.at(name);
    const double* number = theirs.data_ptr<double>();
    std::string text;
    const auto within = [&](const std::string& what, double found, double bound) {
      if (!(found <= bound)) text += cat(name, ": ", what, ": ", found, " > ", bound, "\n");
    };
    for (const auto& [kind, values] :
         {std::pair("losses", &ours.losses), std::pair("norms", &ours.norms)}) {
      const at::Tensor exact = tensors_.at(cat("float64.", kind));
      const at::Tensor found = at::tensor(*values, at::kDouble);
      within(kind, golden_distance(found, exact), is_exact ? 2e-6 : 2 * farthest(kind, name));
      number += kNumSteps;
    }
    for (const auto& [kind, values] :
         {std::pair("gradient", &ours.gradient), std::pair("weight", &ours.weight)}) {
      double far = 0, their_far = 0;
      for (const auto& [key, value] : *values) {
        const at::Tensor& exact = tensors_.at(cat("float64.", kind, ".", key));
        const double distance = golden_distance(value, exact);
        // Adam's steps are as long for gradients that are rounding alone, which turn single
        // weights.
        const bool is_one_of_many = !is_exact && std::string_view(kind) == "weight";
        if (!is_one_of_many) within(cat(kind, " ", key), distance, is_exact ? 2e-6 : 2 * *number);
        far += distance;
        their_far += *number++;
      }
      if (is_exact) continue;
      within(cat("half of PyTorch's ", kind, "s"), their_far / 2, far);
      within(cat("all ", kind, "s"), far, 2 * their_far);
    }
    return text;
  }

 private:
  void read(const char* folder, const std::string& name) {
    for (auto& [key, value] :
         test::read_trusted_safetensors(test::golden_file(folder, name + ".safetensors"))) {
      tensors_.insert_or_assign(key, value);
    }
  }

  /// Five losses or norms are few numbers: PyTorch's farthest case of the same dtype of parameters,
  /// autocast or not.
  double farthest(const std::string& kind, const std::string& name) const {
    const auto sort_of = [](const std::string& text) {
      return std::pair(text.substr(0, text.find('-')), text.ends_with("autocast"));
    };
    const at::Tensor exact = tensors_.at("float64." + kind);
    double far = 0;
    for (const auto& [other, value] : tensors_) {
      if (other.starts_with("float64") || sort_of(other) != sort_of(name)) continue;
      const int64_t first = kind == "losses" ? 0 : kNumSteps;
      far = std::max(far, golden_distance(value.narrow(0, first, kNumSteps), exact));
    }
    return far;
  }

  Tensors tensors_;
};

class PrecisionTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

/// {float32, bfloat16, absent} of parameters, reduction and output, inputs cast or not.
TEST_P(PrecisionTest, EveryPolicyIsTrainedAsByPyTorchOrRefused) {
  const auto [is_tied, autocasts] = GetParam();
  comm::expect_ranks(2, [is_tied = is_tied, autocasts = autocasts](comm::World& world) {
    const PrecisionGoldens goldens(is_tied);
    std::string failures;
    int num_refused = 0;
    for (const PrecisionCase& it : all_cases(autocasts)) {
      const CheckedRecipe checked(it.yaml());
      const bool is_refused = !checked.errors.empty();
      num_refused += is_refused ? 1 : 0;
      if (is_refused == goldens.has(it.name())) {
        failures +=
            cat(it.name(), is_refused ? " is refused: " : " is not refused", checked.errors, "\n");
      }
      if (is_refused || !goldens.has(it.name())) continue;
      const Trained ours = train(checked.recipe, is_tied, world);
      failures += goldens.findings(it.name(), ours, it.is_exact());
    }
    comm::expect(failures.empty(), failures);
    comm::expect(num_refused == (autocasts ? 0 : 3), cat(num_refused, " are refused"));
  });
}

INSTANTIATE_TEST_SUITE_P(Models, PrecisionTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return cat(std::get<0>(info.param) ? "tied" : "llama",
                                      std::get<1>(info.param) ? "_autocast" : "");
                         });

TEST(AutocastTest, OneRankIsAsPyTorchWithoutSharding) {
  for (const bool is_tied : {false, true}) {
    for (const char* strategy : {"fsdp2", "ddp"}) {
      const CheckedRecipe checked(
          cat("distributed:\n  strategy: ", strategy, "\n  autocast_dtype: bfloat16\n"), 1);
      EXPECT_EQ(checked.errors, "");
      EXPECT_EQ(checked.warnings, "");
      comm::expect_ranks(1, [&](comm::World& world) {
        const std::string failures = PrecisionGoldens(is_tied).findings(
            "one-autocast", train(checked.recipe, is_tied, world), false);
        comm::expect(failures.empty(), failures);
      });
    }
  }
}

/// Kept in float32 between products in bfloat16: the recipe that upstream's documentation names.
TEST(AutocastTest, RecomputationGivesTheSameBits) {
  comm::expect_ranks(2, [](comm::World& world) {
    for (const char* param : {"bfloat16", "absent"}) {
      PrecisionCase it{param, "float32", "float32", false, true};
      const Trained plain = train(CheckedRecipe(it.yaml()).recipe, false, world);
      it.recomputes = true;
      const Trained again = train(CheckedRecipe(it.yaml()).recipe, false, world);
      comm::expect(plain.losses == again.losses, cat(it.name(), ": losses"));
      for (const auto& [name, value] : plain.weight) {
        comm::expect(at::equal(value, again.weight.at(name)), cat(it.name(), ": ", name));
      }
    }
  });
}

TEST(PrecisionCheckTest, AStreamWiderThanTheParametersNeedsACast) {
  EXPECT_EQ(CheckedRecipe("distributed:\n"
                          "  mp_policy:\n"
                          "    param_dtype: bfloat16\n"
                          "    output_dtype: float32\n"
                          "    cast_forward_inputs: false\n")
                .errors,
            "recipe.yaml:4:19: error: layers would get float32 hidden states for bfloat16 "
            "parameters: output_dtype is what one layer gives the next, and cast_forward_inputs is "
            "false; cast_forward_inputs: true would be right, or autocast_dtype: bfloat16 "
            "[distributed.mp_policy.output_dtype]\n"
            "  output_dtype: float32\n"
            "                ^");
}

TEST(PrecisionCheckTest, OnOneRankThatIsAWarning) {
  const CheckedRecipe checked(
      "distributed:\n"
      "  mp_policy: {param_dtype: bfloat16, output_dtype: float32, cast_forward_inputs: false}\n",
      1);
  EXPECT_EQ(checked.errors, "");
  EXPECT_EQ(checked.warnings,
            "recipe.yaml:2:52: warning: the policy has no effect on one rank; on several, layers "
            "would get float32 hidden states for bfloat16 parameters: output_dtype is what one "
            "layer gives the next, and cast_forward_inputs is false; cast_forward_inputs: true "
            "would be right, or autocast_dtype: bfloat16 [distributed.mp_policy.output_dtype]\n"
            "  mp_policy: {param_dtype: bfloat16, output_dtype: float32, cast_forward_inputs: "
            "false}\n"
            "                                                   ^");
}

TEST(PrecisionCheckTest, BesideAutocastInputsAreCastOnlyWhereThePolicySaysSo) {
  const auto casts = [](const std::string& keys, bool is_of_experts = false) {
    const std::string policy = cat("mp_policy: {output_dtype: float32", keys, "}\n");
    const CheckedRecipe checked(cat("distributed:\n  autocast_dtype: bfloat16\n",
                                    is_of_experts ? "  ep_size: 2\n  moe:\n    " : "  ", policy));
    return distributed::mixed_precision_policy(checked.recipe.distributed)->cast_forward_inputs;
  };
  EXPECT_FALSE(casts(""));
  EXPECT_FALSE(casts("", true));
  EXPECT_TRUE(casts(", cast_forward_inputs: true"));
  EXPECT_TRUE(casts(", cast_forward_inputs: true", true));
  const CheckedRecipe without("distributed:\n  mp_policy: {output_dtype: float32}\n");
  EXPECT_TRUE(distributed::mixed_precision_policy(without.recipe.distributed)->cast_forward_inputs);
}

TEST(PrecisionCheckTest, DtypesThatNothingIsComputedInAreRefused) {
  const auto error_of = [](const std::string& lines) {
    return CheckedRecipe(cat("distributed:\n", lines)).errors;
  };
  EXPECT_EQ(error_of("  mp_policy: {param_dtype: int8}\n"),
            "recipe.yaml:2:28: error: nothing can be computed in int8 here: bfloat16, float16, "
            "float32 or float64 would be right [distributed.mp_policy.param_dtype]\n"
            "  mp_policy: {param_dtype: int8}\n"
            "                           ^");
  EXPECT_EQ(error_of("  autocast_dtype: float32\n"),
            "recipe.yaml:2:19: error: autocast_dtype 'float32': bfloat16 or float16 would be "
            "right; without the key products are computed in the parameters' dtype "
            "[distributed.autocast_dtype]\n"
            "  autocast_dtype: float32\n"
            "                  ^");
}

}  // namespace
}  // namespace automodel::recipes
