// Models whose experts lie on several ranks, against the same models on one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/ranks.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/strategies/parallelizer.h"
#include "models/catalog.h"
#include "recipes/build/build_engine.h"
#include "recipes/engine_values.h"
#include "support/program.h"

namespace automodel::recipes {
namespace {

using distributed::Engine;

constexpr int64_t kSequences = 4;
constexpr int64_t kLength = 11;

/// Where experts and everything else lie.
struct ExpertMesh {
  const char* name;
  mesh::MeshSizes sizes;
  int ep = 1;
  bool sequence_parallel = false;
};

/// A model of tests/golden with eight experts.
std::shared_ptr<models::CausalLM> build_golden(const std::string& golden) {
  Json config = Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
  for (const char* key :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (config.contains(key)) config[key] = Json(8);
  }
  auto model =
      models::build_causal_lm(config, magnifies_roundings(golden) ? at::kDouble : at::kFloat);
  model->train();
  return model;
}

/// The sequences that rank `part` of `num_parts` reads.
tensor::Batch part_of_batch(const models::CausalLM& model, int part, int num_parts) {
  const int64_t vocab_size = model.dims().vocab_size;
  tensor::Batch batch;
  batch.input_ids = at::remainder(at::arange(kSequences * kLength).pow(2) * 7 + 3, vocab_size)
                        .view({kSequences, kLength});
  batch.labels = at::remainder(batch.input_ids * 5 + 1, vocab_size);
  batch.labels.select(1, 0).fill_(-100);
  return batch.sequences(part * kSequences / num_parts, kSequences / num_parts);
}

/// One micro-batch. Gradients are averaged over `num_parts` ranks.
double train(models::CausalLM& model, Engine& engine, int part, int num_parts) {
  fill_by_name(engine);
  engine.parameters_changed();
  engine.begin_micro_batch(true);
  const at::Tensor loss = model.loss(part_of_batch(model, part, num_parts), 40.0 / num_parts, -100);
  loss.backward();
  engine.end_micro_batch();
  engine.reduce_gradients();
  return loss.item<double>() / num_parts;
}

std::unique_ptr<Engine> spread(models::CausalLM& model, const ExpertMesh& place,
                               const distributed::DeviceMesh& mesh, const char* dtype) {
  distributed::ParallelizeOptions options;
  options.mp_policy =
      distributed::MixedPrecisionPolicy{.param_dtype = dtype, .reduce_dtype = dtype};
  options.sequence_parallel = place.sequence_parallel;
  return distributed::fsdp2_strategy_parallelize(parallel_model(model), mesh, options);
}

void expect_as_dense(comm::World& world, const std::string& golden, const ExpertMesh& place) {
  const std::string name = cat(golden, " on ", place.name);
  const auto whole = build_golden(golden);
  distributed::DataParallel whole_engine(*whole, whole->parallel_plan(), whole->key_map(),
                                         comm::ProcessGroup::solo(), {});
  const double wanted_loss = train(*whole, whole_engine, 0, 1);
  const auto wanted = whole_gradients(whole_engine);

  const distributed::DeviceMesh mesh(world, mesh::Mesh(place.sizes), place.ep);
  const auto model = build_golden(golden);
  const bool is_double = magnifies_roundings(golden);
  const auto engine = spread(*model, place, mesh, is_double ? "float64" : "float32");
  const comm::ProcessGroup& dp = mesh.group("dp");
  double loss = train(*model, *engine, dp.rank(), dp.size());
  at::Tensor sum = at::tensor({loss}, at::kDouble);
  dp.all_reduce(sum, comm::ReduceOp::kSum);
  loss = sum.item<double>();
  // Logits of a split vocabulary, and the loss, are float32 numbers in any case.
  comm::expect(std::abs(loss / wanted_loss - 1) < 2e-6,
               cat(name, ": loss ", loss, " instead of ", wanted_loss));
  expect_gradients(*engine, wanted, is_double ? 1e-6 : 1e-5, name);
  comm::expect(engine->num_parameters() == whole_engine.num_parameters(),
               cat(name, ": ", engine->num_parameters(), " parameters instead of ",
                   whole_engine.num_parameters()));
  const double norm = engine->gradient_norm();
  comm::expect(std::abs(norm / whole_engine.gradient_norm() - 1) < 2e-6,
               cat(name, ": norm ", norm, " instead of ", whole_engine.gradient_norm()));
}

void expect_all_as_dense(int num_ranks, const std::vector<std::string>& goldens,
                         const std::vector<ExpertMesh>& places) {
  comm::expect_ranks(num_ranks, [&](comm::World& world) {
    for (const std::string& golden : goldens) {
      for (const ExpertMesh& place : places) expect_as_dense(world, golden, place);
    }
  });
}

const std::vector<std::string> kFamilies = {"qwen3_moe",
                                            "mixtral",
                                            "deepseek_v3",
                                            "glm4_moe",
                                            "gpt_oss",
                                            "minimax_m2",
                                            "glm4_moe_lite",
                                            "qwen3_5_moe",
                                            "nemotron_h_moe",
                                            "hy_v3",
                                            "qwen2_moe",
                                            "ernie4_5_moe",
                                            "bailing_moe_v2",
                                            "mistral4",
                                            "deepseek_v32",
                                            "glm_moe_dsa_shared",
                                            "kimi_linear",
                                            "hunyuan_v1_moe",
                                            "deepseek_v4",
                                            "olmoe_clip_padding",
                                            "deepseek_v2",
                                            "dots1",
                                            "hy_v3_biases",
                                            "granitemoe",
                                            "granitemoeshared",
                                            "nemotron_h_latent",
                                            "step3p5",
                                            "step3p5_softmax",
                                            "laguna",
                                            "laguna_elements_padding",
                                            "mimo_v2_flash",
                                            "mimo_v2_flash_groups_padding",
                                            "gemma4_moe",
                                            "gemma4_everything_padding",
                                            "solar_open",
                                            "exaone_moe",
                                            "flex_olmo",
                                            "granitemoehybrid",
                                            "deepseek",
                                            "deepseek_padding",
                                            "lfm2_moe",
                                            "granitemoe_swa",
                                            "mellum",
                                            "afmoe",
                                            "llama4",
                                            "llama4_padding",
                                            "cohere2_moe_padding"};
/// Those whose attention is split over tensor-parallel ranks.
const std::vector<std::string> kSplitFamilies = {"qwen3_moe",
                                                 "mixtral",
                                                 "glm4_moe",
                                                 "hy_v3",
                                                 "qwen2_moe",
                                                 "ernie4_5_moe",
                                                 "bailing_moe_v2",
                                                 "hunyuan_v1_moe",
                                                 "dots1",
                                                 "hy_v3_biases",
                                                 "ernie4_5_moe_biases",
                                                 "granitemoe",
                                                 "granitemoeshared",
                                                 "step3p5",
                                                 "laguna",
                                                 "laguna_elements_padding",
                                                 "solar_open",
                                                 "exaone_moe",
                                                 "deepseek",
                                                 "mellum",
                                                 "afmoe",
                                                 "llama4",
                                                 "llama4_padding",
                                                 "cohere2_moe_padding"};

/// It is a buffer in the Python models, which no policy casts: rounded, it would choose other
/// experts.
TEST(ExpertModelsTest, ACorrectionOfScoresKeepsItsDtypeUnderAPolicy) {
  comm::expect_ranks(2, [](comm::World& world) {
    const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = 2}), 2);
    const auto model = build_golden("glm4_moe");
    distributed::ParallelizeOptions options;
    options.mp_policy = distributed::MixedPrecisionPolicy{.param_dtype = "bfloat16"};
    const auto engine =
        distributed::fsdp2_strategy_parallelize(parallel_model(*model), mesh, options);
    int num_corrections = 0;
    for (const auto& item : model->named_modules()) {
      distributed::FSDPModule* unit = distributed::fsdp_module(*item.value());
      if (unit == nullptr) continue;
      unit->unshard();
      for (const auto& parameter : item.value()->named_parameters()) {
        if (!parameter.value().defined() || parameter.value().numel() == 0) continue;
        const bool is_correction = parameter.key().ends_with("e_score_correction_bias");
        num_corrections += is_correction ? 1 : 0;
        if (is_correction) {
          comm::expect(parameter.value().scalar_type() == at::kFloat, parameter.key());
        }
      }
      unit->reshard();
    }
    comm::expect(num_corrections > 0, "no router has a correction");
  });
}

TEST(ExpertModelsTest, AHeadOfItsOwnPrecisionComputesInIt) {
  comm::expect_ranks(2, [](comm::World& world) {
    const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = 2}), 2);
    const auto run = [&](const char* dtype, std::optional<std::string> head) {
      const auto model = build_golden("qwen3_moe");
      distributed::ParallelizeOptions options;
      options.mp_policy = distributed::MixedPrecisionPolicy{.param_dtype = dtype};
      options.moe.lm_head_precision = std::move(head);
      const auto engine =
          distributed::fsdp2_strategy_parallelize(parallel_model(*model), mesh, options);
      const double loss = train(*model, *engine, mesh.group("dp").rank(), 2);
      std::vector<at::ScalarType> dtypes;
      for (const char* name : {"lm_head", "model.embed_tokens"}) {
        const auto module = model->named_modules()[name];
        distributed::FSDPModule* unit = distributed::fsdp_module(*module);
        comm::expect(unit != nullptr, cat(name, " is no unit"));
        unit->unshard();
        dtypes.push_back(module->parameters()[0].scalar_type());
        unit->reshard();
      }
      return std::pair{loss, dtypes};
    };
    const auto [whole_loss, whole] = run("float32", std::nullopt);
    const auto [narrow_loss, narrow] = run("bfloat16", std::nullopt);
    const auto [loss, dtypes] = run("bfloat16", "float32");
    comm::expect(narrow == std::vector{at::kBFloat16, at::kBFloat16}, "the policy's");
    comm::expect(dtypes == std::vector{at::kFloat, at::kBFloat16}, "the head's own");
    comm::expect(loss != narrow_loss, "the head computed in bfloat16");
    comm::expect(std::abs(loss / whole_loss - 1) < 0.02, cat(loss, " and ", whole_loss));
  });
}

TEST(ExpertModelsTest, EveryFamilyOnTwoRanksIsTheDenseModel) {
  expect_all_as_dense(2, kFamilies, {{"fsdp2", {.dp_shard = 2}}, {"ep2", {.dp_shard = 2}, 2}});
  expect_all_as_dense(2, kSplitFamilies,
                      {{"tp2", {.tp = 2}},
                       {"tp2 with split sequences", {.tp = 2}, 1, true},
                       {"tp2 x ep2", {.tp = 2}, 2},
                       {"tp2 x ep2 with split sequences", {.tp = 2}, 2, true}});
}

TEST(ExpertModelsTest, EveryFamilyOnFourRanksIsTheDenseModel) {
  expect_all_as_dense(4, kFamilies,
                      {{"ep2 x ep_shard2", {.dp_shard = 4}, 2},
                       {"ep2 inside replicas", {.dp_replicate = 2, .dp_shard = 2}, 2}});
  expect_all_as_dense(4, kSplitFamilies,
                      {{"tp2 x ep2 x ep_shard2", {.dp_shard = 2, .tp = 2}, 2},
                       {"the same with split sequences", {.dp_shard = 2, .tp = 2}, 2, true}});
}

TEST(ExpertModelsTest, ExpertsOverAllOfFourRanksAreTheDenseModel) {
  expect_all_as_dense(
      4, {"qwen3_moe", "mixtral", "gpt_oss"},
      {{"ep4", {.dp_shard = 4}, 4}, {"ep4 over replicas", {.dp_replicate = 2, .dp_shard = 2}, 4}});
}

}  // namespace
}  // namespace automodel::recipes
