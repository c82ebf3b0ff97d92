#include "distributed/tensor/tp_plan.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "distributed/tensor/tp_layers.h"

namespace automodel::distributed {

namespace {

constexpr const char* kSuperPlan = "llama_nemotron_super_tp_plan";
constexpr const char* kStyles =
    "colwise, rowwise, colwise_rep, rowwise_rep, sequence_parallel, replicated_with_grad_allreduce";

/// Styles of `_tp_plan` for experts or for kernels of transformers, which are ignored here.
bool is_foreign_style(std::string_view style) {
  return style.starts_with("ep_") || style == "local_colwise" || style == "local_rowwise" ||
         style == "gather";
}

bool is_head(std::string_view name) {
  return name == "lm_head" || name == "language_model.lm_head";
}

/// "model.layers.3.mlp" to "model.layers.*.mlp".
std::string generalised(const std::string& name) {
  std::vector<std::string> parts = split(name, '.');
  for (std::string& part : parts) {
    if (parse_int(part)) part = "*";
  }
  return join(parts, ".");
}

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind('.'));
}

std::string_view style_name_of(nn::TpStyle style) {
  switch (style) {
    case nn::TpStyle::kColwise:
      return "colwise";
    case nn::TpStyle::kRowwise:
      return "rowwise";
    case nn::TpStyle::kVocabEmbedding:
      return "rowwise_rep";
    case nn::TpStyle::kVocabHead:
      return "colwise_rep";
    case nn::TpStyle::kSequenceNorm:
      return "sequence_parallel";
  }
  AM_CHECK(false);
}

TpShardPlan translated(const TpStyleNames& names) {
  TpShardPlan plan;
  for (const auto& [pattern, name] : names) {
    if (is_foreign_style(name)) continue;
    if (const auto style = translate_to_torch_parallel_style(name)) plan[pattern] = *style;
  }
  return plan;
}

/// Entries for the norms that compute on a rank's part of the sequence.
TpStyleNames sequence_norms(const TpModel& model) {
  TpStyleNames names;
  for (const nn::TpRule& rule : model.plan.tp_rules) {
    if (rule.style != nn::TpStyle::kSequenceNorm) continue;
    for (const tensor::ParameterPart& part : model.keys) {
      if (matches_module(rule.pattern, module_of(part.parameter))) {
        names[generalised(module_of(part.name))] = style_name_of(rule.style);
      }
    }
  }
  return names;
}

/// Sets the layouts of a plan whose hidden states are split by positions between the layers.
void split_sequence(TpShardPlan& plan) {
  for (auto& [pattern, style] : plan) {
    if (style.kind == StyleKind::kColwise) style.input = StyleLayout::kShardSequence;
    if (style.kind == StyleKind::kRowwise) style.output = StyleLayout::kShardSequence;
  }
}

}  // namespace

std::optional<ParallelStyle> translate_to_torch_parallel_style(std::string_view style) {
  using enum StyleLayout;
  if (style == "colwise") return ParallelStyle{StyleKind::kColwise, kReplicate, kShardLast};
  if (style == "rowwise") return ParallelStyle{StyleKind::kRowwise, kShardLast, kReplicate};
  if (style == "colwise_rep") return ParallelStyle{StyleKind::kColwise, kReplicate, kReplicate};
  if (style == "rowwise_rep") return ParallelStyle{StyleKind::kRowwise, kReplicate, kReplicate};
  if (style == "sequence_parallel") {
    return ParallelStyle{StyleKind::kSequence, kShardSequence, kShardSequence};
  }
  if (style == "replicated_with_grad_allreduce") return std::nullopt;
  throw UserError(cat("Unknown parallel style: ", style));
}

void validate_tp_mesh(const TpModel& model, int64_t tp_size) {
  if (tp_size == 1) return;
  const std::pair<const char*, int64_t> counts[] = {{"num_key_value_heads", model.num_kv_heads},
                                                    {"num_attention_heads", model.num_heads}};
  for (const auto& [name, count] : counts) {
    if (count % tp_size == 0) continue;
    throw UserError(cat(name, " (", count, ") must be divisible by TP size (", tp_size, ")"));
  }
}

StatedTpPlans stated_tp_plans(const TpModel& model) {
  StatedTpPlans stated;
  if (!model.plan.no_tp_reasons.empty()) return stated;
  const std::string prefix = "model.";
  for (const nn::TpRule& rule : model.plan.tp_rules) {
    const bool is_stated =
        rule.style == nn::TpStyle::kColwise || rule.style == nn::TpStyle::kRowwise;
    if (!is_stated) continue;
    for (const tensor::ParameterPart& part : model.keys) {
      const bool is_layer = matches_module(rule.pattern, module_of(part.parameter));
      if (!is_layer || is_adapter(part.parameter)) continue;
      const std::string name = generalised(module_of(part.name));
      const bool is_inner = name.starts_with(prefix);
      (is_inner ? stated.of_inner : stated.of_class)[is_inner ? name.substr(prefix.size()) : name] =
          style_name_of(rule.style);
    }
  }
  if (!stated.of_inner.empty()) stated.of_class["lm_head"] = "colwise_rep";
  stated.of_instance = stated.of_class;
  for (const auto& [name, style] : stated.of_inner) stated.of_instance[prefix + name] = style;
  return stated;
}

TpShardPlan get_hf_tp_shard_plan(const TpModel& model) {
  return get_hf_tp_shard_plan(stated_tp_plans(model), model.architecture);
}

TpShardPlan get_hf_tp_shard_plan(const StatedTpPlans& stated, const std::string& architecture) {
  TpStyleNames names = stated.of_class;
  for (const auto& [name, style] : stated.of_instance) names[name] = style;
  for (const auto& [name, style] : stated.of_inner) names[stated.inner_prefix + "." + name] = style;
  if (names.empty()) {
    throw UserError(
        cat("Hugging Face tp plan is not supported for ", architecture, ": it states none"));
  }
  names.try_emplace(stated.inner_prefix + ".embed_tokens", "rowwise_rep");
  TpShardPlan plan = translated(names);
  for (auto& [name, style] : plan) {
    if (is_head(name) && style == translate_to_torch_parallel_style("colwise_rep")) {
      style.output = StyleLayout::kShardLast;
    }
  }
  return plan;
}

TpShardPlan base_tp_plan(bool sequence_parallel) {
  TpStyleNames names = {{"model.embed_tokens", "rowwise_rep"},
                        {"model.layers.*.self_attn.o_proj", "rowwise"},
                        {"model.layers.*.mlp.down_proj", "rowwise"},
                        {"lm_head", "colwise_rep"}};
  for (const char* name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.qkv_proj",
        "mlp.gate_up_proj", "mlp.gate_proj", "mlp.up_proj"}) {
    names[cat("model.layers.*.", name)] = "colwise";
  }
  if (sequence_parallel) {
    for (const char* name : {"model.norm", "model.layers.*.input_layernorm",
                             "model.layers.*.post_attention_layernorm"}) {
      names[name] = "sequence_parallel";
    }
  }
  TpShardPlan plan = translated(names);
  if (sequence_parallel) split_sequence(plan);
  return plan;
}

TpShardPlan get_parallel_plan(const TpModel& model, bool sequence_parallel,
                              const TpPlanChoice& tp_shard_plan) {
  if (const auto* mapping = std::get_if<TpStyleNames>(&tp_shard_plan)) return translated(*mapping);
  if (const auto* name = std::get_if<std::string>(&tp_shard_plan)) {
    if (*name == kSuperPlan) return base_tp_plan(sequence_parallel);
    throw UserError(cat("there is no tensor-parallel plan '", *name,
                        "': give a mapping of modules ", "to styles (", kStyles, "), the name ",
                        kSuperPlan,
                        ", or nothing for the model's own plan; plans in Python cannot be "
                        "imported here"));
  }
  TpShardPlan plan;
  try {
    plan = get_hf_tp_shard_plan(model);
  } catch (const UserError&) {  // as upstream: for a model that states none
    return base_tp_plan(sequence_parallel);
  }
  if (!sequence_parallel) return plan;
  for (const auto& [name, style] : translated(sequence_norms(model))) plan[name] = style;
  split_sequence(plan);
  return plan;
}

bool matches_module(std::string_view pattern, std::string_view name) {
  while (true) {
    const std::string_view want = pattern.substr(0, pattern.find('.'));
    const std::string_view have = name.substr(0, name.find('.'));
    if (want != "*" && want != have) return false;
    const bool pattern_ends = want.size() == pattern.size();
    const bool name_ends = have.size() == name.size();
    if (pattern_ends || name_ends) return pattern_ends && name_ends;
    pattern.remove_prefix(want.size() + 1);
    name.remove_prefix(have.size() + 1);
  }
}

}  // namespace automodel::distributed
