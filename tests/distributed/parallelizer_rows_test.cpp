// What the arguments of the strategies' functions do, one by one; conformance.md lists them beside
// the tests of parallelizer_test.cpp.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/ranks.h"
#include "distributed/block_forwards.h"
#include "distributed/counted_group.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/memory_ledger.h"
#include "distributed/model_classes.h"
#include "distributed/small_llama.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;
using Texts = std::vector<std::string>;

/// Axes under upstream's names; `dp` ranks share the parameters, `tp` ranks split them.
DeviceMesh row_mesh(const ProcessGroup& dp, const ProcessGroup& tp) {
  const auto one = ProcessGroup::solo();
  return DeviceMesh({{"dp_replicate", one},
                     {"dp_shard_cp", dp},
                     {"dp_cp", dp},
                     {"dp", dp},
                     {"cp", one},
                     {"tp", tp}});
}

ParallelizeOptions in_float32() {
  ParallelizeOptions options;
  options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
  return options;
}

double whole_norm() {
  SmallLlama llama;
  DataParallel engine(*llama.model, llama.facts.plan, llama.facts.keys, ProcessGroup::solo(), {});
  fill_by_name(engine);
  return norm_of_micro_batches(llama, engine);
}

/// Forwards of blocks in a micro-batch of a Llama of two, recomputed ones included.
size_t block_forwards(
    const std::function<std::unique_ptr<Engine>(const ParallelModel& model)>& parallelize) {
  SmallLlama llama;
  BlockForwards seen;
  watch_blocks(*llama.model, llama.facts.plan, seen);
  const auto engine = parallelize(llama.parallel());
  fill_by_name(*engine);
  norm_of_micro_batches(llama, *engine);
  return seen.size();
}

TEST(fsdp2_strategy_parallelize, splits_then_recomputes_then_shards_layers_then_the_root) {
  const double wanted = whole_norm();
  expect_ranks(4, [&](comm::World& world) {
    const DeviceMesh mesh =
        row_mesh(world.split("dp", {{0, 2}, {1, 3}}), world.split("tp", {{0, 1}, {2, 3}}));
    SmallLlama llama;
    ParallelizeOptions options = in_float32();
    options.activation_checkpointing = ActivationCheckpointingMode::kFull;
    const auto engine = fsdp2_strategy_parallelize(llama.parallel(), mesh, options);
    fill_by_name(*engine);
    const double norm = norm_of_micro_batches(llama, *engine);
    expect(std::abs(norm / wanted - 1) < 2e-6, cat("norm ", norm, " instead of ", wanted));
    // What was sharded are the split parameters, and recomputation found them gathered.
    expect(llama.parameter("model.layers.0.mlp.down_proj.weight").size(1) == 28, "not split");
    expect(engine->held_part().count == 4, "parts");
  });
}

TEST(fsdp2_strategy_parallelize, model) {
  // A model without memory gets this rank's part only, and is whole when it is gathered.
  expect_ranks(2, [](comm::World& world) {
    SmallLlama llama;
    const auto engine =
        fsdp2_strategy_parallelize(llama.parallel(), data_mesh(world.group()), in_float32());
    fill_by_name(*engine);
    int64_t held = 0;
    for (const tensor::FlatShard& shard : engine->parameters()) held += shard.buffer.numel();
    expect(held < engine->num_parameters() * 6 / 10, cat(held, " of ", engine->num_parameters()));
    SmallLlama whole;
    DataParallel plain(*whole.model, whole.facts.plan, whole.facts.keys, ProcessGroup::solo(), {});
    fill_by_name(plain);
    const std::vector<FSDPModule*> units = sharded(*engine).root().tree_units();
    unshard_fsdp2_model(*llama.model, [&] {
      for (const auto& item : whole.model->named_parameters()) {
        expect(at::equal(item.value(), llama.parameter(item.key())), item.key());
      }
    });
    for (const FSDPModule* unit : units) expect(!unit->is_unsharded(), unit->name());
  });
}

TEST(fsdp2_strategy_parallelize, device_mesh) {
  const auto one = ProcessGroup::solo();
  ToyModel toy;
  const auto refusal = [&](const DeviceMesh& mesh) {
    return test::error_of<UserError>([&] { fsdp2_strategy_parallelize(toy.model(), mesh, {}); });
  };
  EXPECT_EQ(refusal(DeviceMesh({{"dp_replicate", one}, {"dp_shard_cp", one}, {"dp_cp", one}})),
            "the mesh has no axis 'tp'; it has dp_cp, dp_replicate, dp_shard_cp");
  EXPECT_EQ(refusal(DeviceMesh({{"tp", one}, {"dp_shard_cp", one}, {"dp_cp", one}})),
            "the mesh has no axis 'dp_replicate'; it has dp_cp, dp_shard_cp, tp");
}

TEST(fsdp2_strategy_parallelize, a_mesh_of_three_axes_is_enough) {
  const double wanted = whole_norm();
  expect_ranks(4, [&](comm::World& world) {
    const auto one = ProcessGroup::solo();
    const auto rows = world.split("rows", {{0, 1}, {2, 3}});
    const auto columns = world.split("columns", {{0, 2}, {1, 3}});
    const std::tuple<const char*, ProcessGroup, ProcessGroup, int> meshes[] = {
        {"parts", one, world.group(), 4},
        {"copies", world.group(), one, 1},
        {"parts and copies", columns, rows, 2}};
    for (const auto& [name, replicate, shard, parts] : meshes) {
      const DeviceMesh mesh({{"dp_replicate", replicate}, {"dp_shard_cp", shard}, {"tp", one}});
      SmallLlama llama;
      const auto engine = fsdp2_strategy_parallelize(llama.parallel(), mesh, in_float32());
      fill_by_name(*engine);
      const double norm = norm_of_micro_batches(llama, *engine);
      expect(std::abs(norm / wanted - 1) < 2e-6, cat(name, ": norm ", norm, " not ", wanted));
      expect(engine->held_part().count == parts, name);
      expect(engine->group().size() == 4, cat(name, ": gradients of all ranks"));
    }
  });
}

TEST(fsdp2_strategy_parallelize, enable_async_tensor_parallel) {
  const double wanted = whole_norm();
  expect_ranks(2, [&](comm::World& world) {
    SmallLlama llama;
    BlockForwards seen;
    watch_blocks(*llama.model, llama.facts.plan, seen);
    test::Warnings warnings;
    ParallelizeOptions options = in_float32();
    options.enable_async_tensor_parallel = true;
    options.reporter = &warnings;
    const auto engine = fsdp2_strategy_parallelize(
        llama.parallel(), row_mesh(ProcessGroup::solo(), world.group()), options);
    expect(warnings.texts == Texts{"enable_async_tensor_parallel needs sequence_parallel, which is "
                                   "turned on"},
           join(warnings.texts, ", "));
    fill_by_name(*engine);
    const double norm = norm_of_micro_batches(llama, *engine);
    expect(std::abs(norm / wanted - 1) < 2e-6, cat("norm ", norm, " instead of ", wanted));
    expect(seen.size() == 2 && seen[0][1] == 6, "sequences are not split");
  });
}

TEST(fsdp2_strategy_parallelize, offload_policy_on_one_rank) {
  test::Warnings warnings;
  ToyModel toy;
  ParallelizeOptions options;
  options.offload_policy = CPUOffloadPolicy{};
  options.reporter = &warnings;
  fsdp2_strategy_parallelize(toy.model(), data_mesh(ProcessGroup::solo()), options);
  EXPECT_EQ(warnings.texts, (Texts{"offload_policy has no effect: one rank holds everything, "
                                   "nothing is sharded"}));
}

TEST(fsdp2_strategy_parallelize, sequence_parallel) {
  const double wanted = whole_norm();
  expect_ranks(2, [&](comm::World& world) {
    for (const bool is_split : {false, true}) {
      SmallLlama llama;
      BlockForwards seen;
      watch_blocks(*llama.model, llama.facts.plan, seen);
      ParallelizeOptions options = in_float32();
      options.sequence_parallel = is_split;
      const auto engine = fsdp2_strategy_parallelize(
          llama.parallel(), row_mesh(ProcessGroup::solo(), world.group()), options);
      fill_by_name(*engine);
      const double norm = norm_of_micro_batches(llama, *engine);
      expect(std::abs(norm / wanted - 1) < 2e-6, cat("norm ", norm, " instead of ", wanted));
      const std::vector<int64_t> sizes = {2, is_split ? 6 : 12, 32};
      expect(seen.size() == 2 && seen[0] == sizes && seen[1] == sizes, cat("sizes ", seen[0][1]));
    }
  });
}

TEST(fsdp2_strategy_parallelize, activation_checkpointing) {
  using Mode = ActivationCheckpointingMode;
  expect_ranks(2, [](comm::World& world) {
    for (const Mode mode : {Mode::kOff, Mode::kFull, Mode::kSelective}) {
      const size_t forwards = block_forwards([&](const ParallelModel& model) {
        ParallelizeOptions options;
        options.activation_checkpointing = mode;
        return fsdp2_strategy_parallelize(model, data_mesh(world.group()), options);
      });
      expect(forwards == (mode == Mode::kOff ? 2 : 4), cat(forwards, " forwards of blocks"));
    }
  });
}

TEST(fsdp2_strategy_parallelize, tp_shard_plan) {
  expect_ranks(2, [](comm::World& world) {
    SmallLlama llama;
    ParallelizeOptions options = in_float32();
    const std::string mlp = "model.layers.*.mlp.";
    options.tp_shard_plan = TpStyleNames{{mlp + "gate_proj", "colwise"},
                                         {mlp + "up_proj", "colwise"},
                                         {mlp + "down_proj", "rowwise"}};
    const auto engine = fsdp2_strategy_parallelize(
        llama.parallel(), row_mesh(ProcessGroup::solo(), world.group()), options);
    const auto rows = [&](const char* name, int64_t dim) {
      return llama.parameter(cat("model.layers.1.", name)).size(dim);
    };
    expect(rows("mlp.down_proj.weight", 1) == 56 / 2, "down_proj");
    expect(rows("mlp.gate_up_proj.weight", 0) == 2 * 56 / 2, "gate and up");
    expect(llama.parameter("model.embed_tokens.weight").size(0) == 128, "the model's plan is used");
  });
}

TEST(fsdp2_strategy_parallelize, heads_are_checked_before_anything_is_sent) {
  expect_ranks(2, [](comm::World& world) {
    const CountedGroup tp(world.group());
    SmallLlama llama({{"num_attention_heads", Json(3)}, {"num_key_value_heads", Json(3)}});
    const std::string text = test::error_of<UserError>([&] {
      fsdp2_strategy_parallelize(llama.parallel(), row_mesh(ProcessGroup::solo(), tp.group), {});
    });
    expect(text == "num_key_value_heads (3) must be divisible by TP size (2)", text);
    expect(tp.counts->empty(), text_of(*tp.counts));
  });
  // One tensor-parallel rank fits every model.
  SmallLlama llama({{"num_attention_heads", Json(3)}, {"num_key_value_heads", Json(3)}});
  fsdp2_strategy_parallelize(llama.parallel(), data_mesh(ProcessGroup::solo()), {});
}

TEST(fsdp2_strategy_parallelize, get_hf_tp_shard_plan_gives_the_loss_of_the_whole_model) {
  const auto loss_of = [](SmallLlama& llama, Engine& engine) {
    fill_by_name(engine);
    const at::NoGradGuard no_grad;
    engine.begin_micro_batch(true);
    const double loss = llama.loss().item<double>();
    engine.end_micro_batch();
    return loss;
  };
  SmallLlama whole;
  DataParallel plain(*whole.model, whole.facts.plan, whole.facts.keys, ProcessGroup::solo(), {});
  const double wanted = loss_of(whole, plain);
  expect_ranks(2, [&](comm::World& world) {
    SmallLlama llama;
    const auto engine = fsdp2_strategy_parallelize(
        llama.parallel(), row_mesh(ProcessGroup::solo(), world.group()), {});
    const double loss = loss_of(llama, *engine);
    expect(std::abs(loss / wanted - 1) < 2e-6, cat("loss ", loss, " instead of ", wanted));
  });
}

// ---- Megatron-FSDP ------------------------------------------------------------------------------

std::unique_ptr<Engine> parallelize_toy(ToyModel& toy, const ProcessGroup& group,
                                        const NvfsdpOptions& options) {
  SilentReporter reporter;
  return nvfsdp_strategy_parallelize(toy.model(), data_mesh(group), options, reporter);
}

TEST(nvfsdp_strategy_parallelize, optimizer) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const bool is_given : {false, true}) {
      ToyModel toy;
      NvfsdpOptions options = toy_units();
      std::vector<const void*> seen;
      const auto look = [&](Engine& engine) {
        for (const auto& shard : engine.trained()) seen.push_back(shard.buffer.data_ptr());
      };
      if (is_given) options.optimizer = look;
      const auto engine = parallelize_toy(toy, world.group(), options);
      expect(seen.size() == (is_given ? 4u : 0u), "an optimizer that nobody gave");
      norms.push_back(norm_of_a_step(toy.net, *engine));
      const std::vector<const void*> at_wrapping = seen;
      seen.clear();
      look(*engine);  // an optimizer that is made later gets the same memory
      expect(!is_given || seen == at_wrapping, "other memory");
    }
    expect(norms[0] == norms[1], "norms");
  });
}

/// Names of an engine's units.
Texts units_of(Engine& engine) {
  Texts found;
  for (const FSDPModule* unit : sharded(engine).root().tree_units()) found.push_back(unit->name());
  return found;
}

TEST(nvfsdp_strategy_parallelize, nvfsdp_unit_modules) {
  const std::string module = "transformers.models.qwen3_moe.modeling_qwen3_moe.";
  const std::string layer = module + "Qwen3MoeDecoderLayer";
  const std::string experts = module + "Qwen3MoeExperts";
  const nn::ParallelPlan plan = SmallLlama({}, at::kFloat, "qwen3_moe").facts.plan;
  const auto below_root = [](Texts first, const Texts& units) {
    first.insert(first.begin(), "");
    first.insert(first.end(), units.begin(), units.end());
    return first;
  };
  const std::pair<Texts, Texts> choices[] = {
      {{layer}, below_root({}, plan.blocks)},
      {{experts}, below_root({}, plan.expert_modules)},
      {{experts, layer}, below_root({}, plan.blocks)},  // the outer ones
      {{layer, "torch.nn.Embedding"}, below_root({plan.embedding}, plan.blocks)}};
  expect_ranks(2, [&](comm::World& world) {
    SilentReporter reporter;
    for (const auto& [classes, units] : choices) {
      SmallLlama moe({}, at::kFloat, "qwen3_moe");
      NvfsdpOptions options;
      options.classes = model_classes();
      options.config.megatron_fsdp_unit_modules = classes;
      const auto engine =
          nvfsdp_strategy_parallelize(moe.parallel(), data_mesh(world.group()), options, reporter);
      expect(units_of(*engine) == units, cat(classes[0], ": ", join(units_of(*engine), ", ")));
      fill_by_name(*engine);
      expect(std::isfinite(norm_of_micro_batches(moe, *engine)), "gradients");
    }
  });
}

TEST(nvfsdp_strategy_parallelize, without_unit_modules_the_whole_model_is_one_unit) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const bool has_units : {false, true}) {
      ToyModel toy;
      const auto engine =
          parallelize_toy(toy, world.group(), has_units ? toy_units() : NvfsdpOptions{});
      norms.push_back(norm_of_a_step(toy.net, *engine));
      const size_t wanted = has_units ? 4 : 1;
      expect(units_of(*engine).size() == wanted, join(units_of(*engine), ", "));
      const at::NoGradGuard no_grad;
      const int64_t before = sharded(*engine).counts().gathers;
      engine->parameters_changed();
      for (FSDPModule* unit : sharded(*engine).root().tree_units()) unit->reshard();
      toy.net.forward(toy_input(0));
      const int64_t gathers = sharded(*engine).counts().gathers - before;
      expect(gathers == static_cast<int64_t>(wanted), cat(gathers, " gathers of a forward"));
    }
    expect(std::abs(norms[1] / norms[0] - 1) < 1e-6, cat(norms[0], " and ", norms[1]));
  });
}

TEST(nvfsdp_strategy_parallelize, tp_shard_plan) {
  SilentReporter reporter;
  NvfsdpOptions options = toy_units();
  options.tp_shard_plan = TpStyleNames{{"no.such.module", "sideways"}};
  ToyModel toy;  // one tensor-parallel rank: nobody looks at the plan
  nvfsdp_strategy_parallelize(toy.model(), data_mesh(ProcessGroup::solo()), options, reporter);
  const double wanted = whole_norm();
  expect_ranks(2, [&](comm::World& world) {
    SmallLlama llama;
    NvfsdpOptions split;
    const auto engine = nvfsdp_strategy_parallelize(
        llama.parallel(), row_mesh(ProcessGroup::solo(), world.group()), split, reporter);
    expect(llama.parameter("lm_head.weight").size(0) == 64, "the head is not split");
    fill_by_name(*engine);
    const double norm = norm_of_micro_batches(llama, *engine);
    expect(std::abs(norm / wanted - 1) < 2e-6, cat("norm ", norm, " instead of ", wanted));
  });
}

TEST(nvfsdp_strategy_parallelize, init_nvfsdp_with_meta_device) {
  NvfsdpOptions options = toy_units();
  options.config.init_fsdp_with_meta_device = true;
  options.data_parallel_sharding_strategy = "no_shard";
  ToyModel toy;
  EXPECT_EQ(test::error_of<UserError>([&] { parallelize_toy(toy, ProcessGroup::solo(), options); }),
            "init_fsdp_with_meta_device needs parameters or an optimizer to shard");
  options.data_parallel_sharding_strategy = "optim_grads_params";
  expect_ranks(2, [&](comm::World& world) {
    SilentReporter reporter;
    options.config.megatron_fsdp_unit_modules.reset();
    SmallLlama llama;  // without memory until it is sharded
    const auto engine =
        nvfsdp_strategy_parallelize(llama.parallel(), data_mesh(world.group()), options, reporter);
    int64_t resting = 0;
    for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
      resting += unit->resting_bytes();
    }
    expect(resting < 2 * 4 * engine->num_parameters() * 6 / 10, "the whole model was made");
    fill_by_name(*engine);
    expect(std::isfinite(norm_of_micro_batches(llama, *engine)), "weights");
  });
}

TEST(nvfsdp_strategy_parallelize, grad_reduce_in_fp32) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<int64_t> bytes;
    for (const bool is_set : {false, true}) {
      ToyModel toy("ToyForCausalLM", at::kBFloat16);
      NvfsdpOptions options = toy_units();
      options.config.grad_reduce_in_fp32 = is_set;
      const auto engine = parallelize_toy(toy, world.group(), options);
      engine->begin_micro_batch(true);
      toy.net.loss(toy_input(0).to(at::kBFloat16)).backward();
      engine->end_micro_batch();
      engine->reduce_gradients();
      bytes.push_back(sharded(*engine).counts().reduced_bytes);
      const auto dtype = is_set ? at::kFloat : at::kBFloat16;
      expect(engine->gradients()[0].buffer.scalar_type() == dtype, "kept gradients");
    }
    expect(bytes[1] == 2 * bytes[0], cat(bytes[0], " and ", bytes[1], " bytes"));
  });
}

TEST(nvfsdp_strategy_parallelize, preserve_fp32_weights) {
  expect_ranks(2, [](comm::World& world) {
    for (const bool is_set : {false, true}) {
      ToyModel toy("ToyForCausalLM", at::kBFloat16);
      NvfsdpOptions options = toy_units();
      options.config.preserve_fp32_weights = is_set;
      const auto engine = parallelize_toy(toy, world.group(), options);
      const auto updated = engine->trained()[0].buffer.scalar_type();
      expect(updated == (is_set ? at::kFloat : at::kBFloat16), "what the optimizer updates");
      expect(toy.net.parameters()[0].scalar_type() == at::kBFloat16, "what is computed with");
    }
  });
}

/// Backwards and reductions of a step, in order.
Texts reductions_of_a_step(const ProcessGroup& group, const NvfsdpOptions& options) {
  ToyModel toy;
  const auto engine = parallelize_toy(toy, group, options);
  FSDPModule& root = sharded(*engine).root();
  root.clear_events();
  norm_of_a_step(toy.net, *engine);
  return only(take_events(root), {"backward", "reduce", "reduced"});
}

TEST(nvfsdp_strategy_parallelize, overlap_grad_reduce) {
  expect_ranks(2, [](comm::World& world) {
    const Texts overlapped = {"backward root",     "backward layers.2", "reduce layers.2",
                              "backward layers.1", "reduced layers.2",  "reduce layers.1",
                              "backward layers.0", "reduced layers.1",  "reduce layers.0",
                              "reduced layers.0",  "reduce root",       "reduced root"};
    const Texts waiting = {"backward root",    "backward layers.2", "reduce layers.2",
                           "reduced layers.2", "backward layers.1", "reduce layers.1",
                           "reduced layers.1", "backward layers.0", "reduce layers.0",
                           "reduced layers.0", "reduce root",       "reduced root"};
    for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
      for (const bool is_set : {false, true}) {
        NvfsdpOptions options = toy_units();
        options.data_parallel_sharding_strategy = strategy;
        options.config.overlap_grad_reduce = is_set;
        const bool is_forced = std::string(strategy) != "optim";
        const Texts found = reductions_of_a_step(world.group(), options);
        expect(found == (is_set || is_forced ? overlapped : waiting),
               cat(strategy, ": ", join(found, ", ")));
      }
    }
  });
}

TEST(nvfsdp_strategy_parallelize, average_in_collective) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const bool is_set : {false, true}) {
      ToyModel toy;
      NvfsdpOptions options = toy_units();
      options.config.average_in_collective = is_set;
      const auto engine = parallelize_toy(toy, world.group(), options);
      norms.push_back(norm_of_a_step(toy.net, *engine));
    }
    expect(std::abs(norms[1] / norms[0] - 1) < 1e-6, cat(norms[0], " and ", norms[1]));
  });
}

TEST(nvfsdp_strategy_parallelize, calculate_per_token_loss) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const bool is_set : {false, true}) {
      ToyModel toy;
      NvfsdpOptions options = toy_units();
      options.config.calculate_per_token_loss = is_set;
      const auto engine = parallelize_toy(toy, world.group(), options);
      norms.push_back(norm_of_a_step(toy.net, *engine));
    }
    expect(std::abs(norms[1] / norms[0] - 2) < 1e-6, cat(norms[0], " and ", norms[1]));
  });
}

TEST(nvfsdp_strategy_parallelize, activation_checkpointing) {
  using Mode = ActivationCheckpointingMode;
  expect_ranks(2, [](comm::World& world) {
    for (const Mode mode : {Mode::kOff, Mode::kFull}) {
      const size_t forwards = block_forwards([&](const ParallelModel& model) {
        SilentReporter reporter;
        NvfsdpOptions options;
        options.config.activation_checkpointing = mode;
        return nvfsdp_strategy_parallelize(model, data_mesh(world.group()), options, reporter);
      });
      expect(forwards == (mode == Mode::kOff ? 2 : 4), cat(forwards, " forwards of blocks"));
    }
  });
}

/// Everything that happens in two steps, and the bytes that they leave allocated.
std::pair<Texts, int64_t> life_of(const ProcessGroup& group, const NvfsdpOptions& options) {
  ToyModel toy;
  const auto engine = parallelize_toy(toy, group, options);
  norm_of_a_step(toy.net, *engine);
  engine->zero_gradients();
  const test::MemoryLedger ledger;
  norm_of_a_step(toy.net, *engine);
  engine->zero_gradients();
  return {take_events(sharded(*engine).root()), ledger.held()};
}

/// Flags of buffers that this engine has no use for: setting one changes nothing that happens.
void expect_no_effect(bool MegatronFSDPConfig::*flag) {
  expect_ranks(2, [flag](comm::World& world) {
    NvfsdpOptions options = toy_units();
    const auto plain = life_of(world.group(), options);
    options.config.*flag = true;
    expect(life_of(world.group(), options) == plain, "another life");
    expect(plain.second == 0, cat(plain.second, " bytes are left by the second step"));
  });
}

TEST(nvfsdp_strategy_parallelize, disable_bucketing) {
  expect_no_effect(&MegatronFSDPConfig::disable_bucketing);  // a unit is one collective either way
}

TEST(nvfsdp_strategy_parallelize, keep_fp8_transpose_cache_when_using_custom_fsdp) {
  expect_no_effect(&MegatronFSDPConfig::keep_fp8_transpose_cache);
}

TEST(nvfsdp_strategy_parallelize, nccl_ub) {
  expect_no_effect(&MegatronFSDPConfig::nccl_ub);
}

TEST(nvfsdp_strategy_parallelize, fsdp_double_buffer) {
  expect_no_effect(&MegatronFSDPConfig::fsdp_double_buffer);  // memory that is freed is used again
}

TEST(nvfsdp_strategy_parallelize, dp_mesh_name_cp_mesh_name_tp_mesh_name) {
  expect_ranks(2, [](comm::World& world) {
    const auto one = ProcessGroup::solo();
    SilentReporter reporter;
    NvfsdpOptions options = toy_units();
    options.dp_mesh_name = "data";
    options.cp_mesh_name = "context";
    options.tp_mesh_name = "tensor";
    ToyModel toy;
    const auto engine = nvfsdp_strategy_parallelize(
        toy.model(), DeviceMesh({{"data", world.group()}, {"context", one}, {"tensor", one}}),
        options, reporter);
    expect(engine->held_part().count == 2, "parts");
    // Only the axis of context-parallel ranks is named by the caller; the joined one is "dp_cp",
    // or is made.
    ToyModel made;
    const auto over_three = nvfsdp_strategy_parallelize(
        made.model(), DeviceMesh({{"data", one}, {"context", world.group()}, {"tensor", one}}),
        options, reporter);
    expect(over_three->held_part().count == 2, "parts of a mesh of three axes");
    ToyModel joined;
    const auto over_both = nvfsdp_strategy_parallelize(
        joined.model(),
        DeviceMesh(
            {{"data", one}, {"context", world.group()}, {"dp_cp", world.group()}, {"tensor", one}}),
        options, reporter);
    expect(over_both->held_part().count == 2, "parts over data and context");
  });
}

// ---- DDP ----------------------------------------------------------------------------------------

TEST(ddp_strategy_parallelize, activation_checkpointing) {
  using Mode = ActivationCheckpointingMode;
  expect_ranks(2, [](comm::World& world) {
    for (const Mode mode : {Mode::kOff, Mode::kFull, Mode::kSelective}) {
      const size_t forwards = block_forwards([&](const ParallelModel& model) {
        ReplicaOptions options;
        options.activation_checkpointing = mode;
        return ddp_strategy_parallelize(model, data_mesh(world.group()), options);
      });
      expect(forwards == (mode == Mode::kOff ? 2 : 4), cat(forwards, " forwards of blocks"));
    }
  });
}

}  // namespace
}  // namespace automodel::distributed
