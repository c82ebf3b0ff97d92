#include "distributed/tensor/tp_plan.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel::distributed {
namespace {

using enum StyleLayout;

template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const ParallelStyle kColwiseStyle{StyleKind::kColwise, kReplicate, kShardLast};
const ParallelStyle kRowwiseStyle{StyleKind::kRowwise, kShardLast, kReplicate};
const ParallelStyle kColwiseRep{StyleKind::kColwise, kReplicate, kReplicate};
const ParallelStyle kRowwiseRep{StyleKind::kRowwise, kReplicate, kReplicate};
const ParallelStyle kSequenceStyle{StyleKind::kSequence, kShardSequence, kShardSequence};

TEST(translate_to_torch_parallel_style, FiveStringsAreTorchsStyles) {
  EXPECT_EQ(translate_to_torch_parallel_style("colwise"), kColwiseStyle);
  EXPECT_EQ(translate_to_torch_parallel_style("rowwise"), kRowwiseStyle);
  EXPECT_EQ(translate_to_torch_parallel_style("colwise_rep"), kColwiseRep);
  EXPECT_EQ(translate_to_torch_parallel_style("rowwise_rep"), kRowwiseRep);
  EXPECT_EQ(translate_to_torch_parallel_style("sequence_parallel"), kSequenceStyle);
}

TEST(translate_to_torch_parallel_style, ReplicatedWithGradAllreduceSplitsNothing) {
  EXPECT_EQ(translate_to_torch_parallel_style("replicated_with_grad_allreduce"), std::nullopt);
}

TEST(translate_to_torch_parallel_style, OtherWordsAreUnknown) {
  EXPECT_EQ(error_of([] { translate_to_torch_parallel_style("diagonal"); }),
            "Unknown parallel style: diagonal");
  EXPECT_EQ(error_of([] { translate_to_torch_parallel_style("Colwise"); }),
            "Unknown parallel style: Colwise");
}

TpModel with_heads(int64_t num_heads, int64_t num_kv_heads) {
  TpModel model;
  model.num_heads = num_heads;
  model.num_kv_heads = num_kv_heads;
  return model;
}

TEST(validate_tp_mesh, OneRankFitsEveryModel) {
  EXPECT_EQ(error_of([] { validate_tp_mesh(with_heads(7, 3), 1); }), "");
}

TEST(validate_tp_mesh, KeyValueHeadsAreCheckedFirst) {
  EXPECT_EQ(error_of([] { validate_tp_mesh(with_heads(7, 3), 2); }),
            "num_key_value_heads (3) must be divisible by TP size (2)");
}

TEST(validate_tp_mesh, AttentionHeadsMustBeDivisible) {
  EXPECT_EQ(error_of([] { validate_tp_mesh(with_heads(7, 4), 2); }),
            "num_attention_heads (7) must be divisible by TP size (2)");
  EXPECT_EQ(error_of([] { validate_tp_mesh(with_heads(8, 4), 4); }), "");
}

TEST(validate_tp_mesh, MissingNumbersOfHeadsPass) {
  EXPECT_EQ(error_of([] { validate_tp_mesh(with_heads(0, 0), 3); }), "");
}

/// A model of one layer as the decoder states it.
TpModel stated_model() {
  TpModel model;
  model.plan.embedding = "model.embed_tokens";
  model.plan.tp_rules = {{"model.embed_tokens", nn::TpStyle::kVocabEmbedding},
                         {"model.layers.*.attention.qkv_proj", nn::TpStyle::kColwise},
                         {"model.layers.*.attention.o_proj", nn::TpStyle::kRowwise},
                         {"model.layers.*.attention_pre_norm", nn::TpStyle::kSequenceNorm}};
  const std::string hf = "model.layers.0.self_attn.";
  const std::string here = "model.layers.0.attention.";
  model.keys = {
      {"model.embed_tokens.weight", "model.embed_tokens.weight", 0, {8, 4}},
      {"model.layers.0.input_layernorm.weight", "model.layers.0.attention_pre_norm.weight", 0, {4}},
      {hf + "q_proj.weight", here + "qkv_proj.weight", 0, {4, 4}},
      {hf + "k_proj.weight", here + "qkv_proj.weight", 4, {4, 4}},
      {hf + "v_proj.weight", here + "qkv_proj.weight", 8, {4, 4}},
      {hf + "o_proj.weight", here + "o_proj.weight", 0, {4, 4}}};
  return model;
}

TEST(get_hf_tp_shard_plan, LaterSourcesWinAndTheInnerOneGetsItsPrefix) {
  StatedTpPlans stated;
  stated.of_class = {{"model.layers.*.mlp.up_proj", "colwise"},
                     {"model.layers.*.mlp.gate_proj", "rowwise"},
                     {"model.layers.*.mlp.down_proj", "colwise"}};
  stated.of_instance = {{"model.layers.*.mlp.gate_proj", "colwise"},
                        {"model.layers.*.mlp.down_proj", "colwise_rep"}};
  stated.of_inner = {{"layers.*.mlp.down_proj", "rowwise"}};
  const TpShardPlan plan = get_hf_tp_shard_plan(stated);
  EXPECT_EQ(plan.at("model.layers.*.mlp.up_proj"), kColwiseStyle);
  EXPECT_EQ(plan.at("model.layers.*.mlp.gate_proj"), kColwiseStyle);
  EXPECT_EQ(plan.at("model.layers.*.mlp.down_proj"), kRowwiseStyle);
}

TEST(get_hf_tp_shard_plan, TheEmbeddingIsAddedWhenItIsAbsent) {
  StatedTpPlans stated;
  stated.inner_prefix = "model.language_model";
  stated.of_inner = {{"layers.*.mlp.up_proj", "colwise"}};
  EXPECT_EQ(get_hf_tp_shard_plan(stated).at("model.language_model.embed_tokens"), kRowwiseRep);
  stated.of_inner["embed_tokens"] = "rowwise";
  EXPECT_EQ(get_hf_tp_shard_plan(stated).at("model.language_model.embed_tokens"), kRowwiseStyle);
}

TEST(get_hf_tp_shard_plan, TheHeadKeepsItsPartsInsteadOfGathering) {
  for (const char* head : {"lm_head", "language_model.lm_head"}) {
    StatedTpPlans stated;
    stated.of_class = {{head, "colwise_rep"}};
    EXPECT_EQ(get_hf_tp_shard_plan(stated).at(head), kColwiseStyle);
    stated.of_class = {{head, "rowwise"}};
    EXPECT_EQ(get_hf_tp_shard_plan(stated).at(head), kRowwiseStyle);
  }
}

TEST(get_hf_tp_shard_plan, StylesOfExpertsAndKernelsAreSkipped) {
  StatedTpPlans stated;
  stated.of_inner = {{"layers.*.mlp.experts", "ep_router"},
                     {"layers.*.mlp.gate", "gather"},
                     {"layers.*.mlp.a", "local_colwise"},
                     {"layers.*.mlp.b", "local_rowwise"}};
  EXPECT_EQ(get_hf_tp_shard_plan(stated).size(), 1u);  // the embedding
}

TEST(get_hf_tp_shard_plan, AModelThatStatesNothingHasNone) {
  TpModel model = stated_model();
  model.architecture = "GPT2LMHeadModel";
  EXPECT_EQ(get_hf_tp_shard_plan(model).size(), 6u);
  model.plan.tp_rules.clear();
  EXPECT_EQ(error_of([&] { get_hf_tp_shard_plan(model); }),
            "Hugging Face tp plan is not supported for GPT2LMHeadModel: it states none");
}

TEST(get_hf_tp_shard_plan, AModelStatesByClassByInstanceAndByItsInnerModel) {
  const StatedTpPlans stated = stated_tp_plans(stated_model());
  const std::string attention = "layers.*.self_attn.";
  EXPECT_EQ(stated.of_class, (TpStyleNames{{"lm_head", "colwise_rep"}}));
  EXPECT_EQ(stated.of_inner, (TpStyleNames{{attention + "q_proj", "colwise"},
                                           {attention + "k_proj", "colwise"},
                                           {attention + "v_proj", "colwise"},
                                           {attention + "o_proj", "rowwise"}}));
  // As transformers' post_init: the class's, and the inner model's under their whole names.
  TpStyleNames all = stated.of_class;
  for (const auto& [name, style] : stated.of_inner) all["model." + name] = style;
  EXPECT_EQ(stated.of_instance, all);
}

TEST(get_hf_tp_shard_plan, WrongStylesAndEmptyPlansAreErrors) {
  StatedTpPlans stated;
  EXPECT_EQ(error_of([&] { get_hf_tp_shard_plan(stated); }),
            "Hugging Face tp plan is not supported for this model: it states none");
  stated.of_class = {{"lm_head", "sideways"}};
  EXPECT_EQ(error_of([&] { get_hf_tp_shard_plan(stated); }), "Unknown parallel style: sideways");
}

TEST(get_parallel_plan, AMappingIsTakenAsItIs) {
  const TpStyleNames names = {{"model.layers.*.mlp.up_proj", "colwise"},
                              {"model.norm", "replicated_with_grad_allreduce"}};
  const TpShardPlan plan = get_parallel_plan(stated_model(), true, names);
  EXPECT_EQ(plan, (TpShardPlan{{"model.layers.*.mlp.up_proj", kColwiseStyle}}));
}

TEST(get_parallel_plan, ANameMeansANamedPlan) {
  EXPECT_EQ(get_parallel_plan(stated_model(), false, std::string("llama_nemotron_super_tp_plan")),
            base_tp_plan(false));
  EXPECT_EQ(error_of([] { get_parallel_plan(stated_model(), false, std::string("my.plans.f")); }),
            "there is no tensor-parallel plan 'my.plans.f': give a mapping of modules to styles "
            "(colwise, rowwise, colwise_rep, rowwise_rep, sequence_parallel, "
            "replicated_with_grad_allreduce), the name llama_nemotron_super_tp_plan, or nothing "
            "for the model's own plan; plans in Python cannot be imported here");
}

TEST(get_parallel_plan, TheModelsOwnPlanIsInHuggingFacesNames) {
  const std::string hf = "model.layers.*.self_attn.";
  EXPECT_EQ(get_parallel_plan(stated_model(), false),
            (TpShardPlan{{"lm_head", kColwiseStyle},
                         {"model.embed_tokens", kRowwiseRep},
                         {hf + "q_proj", kColwiseStyle},
                         {hf + "k_proj", kColwiseStyle},
                         {hf + "v_proj", kColwiseStyle},
                         {hf + "o_proj", kRowwiseStyle}}));
}

TEST(get_parallel_plan, SequenceParallelPlansCutTheStreamBetweenTheLayers) {
  const TpShardPlan plan = get_parallel_plan(stated_model(), true);
  EXPECT_EQ(plan.at("model.layers.*.input_layernorm"), kSequenceStyle);
  EXPECT_EQ(plan.at("model.layers.*.self_attn.q_proj"),
            (ParallelStyle{StyleKind::kColwise, kShardSequence, kShardLast}));
  EXPECT_EQ(plan.at("model.layers.*.self_attn.o_proj"),
            (ParallelStyle{StyleKind::kRowwise, kShardLast, kShardSequence}));
  EXPECT_EQ(plan.at("model.embed_tokens"),
            (ParallelStyle{StyleKind::kRowwise, kReplicate, kShardSequence}));
}

TEST(get_parallel_plan, AModelThatStatesNothingGetsTheBasePlan) {
  EXPECT_EQ(get_parallel_plan(TpModel{}, false), base_tp_plan(false));
  const TpShardPlan plan = base_tp_plan(true);
  EXPECT_EQ(plan.size(), base_tp_plan(false).size() + 3);  // the norms
  EXPECT_EQ(plan.at("model.norm"), kSequenceStyle);
}

TEST(TpPlanPatternTest, AStarStandsForOneComponent) {
  EXPECT_TRUE(matches_module("model.layers.*.mlp", "model.layers.12.mlp"));
  EXPECT_FALSE(matches_module("model.layers.*.mlp", "model.layers.12.mlp.up_proj"));
  EXPECT_FALSE(matches_module("model.*", "model.layers.12"));
  EXPECT_TRUE(matches_module("lm_head", "lm_head"));
  EXPECT_FALSE(matches_module("lm_head", "lm_heads"));
}

}  // namespace
}  // namespace automodel::distributed
