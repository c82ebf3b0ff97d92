#include "models/decoder/decoder_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

void add_block(nn::ParallelPlan& plan, std::string name, const LayerOptions& layer) {
  if (layer.has_mlp && layer.is_moe) plan.expert_modules.push_back(name + ".mlp.experts");
  if (layer.has_side_experts) plan.expert_modules.push_back(name + ".moe.experts");
  plan.blocks.push_back(std::move(name));
}

void add_next_tokens(nn::ParallelPlan& plan, const NextTokenOptions& options) {
  for (int64_t i = 0; i < options.num_own_layers(); ++i) {
    add_block(plan, cat("mtp.layers.", i), options.own_layer(i));
  }
  constexpr const char* kWhat = "multi-token prediction (num_nextn_predict_layers)";
  constexpr const char* kRemedy = "; model.num_nextn_predict_layers: 0 leaves it out";
  plan.no_tp_reasons.push_back(cat(kWhat, " is not split", kRemedy));
  plan.no_cp_reasons.push_back(cat(kWhat, " is not in this version with cp_size > 1", kRemedy));
  plan.no_pp_reasons.push_back(cat(kWhat, " is not in this version with pp_size > 1", kRemedy));
}

/// The tensor-parallel rules that hold for every family.
void add_tp_rules(nn::ParallelPlan& plan, const DecoderConfig& config) {
  using nn::TpStyle;
  plan.tp_rules = {
      {"model.embed_tokens", TpStyle::kVocabEmbedding},
      {"model.layers.*.attention.qkv_proj", TpStyle::kColwise},
      {"model.layers.*.attention.o_proj", TpStyle::kRowwise},
      {config.is_mlp_gated ? "model.layers.*.mlp.gate_up_proj" : "model.layers.*.mlp.up_proj",
       TpStyle::kColwise},
      {"model.layers.*.mlp.down_proj", TpStyle::kRowwise},
      {plan.final_norm, TpStyle::kSequenceNorm}};
  for (const bool is_mlp : {false, true}) {
    const std::string norm = cat("model.layers.*.", is_mlp ? "mlp" : "attention");
    if (is_mlp ? config.has_mlp_pre_norms() : config.has_pre_norms()) {
      plan.tp_rules.push_back({norm + "_pre_norm", TpStyle::kSequenceNorm});
    }
    if (config.has_post_norms()) {
      plan.tp_rules.push_back({norm + "_post_norm", TpStyle::kSequenceNorm});
    }
  }
  using enum nn::BlockBranch;
  plan.tp_pairs = {{plan.tp_rules[1].pattern, plan.tp_rules[2].pattern, kAttention},
                   {plan.tp_rules[3].pattern, plan.tp_rules[4].pattern, kMlp}};
  const bool is_head_split = !config.is_head_tied && !config.is_classifier();
  if (is_head_split) plan.tp_rules.push_back({"lm_head", TpStyle::kVocabHead});
}

/// What prevents splitting the model, over each kind of ranks.
void add_reasons(nn::ParallelPlan& plan, const DecoderConfig& config) {
  if (config.qk_norm == QkNorm::kWholeProjection) {
    plan.no_tp_reasons.push_back("q_norm and k_norm normalise over all heads together");
  }
  if (config.qk_norm == QkNorm::kLayerOfHeads) {
    plan.no_tp_reasons.push_back("q_norm and k_norm have weights of each head's own");
  }
  if (config.latent_attention) {
    plan.no_tp_reasons.push_back("latent attention has projections that all heads share");
  }
  if (config.compressed_attention) {
    plan.no_tp_reasons.push_back("all heads share one head of keys, which are the values too");
    plan.no_cp_reasons.emplace_back(kNoContextParallelCompression);
  }
  if (config.indexer) plan.no_cp_reasons.emplace_back(kNoContextParallelIndexer);
  if (!config.is_causal) plan.no_cp_reasons.emplace_back(kNoContextParallelBothWays);
  if (config.has_chunks()) plan.no_cp_reasons.emplace_back(kNoContextParallelChunks);
  if (config.shares_choices()) {
    plan.no_pp_reasons.emplace_back(
        "layers that see the keys which another layer's indexer chose (indexer_types) are not in "
        "this version with pp_size > 1");
  }
  if (config.pooler) {
    plan.no_tp_reasons.emplace_back("an encoder's pooler and embeddings are not split");
    plan.no_pp_reasons.emplace_back("encoders are not in this version with pp_size > 1");
  }
  if (config.makes_embeddings) {
    plan.no_tp_reasons.emplace_back("a model that makes embeddings of texts is not split");
    plan.no_cp_reasons.emplace_back("embeddings are made of whole texts");
    plan.no_pp_reasons.emplace_back(
        "models that make embeddings of texts are not in this version with pp_size > 1");
  }
  if (config.layer_inputs) {
    constexpr const char* kWhat = "embeddings of each layer (hidden_size_per_layer_input) are not ";
    plan.no_tp_reasons.push_back(cat(kWhat, "split"));
    plan.no_pp_reasons.push_back(cat(kWhat, "in this version with pp_size > 1"));
  }
  if (config.shares_keys()) {
    plan.no_pp_reasons.emplace_back(
        "layers that see another layer's keys (num_kv_shared_layers) are not in this version with "
        "pp_size > 1");
  }
  const auto has_side_experts = [](const LayerOptions& layer) { return layer.has_side_experts; };
  if (std::ranges::any_of(config.layers, has_side_experts)) {
    plan.no_tp_reasons.push_back("experts beside an MLP are not split");
  }
  if (config.has_xielu) {
    plan.no_tp_reasons.push_back("an MLP's activation (xielu) has factors that all of it share");
  }
  if (config.has_attention_sinks) plan.no_tp_reasons.push_back("attention sinks are not split");
  if (config.has_recurrence()) {
    plan.no_tp_reasons.push_back("layers that carry a state are not split");
    plan.no_cp_reasons.emplace_back(kNoContextParallelState);
  }
  if (config.is_conv1d) {
    plan.no_tp_reasons.push_back("q, k and v are the columns of one tensor (Conv1D)");
  }
}

}  // namespace

nn::ParallelPlan make_parallel_plan(const DecoderConfig& config) {
  nn::ParallelPlan plan;
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    add_block(plan, cat("model.layers.", i), config.layers[static_cast<size_t>(i)]);
  }
  if (config.next_tokens) add_next_tokens(plan, *config.next_tokens);
  plan.embedding = "model.embed_tokens";
  plan.final_norm = config.has_final_norm() ? "model.norm" : config.pooler ? "model.pooler" : "";
  plan.head = config.is_head_tied ? "" : "lm_head";
  add_tp_rules(plan, config);
  add_reasons(plan, config);
  return plan;
}

}  // namespace automodel::models::decoder
