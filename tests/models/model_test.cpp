#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "models/flops.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "nn/tensor_parallel.h"
#include "nn/unit_hook.h"

namespace automodel {
namespace {

using tensor::InitRule;

tensor::Batch golden_batch(const std::string& name) {
  return models::parity_batch(
      test::read_trusted_safetensors(test::golden_file(name, "reference.safetensors")));
}

double loss_of(models::CausalLM& model, const tensor::Batch& batch) {
  return model.loss(batch, 10.0, -100).item<double>();
}

std::map<std::string, InitRule> rules_of(const std::string& name) {
  const auto model =
      models::build_causal_lm(Json::parse_file(test::golden_file(name, "config.json")), at::kFloat);
  std::map<std::string, InitRule> rules;
  for (const models::ParameterInit& init : model->initial_values()) {
    rules[init.parameter] = init.rule;
  }
  EXPECT_EQ(rules.size(), model->parameters().size());
  return rules;
}

TEST(InitialValues, LlamaIsNormalWithOnesInNormsAndZerosInBiases) {
  const auto rules = rules_of("llama_linear_biases");
  const InitRule& weight = rules.at("model.layers.0.attention.qkv_proj.weight");
  EXPECT_EQ(weight.kind, InitRule::Kind::kNormal);
  EXPECT_EQ(weight.b, 0.02);
  EXPECT_EQ(rules.at("lm_head.weight").b, 0.02);
  EXPECT_EQ(rules.at("model.embed_tokens.weight").zero_row, -1);
  EXPECT_EQ(rules.at("model.layers.0.attention.qkv_proj.bias").a, 0.0);
  EXPECT_EQ(rules.at("model.layers.1.mlp_pre_norm.weight").kind, InitRule::Kind::kConstant);
  EXPECT_EQ(rules.at("model.layers.1.mlp_pre_norm.weight").a, 1.0);
}

TEST(InitialValues, PaddingRowIsZero) {
  EXPECT_EQ(rules_of("llama_dynamic_padding").at("model.embed_tokens.weight").zero_row, 3);
}

TEST(InitialValues, GemmaNormsStartAtZero) {
  const auto rules = rules_of("gemma3_text");
  EXPECT_EQ(rules.at("model.norm.weight").a, 0.0);
  EXPECT_EQ(rules.at("model.layers.0.attention.q_norm.weight").a, 0.0);
}

TEST(InitialValues, Gpt2ScalesProjectionsOntoTheResidual) {
  const auto rules = rules_of("gpt2");
  EXPECT_DOUBLE_EQ(rules.at("model.layers.0.attention.o_proj.weight").b, 0.01);  // 0.02 / sqrt(4)
  EXPECT_DOUBLE_EQ(rules.at("model.layers.1.mlp.down_proj.weight").b, 0.01);
  EXPECT_EQ(rules.at("model.layers.1.mlp.up_proj.weight").b, 0.02);
  EXPECT_EQ(rules.at("model.norm.bias").a, 0.0);
}

TEST(InitialValues, LayersWithAStateBeginAsTransformersDoes) {
  using Kind = InitRule::Kind;
  const auto delta = rules_of("qwen3_5");
  const InitRule& decay = delta.at("model.layers.0.attention.A_log");
  EXPECT_EQ(decay.kind, Kind::kLogUniform);
  EXPECT_EQ(std::pair(decay.a, decay.b), std::pair(0.01, 16.0));
  EXPECT_EQ(delta.at("model.layers.0.attention.dt_bias").a, 1.0);
  EXPECT_EQ(delta.at("model.layers.0.attention.norm.weight").a, 1.0);
  EXPECT_EQ(delta.at("model.layers.0.attention_pre_norm.weight").a, 0.0);
  EXPECT_EQ(delta.at("model.layers.0.attention.conv1d.weight").b, 0.02);
  const auto kimi = rules_of("kimi_linear");
  const InitRule& rate = kimi.at("model.layers.0.attention.A_log");
  EXPECT_EQ(rate.kind, Kind::kLogUniform);
  EXPECT_EQ(std::pair(rate.a, rate.b), std::pair(1.0, 16.0));
  const InitRule& steps = kimi.at("model.layers.0.attention.dt_bias");
  EXPECT_EQ(steps.kind, Kind::kSoftplusOf);
  EXPECT_EQ(std::tuple(steps.a, steps.b, steps.cut), std::tuple(1e-3, 1e-1, 1e-4));
  EXPECT_EQ(kimi.at("model.layers.0.attention.norm.weight").a, 1.0);
  const auto mamba = rules_of("nemotron_h");
  EXPECT_EQ(mamba.at("model.layers.0.attention.A_log").kind, Kind::kLogCount);
  EXPECT_EQ(mamba.at("model.layers.0.attention.dt_bias").kind, Kind::kSoftplusOf);
  EXPECT_EQ(mamba.at("model.layers.0.attention.D").a, 1.0);
  EXPECT_EQ(mamba.at("model.layers.0.attention.conv1d.bias").a, 0.0);
  const InitRule& output = mamba.at("model.layers.0.attention.out_proj.weight");
  EXPECT_EQ(output.kind, Kind::kUniform);
  EXPECT_DOUBLE_EQ(output.b, 1 / std::sqrt(48.0 * 5));
  const auto falcon = rules_of("falcon_h1_gate_first");
  EXPECT_EQ(falcon.at("model.layers.0.mamba.A_log").kind, Kind::kLogCount);
  EXPECT_EQ(falcon.at("model.layers.0.mamba.dt_bias").a, 1.0);
  EXPECT_EQ(falcon.at("model.layers.0.mamba.dt_bias").kind, Kind::kConstant);
  EXPECT_EQ(falcon.at("model.layers.0.mamba.D").a, 1.0);
  EXPECT_EQ(falcon.at("model.layers.0.mamba.norm.weight").a, 1.0);
  EXPECT_EQ(falcon.at("model.layers.0.mamba.out_proj.weight").b, 0.02);
}

void expect_dropout_follows_its_context(models::CausalLM* model, const tensor::Batch& batch) {
  at::set_num_threads(1);
  model->eval();
  const double plain = loss_of(*model, batch);
  EXPECT_EQ(loss_of(*model, batch), plain);
  model->train();
  model->set_dropout_context({.seed = 7, .step = 3, .micro_batch = 1});
  const double dropped = loss_of(*model, batch);
  EXPECT_NE(dropped, plain);
  EXPECT_EQ(loss_of(*model, batch), dropped);
  model->set_dropout_context({.seed = 7, .step = 4, .micro_batch = 1});
  EXPECT_NE(loss_of(*model, batch), dropped);
  model->set_dropout_context({.seed = 7, .step = 3, .micro_batch = 2});
  EXPECT_NE(loss_of(*model, batch), dropped);
}

TEST(Dropout, HappensInTrainingOnlyAndFollowsItsContext) {
  expect_dropout_follows_its_context(test::load_golden_model("gpt2").get(), golden_batch("gpt2"));
}

/// Latent attention, also where an indexer chooses keys.
TEST(Dropout, LatentAttentionDropsProbabilities) {
  for (const char* name : {"deepseek_v3", "deepseek_v32", "kimi_linear"}) {
    SCOPED_TRACE(name);
    const auto model = test::load_golden_model(name, {{"attention_dropout", Json(0.3)}});
    expect_dropout_follows_its_context(model.get(), golden_batch(name));
  }
}

/// What is left counts 1 / (1 - p) as much: the mean over many draws is the model without dropout.
TEST(Dropout, LatentAttentionKeepsTheMean) {
  const auto model = test::load_golden_model("deepseek_v3", {{"attention_dropout", Json(0.02)}});
  const tensor::Batch batch = golden_batch("deepseek_v3");
  model->eval();
  const double plain = loss_of(*model, batch);
  model->train();
  constexpr int kDraws = 200;
  double sum = 0;
  double squares = 0;
  for (int step = 0; step < kDraws; ++step) {
    model->set_dropout_context({.seed = 7, .step = step, .micro_batch = 0});
    const double difference = loss_of(*model, batch) - plain;
    sum += difference;
    squares += difference * difference;
  }
  const double mean = sum / kDraws;
  const double error = std::sqrt(squares / kDraws / kDraws);
  EXPECT_LT(std::abs(mean), 4 * error) << "standard error " << error;
  EXPECT_GT(error, 1e-6);
}

TEST(Loss, NoLabelGivesZeroWithZeroGradients) {
  const auto model = test::load_golden_model("llama_default");
  tensor::Batch batch = golden_batch("llama_default");
  batch.labels = at::full_like(batch.labels, -100);
  const at::Tensor loss = model->loss(batch, 1.0, -100);
  EXPECT_EQ(loss.item<double>(), 0.0);
  loss.backward();
  for (const auto& item : model->named_parameters()) {
    if (!item.value().grad().defined()) continue;
    EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0.0) << item.key();
  }
}

TEST(Loss, LossHeadAndLogitsAgree) {
  for (const char* name : {"gemma2", "granite", "falcon_h1", "cohere", "phi", "gpt_neox"}) {
    const auto model = test::load_golden_model(name);
    const tensor::Batch batch = golden_batch(name);
    model->eval();
    const at::Tensor logits = model->logits(model->hidden_states(batch)).flatten(0, 1);
    const at::Tensor labels = batch.labels.flatten();
    const at::Tensor expected =
        at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, -100);
    EXPECT_NEAR(loss_of(*model, batch), expected.item<double>() / 10.0, 1e-5) << name;
  }
}

/// What the host has found out of labels that a device holds is believed.
TEST(Loss, ScoredTokensAreThoseOfTheBatch) {
  const auto model = test::load_golden_model("qwen3_tied");
  tensor::Batch batch = golden_batch("qwen3_tied");
  batch.labels.narrow(1, 0, 4).fill_(-100);
  const double expected = loss_of(*model, batch);
  batch.scored = models::scored_tokens(batch.labels.flatten(), -100);
  ASSERT_TRUE(batch.scored.defined());
  EXPECT_EQ(loss_of(*model, batch), expected);
  batch.scored = batch.scored.narrow(0, 0, 3);
  tensor::Batch first = batch;
  first.scored = at::Tensor();
  first.labels = at::full_like(batch.labels, -100);
  first.labels.view({-1}).index_copy_(0, batch.scored,
                                      batch.labels.view({-1}).index_select(0, batch.scored));
  EXPECT_EQ(loss_of(*model, batch), loss_of(*model, first));
}

TEST(HiddenStates, PositionIdsThatCountUpEqualNone) {
  const auto model = test::load_golden_model("qwen3_tied");
  tensor::Batch batch = golden_batch("qwen3_tied");
  const at::Tensor plain = model->hidden_states(batch);
  batch.position_ids = at::arange(batch.sequence_length(), at::kLong).expand({2, -1}).contiguous();
  EXPECT_TRUE(at::allclose(model->hidden_states(batch), plain, 1e-6, 1e-6));
}

class PackedDocumentsTest : public testing::TestWithParam<const char*> {};

TEST_P(PackedDocumentsTest, EqualSeparateSequences) {
  const auto model = test::load_golden_model(GetParam());
  const tensor::Batch whole = golden_batch(GetParam());
  const at::Tensor first = whole.input_ids.narrow(0, 0, 1).narrow(1, 0, 10);
  const at::Tensor second = whole.input_ids.narrow(0, 1, 1).narrow(1, 0, 8);
  tensor::Batch packed;
  packed.input_ids = at::cat({first, second}, 1);
  packed.position_ids = at::cat({at::arange(10, at::kLong), at::arange(8, at::kLong)}).unsqueeze(0);
  packed.document_ids =
      at::cat({at::zeros({10}, at::kLong), at::ones({8}, at::kLong)}).unsqueeze(0);
  tensor::Batch one;
  one.input_ids = first;
  tensor::Batch two;
  two.input_ids = second;
  const at::Tensor expected = at::cat({model->hidden_states(one), model->hidden_states(two)}, 1);
  EXPECT_TRUE(at::allclose(model->hidden_states(packed), expected, 1e-5, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Golden, PackedDocumentsTest,
                         testing::Values("llama_llama3_tied", "glm4", "qwen3_next", "qwen3_5",
                                         "nemotron_h", "nemotron_h_moe", "falcon_h1",
                                         "falcon_h1_gate_first", "cohere2", "kimi_linear", "olmo3",
                                         "exaone4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HiddenStates, LayersWithAStateSeeWholeSequences) {
  const auto model = test::load_golden_model("falcon_h1");
  try {
    dynamic_cast<nn::SplitsSequence&>(*model).keep_sequence_part(0, 2, nullptr);
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_STREQ(error.what(),
                 "layers that carry a state from token to token (gated delta nets, Mamba, short "
                 "convolutions) are not in this version with sequence_parallel");
  }
}

TEST(HiddenStates, TokenOutsideTheVocabularyIsNamed) {
  const auto model = test::load_golden_model("llama_default");
  tensor::Batch batch = golden_batch("llama_default");
  batch.input_ids[1][2] = 128;
  try {
    model->hidden_states(batch);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "token id 128 is outside the model's vocabulary of 128 (vocab_size in "
                 "config.json): is this the model's tokenizer?");
  }
}

TEST(HiddenStates, SequenceBeyondLearnedPositionsIsRefused) {
  const auto model = test::load_golden_model("gpt2");
  tensor::Batch batch;
  batch.input_ids = at::zeros({1, 33}, at::kLong);
  try {
    model->hidden_states(batch);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "sequences of 33 positions are longer than the 32 positions that the model has learned");
  }
}

/// Runs the body a second time, as recomputation does, and keeps the second result.
class RunningTwice final : public nn::UnitBehavior {
 public:
  explicit RunningTwice(int& count) : count_(count) {}
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    ++count_;
    body(inputs);
    return body(inputs);
  }

 private:
  int& count_;
};

TEST(Block, ForwardGoesThroughItsUnitHook) {
  const auto model = test::load_golden_model("gpt2");
  const tensor::Batch batch = golden_batch("gpt2");
  model->train();
  const double expected = loss_of(*model, batch);
  int count = 0;
  for (const std::string& block : model->parallel_plan().blocks) {
    for (const auto& item : model->named_modules("", false)) {
      if (item.key() != block) continue;
      auto& hooked = dynamic_cast<nn::HookedModule&>(*item.value());
      hooked.unit_hook().install(std::make_unique<RunningTwice>(count));
    }
  }
  EXPECT_EQ(loss_of(*model, batch), expected);
  EXPECT_EQ(count, 2);
}

TEST(Parity, NamesWhatTheReferenceLacks) {
  const auto model = test::load_golden_model("llama_default");
  try {
    models::run_parity(*model, {{"labels", at::zeros({1, 2}, at::kLong)}});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "the reference file has no tensor 'input_ids'");
  }
}

TEST(Parity, GradientOfAnUnknownTensorIsRefused) {
  const auto model = test::load_golden_model("llama_default");
  auto reference =
      test::read_trusted_safetensors(test::golden_file("llama_default", "reference.safetensors"));
  reference.emplace_back("grad.model.layers.7.mlp.up_proj.weight", at::zeros({2}));
  try {
    models::run_parity(*model, reference);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "the reference has grad.model.layers.7.mlp.up_proj.weight, but the model has no "
                 "tensor model.layers.7.mlp.up_proj.weight");
  }
}

TEST(Parity, FindsTheTensorThatDiffers) {
  const auto model = test::load_golden_model("llama_default");
  auto reference =
      test::read_trusted_safetensors(test::golden_file("llama_default", "reference.safetensors"));
  for (auto& [name, value] : reference) {
    if (name == "grad.model.norm.weight") value = value * 1.5;
  }
  const models::ParityReport report = models::run_parity(*model, reference);
  EXPECT_EQ(report.gradients->relative_culprit, "model.norm.weight");
  EXPECT_NEAR(report.gradients->worst_relative, 1.0 / 3.0, 1e-4);
}

Json shipped_config(const std::string& name) {
  return Json::parse_file(test::source_file(cat("configs/", name, "/config.json")));
}

TEST(Flops, MatchUpstreamsPublishedNumbers) {
  const auto flops = [](const std::string& name, int64_t batch, int64_t sequence) {
    return models::training_flops(shipped_config(name))(batch, sequence);
  };
  EXPECT_NEAR(flops("llama3.2-1b", 1, 4096) / 3.366825e13, 1, 1e-6);
  EXPECT_NEAR(flops("llama3.1-8b", 32, 4096) / 6.3241e15, 1, 1e-5);
  EXPECT_NEAR(flops("llama3.3-70b", 128, 8192) / 4.7104e17, 1, 1e-5);
  EXPECT_NEAR(flops("qwen2.5-7b", 32, 4096) / 5.8836e15, 1, 1e-5);
  const Json gpt2 = Json::parse(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12})",
      "gpt2");
  EXPECT_NEAR(models::training_flops(gpt2)(1, 1024) / 8.16963e11, 1, 1e-6);
  // Qwen3-30B-A3B, whose eight active experts of 768 count as one MLP of 6144.
  const Json qwen3 = Json::parse(
      R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
          "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
          "intermediate_size": 6144})",
      "qwen3");
  EXPECT_NEAR(models::training_flops(qwen3)(512, 4096) / 4.8248e16, 1, 1e-5);
}

TEST(Flops, CountTheExpertsThatATokenGoesThroughAsUpstreamsTestsDo) {
  const auto flops = [](const char* config, int64_t batch, int64_t sequence) {
    return models::training_flops(Json::parse(config, "config"))(batch, sequence);
  };
  EXPECT_NEAR(models::training_flops(shipped_config("qwen3-30b-a3b"))(512, 4096) / 4.8248e16, 1,
              1e-5);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
                "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 32, "num_experts_per_tok": 2})",
                         1, 2048),
                   169835891785728.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "glm4_moe", "vocab_size": 151552, "hidden_size": 4096,
                "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
                "num_key_value_heads": 8, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
                "n_shared_experts": 1, "n_routed_experts": 128, "first_k_dense_replace": 1})",
                         1, 2048),
                   120277337899008.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "deepseek_v3", "vocab_size": 151936, "hidden_size": 7168,
                "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
                "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 2048,
                "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3})",
                         1, 1024),
                   233225179889664.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "deepseek_v3", "vocab_size": 163840, "hidden_size": 2048,
                "intermediate_size": 11264, "num_hidden_layers": 27, "num_attention_heads": 16,
                "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 1408,
                "num_experts_per_tok": 6, "n_shared_experts": 1, "first_k_dense_replace": 1})",
                         1, 2048),
                   30625801175040.0);
  const char* sizes = R"("vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
                "num_hidden_layers": 78, "num_attention_heads": 64)";
  EXPECT_DOUBLE_EQ(flops(cat(R"({"model_type": "glm_moe_dsa", )", sizes, "}").c_str(), 1, 4096),
                   1161390295351296.0);
  EXPECT_DOUBLE_EQ(flops(cat(R"({"model_type": "glm_moe_dsa", )", sizes, "}").c_str(), 2, 1024),
                   568634879508480.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "deepseek_v32", "vocab_size": 129280,
                "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128})",
                         1, 4096),
                   1094456451268608.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "mistral4", "vocab_size": 131072, "hidden_size": 4096,
                "num_hidden_layers": 36, "num_attention_heads": 32})",
                         1, 4096),
                   164179419856896.0);
  EXPECT_DOUBLE_EQ(flops(R"({"model_type": "gpt_oss", "vocab_size": 50257, "hidden_size": 2048,
                "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16,
                "num_key_value_heads": 16, "num_experts_per_tok": 1, "sliding_window": 128})",
                         1, 1024),
                   7356800827392.0);
}

/// The products of the released sizes, summed apart from the rule.
TEST(Flops, CompressedKeysCountByTheirNumber) {
  const Json config = Json::parse(R"({"model_type": "deepseek_v4", "vocab_size": 129280,
      "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64})",
                                  "config");
  EXPECT_DOUBLE_EQ(models::training_flops(config)(1, 4096), 353791496945664.0);
}

TEST(Flops, HybridsAreCountedByUpstreamsFormulas) {
  const auto flops = [](const std::string& golden) {
    return models::training_flops(Json::parse_file(test::golden_file(golden, "config.json")))(2,
                                                                                              128);
  };
  EXPECT_DOUBLE_EQ(flops("qwen3_5"), 82132992.0);
  EXPECT_DOUBLE_EQ(flops("qwen3_5_moe"), 87441408.0);
  EXPECT_DOUBLE_EQ(flops("nemotron_h"), 59473920.0);
  EXPECT_DOUBLE_EQ(flops("nemotron_h_moe"), 44285952.0);
  EXPECT_DOUBLE_EQ(flops("nemotron_h_latent"), 38780928.0);
}

TEST(Flops, GptKindsAreCountedByUpstreamsFormulas) {
  const auto flops = [](const std::string& golden) {
    return models::training_flops(Json::parse_file(test::golden_file(golden, "config.json")))(2,
                                                                                              24);
  };
  EXPECT_DOUBLE_EQ(flops("gptj"), 12460032.0);
  EXPECT_DOUBLE_EQ(flops("gpt_neo"), 16220160.0);
  // Upstream's formula of these fails on their configurations: its value with their sizes.
  EXPECT_DOUBLE_EQ(flops("opt"), 8478720.0);
  EXPECT_DOUBLE_EQ(flops("falcon"), 7815168.0);
  EXPECT_DOUBLE_EQ(flops("falcon_new"), 7593984.0);
}

/// Upstream has none: a layer counts its mixer alone, attention by the pairs that it sees.
TEST(Flops, AHybridOfEitherInALayerCountsEither) {
  const double attention = 128 * 32 * (32 + 2 * 16 + 32) + (32 + 32) * 128 * 129 / 2.0;
  const double mamba = 128 * (32 * (2 * 64 + 2 * 12 + 8 + 64) + 3.5 * 64 * 12);
  const double experts = 128 * 3 * 32 * (2 * 24 + 40);
  const double head = 128 * 32 * 128;
  const Json config = Json::parse_file(test::golden_file("granitemoehybrid", "config.json"));
  EXPECT_DOUBLE_EQ(models::training_flops(config)(2, 128),
                   6 * 2 * (2 * attention + 2 * mamba + 4 * experts + head));
  const double conv = 128 * 32 * (4 * 32 + 3);
  const double mlp = 128 * 3 * 32 * 40;
  const Json lfm2 = Json::parse_file(test::golden_file("lfm2", "config.json"));
  EXPECT_DOUBLE_EQ(models::training_flops(lfm2)(2, 128),
                   6 * 2 * (attention + 2 * conv + 3 * mlp + head));
}

/// Upstream has none: Llama's parts, with heads 48 wide, and those of Mamba.
TEST(Flops, AHybridOfBothInEachLayerCountsBoth) {
  const double attention = 32 * 48 * (2 * 0.5 + 2) + 128 * 48;
  const double mlp = 3 * 32 * 56;
  const double mamba = 32 * (126 + 48) + 3.5 * 48 * 12;
  const double head = 32 * 128;
  const Json config = Json::parse_file(test::golden_file("falcon_h1", "config.json"));
  EXPECT_DOUBLE_EQ(models::training_flops(config)(2, 128),
                   6 * 2 * 128 * (2 * (attention + mlp + mamba) + head));
}

/// Counted of each layer: projections, pairs of queries and keys, MLP or chosen experts.
TEST(Flops, LayersOfTheirOwnHeadsAreCountedOneByOne) {
  const auto flops = [](const std::string& golden) {
    return models::training_flops(Json::parse_file(test::golden_file(golden, "config.json")))(2,
                                                                                              128);
  };
  const double all = 128 * 129 / 2.0;
  const double window = 7 * 8 / 2.0 + 121 * 7;
  const double head = 128 * 32 * 128;
  const double laguna = 2 * (128 * 32 * (2 * 64 + 2 * 32) + 2 * 64 * all) +
                        2 * (128 * 32 * (2 * 96 + 2 * 32) + 2 * 96 * window) +
                        128 * 32 * 3 * (56 + 3 * (3 * 24 + 20));
  EXPECT_DOUBLE_EQ(flops("laguna"), 6 * 2 * (laguna + head));
  const double mimo = 2 * (128 * 32 * (192 + 2 * 40 + 128) + (192 + 128) * all) +
                      2 * (128 * 32 * (192 + 4 * 40 + 128) + (192 + 128) * window) +
                      128 * 32 * 3 * (56 + 3 * 3 * 24);
  EXPECT_DOUBLE_EQ(flops("mimo_v2_flash"), 6 * 2 * (mimo + head));
  const double gemma4 = 2 * (128 * 32 * (64 + 2 * 32 + 64) + 2 * 64 * window) +
                        2 * (128 * 32 * (128 + 32 + 128) + 2 * 128 * all) + 128 * 32 * 3 * 4 * 56;
  EXPECT_DOUBLE_EQ(flops("gemma4"), 6 * 2 * (gemma4 + head));
  EXPECT_DOUBLE_EQ(flops("gemma4_towers"), flops("gemma4"));
  EXPECT_DOUBLE_EQ(flops("gemma4_moe"), 6 * 2 * (gemma4 + 128 * 32 * 3 * 4 * 3 * 24 + head));
  // Two layers of each kind with keys of their own, one without, whose MLPs are twice as wide.
  const double sharing =
      4 * (128 * 32 * (64 + 64) + 2 * 64 * window) + 2 * (128 * 32 * (128 + 128) + 2 * 128 * all) +
      128 * 32 * (2 * 2 * 32 + 2 * 64) + 128 * 32 * 3 * 9 * 56 + 128 * 32 * 3 * 6 * 12;
  EXPECT_DOUBLE_EQ(flops("gemma4_layer_inputs"), 6 * 2 * (sharing + head));
  const double muse = 4 * 128 * 32 * (3 * 64 + 3 * 56) + 2 * 64 * (all + 3 * window);
  EXPECT_DOUBLE_EQ(flops("muse_glimmer"), 6 * 2 * (muse + head));
}

/// Upstream has none for its configuration's class: Llama's parts.
TEST(Flops, BaichuanIsCountedAsALlama) {
  const Json golden = Json::parse_file(test::golden_file("baichuan", "config.json"));
  const double attention = 32 * 32 * 4 + 32 * 128;
  EXPECT_DOUBLE_EQ(models::training_flops(golden)(2, 128),
                   6 * 2 * 128 * (2 * (attention + 3 * 32 * 56) + 32 * 128));
}

TEST(Model, LogitsDoNotDependOnTheLengthsOfANormedHeadsRows) {
  const auto model = test::load_golden_model("baichuan");
  const tensor::Batch batch = golden_batch("baichuan");
  const at::NoGradGuard no_grad;
  const at::Tensor before = model->logits(model->hidden_states(batch));
  model->named_parameters()["lm_head.weight"].mul_(3.0);
  EXPECT_TRUE(at::allclose(model->logits(model->hidden_states(batch)), before, 1e-5, 1e-6));
}

TEST(Flops, StepCountsEachLayersHeadsAndWindowByUpstreamsFormula) {
  const Json golden = Json::parse_file(test::golden_file("step3p5", "config.json"));
  EXPECT_DOUBLE_EQ(models::training_flops(golden)(2, 128), 128681472.0);
  Json released = Json::parse(R"({"model_type": "step3p5", "vocab_size": 128896,
      "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45,
      "num_attention_heads": 64, "num_attention_groups": 8, "sliding_window": 512,
      "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8}})",
                              "config");
  Json::Array kinds;
  for (int i = 0; i < 45; ++i) {
    kinds.emplace_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
  }
  released["layer_types"] = Json(kinds);
  EXPECT_DOUBLE_EQ(models::training_flops(released)(1, 4096), 299468108857344.0);
}

TEST(Flops, KimiCountsEachLayerByItsKind) {
  const double delta = 32 * (91 + 24) + (192 + 192) + 72 * 3 + 4 * 24 * 8;
  const double latent = 32 * 56 + 32 * 20 + 12 * 64 + 40 * 32 + 64 * 4 * 24;
  const double mlps = 3 * 32 * (56 + 2 * 72);
  const double head = 32 * 128;
  const Json config = Json::parse_file(test::golden_file("kimi_linear", "config.json"));
  EXPECT_DOUBLE_EQ(models::training_flops(config)(2, 128),
                   6 * 2 * 128 * (2 * delta + latent + mlps + head));
}

TEST(Flops, PeaksAreFoundInDeviceNames) {
  EXPECT_EQ(models::peak_tflops("NVIDIA H100 80GB HBM3"), 989);
  EXPECT_EQ(models::peak_tflops("NVIDIA GB200"), 2500);
  EXPECT_EQ(models::peak_tflops("NVIDIA B200"), 2250);
  EXPECT_EQ(models::peak_tflops("NVIDIA L40S"), 362.05);
  EXPECT_EQ(models::peak_tflops("NVIDIA L40"), 181.05);
  EXPECT_EQ(models::peak_tflops("NVIDIA H20"), 148);
  EXPECT_EQ(models::peak_tflops("NVIDIA H200"), 989);
  EXPECT_EQ(models::peak_tflops("cpu"), 0.448);
  EXPECT_EQ(models::peak_tflops("Abacus"), std::nullopt);
}

}  // namespace
}  // namespace automodel
