#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// How a layer's input or output is split over the ranks: torch's Replicate(), Shard(1), Shard(-1).
enum class StyleLayout { kReplicate, kShardSequence, kShardLast };

/// torch.distributed.tensor.parallel's ColwiseParallel, RowwiseParallel, SequenceParallel.
enum class StyleKind { kColwise, kRowwise, kSequence };

struct ParallelStyle {
  StyleKind kind = StyleKind::kColwise;
  StyleLayout input = StyleLayout::kReplicate;
  StyleLayout output = StyleLayout::kShardLast;

  bool operator==(const ParallelStyle&) const = default;
};

/// Hugging Face module (or a pattern, * for one component) -> style.
using TpShardPlan = std::map<std::string, ParallelStyle>;

/// Module (or pattern) -> style, in the words of `_tp_plan` and of recipes.
using TpStyleNames = std::map<std::string, std::string>;

/// `distributed.tp_plan`: nothing, a mapping, or a plan's name.
using TpPlanChoice = std::variant<std::monostate, TpStyleNames, std::string>;

/// The facts about a model that tensor parallelism needs.
struct TpModel {
  std::string architecture;  ///< "LlamaForCausalLM"
  int64_t num_heads = 0;     ///< 0: unknown
  int64_t num_kv_heads = 0;
  int64_t vocab_size = 0;
  nn::ParallelPlan plan;
  tensor::KeyMap keys;  ///< of the unsplit model
};

/// The styles that a model states in the form of transformers' classes: `_tp_plan` of the class
/// (the head), of the instance (the class's, and the inner model's under full names) and of the
/// inner model (names without prefix).
struct StatedTpPlans {
  TpStyleNames of_class;
  TpStyleNames of_instance;
  TpStyleNames of_inner;
  std::string inner_prefix = "model";
};

/// Translates "colwise", "rowwise", "colwise_rep" (output gathered), "rowwise_rep" (input whole on
/// every rank) and "sequence_parallel"; nullopt for "replicated_with_grad_allreduce", which splits
/// nothing. Throws UserError "Unknown parallel style: X" for other words.
std::optional<ParallelStyle> translate_to_torch_parallel_style(std::string_view style);

/// Throws UserError "num_key_value_heads (x) must be divisible by TP size (y)", or the same text
/// for num_attention_heads, checked in this order. Any model passes with one rank; 0 heads pass
/// with any size.
void validate_tp_mesh(const TpModel& model, int64_t tp_size);

/// A model's own rules in the form of transformers' `_tp_plan`; empty for a model that cannot be
/// split.
StatedTpPlans stated_tp_plans(const TpModel& model);

/// The plan that a model states: class, then instance, then inner model; later entries replace
/// earlier ones. Adds the embedding as rowwise_rep; a head whose output would be gathered keeps its
/// parts. Throws UserError "Hugging Face tp plan is not supported for X: ..." when the model states
/// nothing, as GPT-2 and OLMo 2.
TpShardPlan get_hf_tp_shard_plan(const TpModel& model);
/// The plan of the statements `stated`; errors name `architecture`.
TpShardPlan get_hf_tp_shard_plan(const StatedTpPlans& stated,
                                 const std::string& architecture = "this model");

/// The plan of a recipe: its mapping, a named plan, the model's own plan, else the llama-style base
/// plan. Throws UserError for an unknown name.
TpShardPlan get_parallel_plan(const TpModel& model, bool sequence_parallel,
                              const TpPlanChoice& tp_shard_plan = {});

/// The plan for embedding, projections and head of a llama-style model.
TpShardPlan base_tp_plan(bool sequence_parallel);

/// Whether a pattern's components match those of a name.
bool matches_module(std::string_view pattern, std::string_view name);

}  // namespace automodel::distributed
