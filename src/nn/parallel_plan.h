#pragma once

#include <string>
#include <vector>

namespace automodel::nn {

/// How a layer is split over tensor-parallel ranks, by torch's parallel styles.
enum class TpStyle {
  kColwise,         ///< rows of the weight (output features)
  kRowwise,         ///< columns of the weight (input features), the output is summed
  kVocabEmbedding,  ///< rows of an embedding
  kVocabHead,       ///< rows of the output head; the loss is computed on split logits
  kSequenceNorm,    ///< a norm computed on this rank's part of the sequence
};

struct TpRule {
  std::string pattern;  ///< fqn with * for one component: "model.layers.*.mlp.down_proj"
  TpStyle style;
};

enum class BlockBranch { kAttention, kMlp };

/// Two linear layers of a branch, as patterns; the first one's outputs become the second one's
/// inputs.
struct TpPair {
  std::string first;
  std::string second;
  BlockBranch branch;
};

/// The facts that a model states so that a strategy need not know the model.
struct ParallelPlan {
  std::vector<std::string> blocks;          ///< fqns of the layers, in forward order
  std::string embedding;                    ///< fqn of the input embedding
  std::string final_norm;                   ///< fqn
  std::string head;                         ///< fqn; "" when tied to the embedding
  std::vector<std::string> expert_modules;  ///< fqns of grouped experts
  std::vector<TpRule> tp_rules;
  std::vector<TpPair> tp_pairs;
  std::vector<std::string> no_tp_reasons;  ///< reasons to refuse tensor parallelism
  std::vector<std::string> no_sp_reasons;  ///< reasons to refuse it with sequence parallelism
  std::vector<std::string> no_cp_reasons;  ///< reasons to refuse context parallelism
  std::vector<std::string> no_pp_reasons;  ///< reasons to refuse pipelines
};

}  // namespace automodel::nn
