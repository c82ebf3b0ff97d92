#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "nn/activation_sizes.h"
#include "nn/attention_core.h"
#include "nn/lora.h"
#include "nn/loss_head.h"
#include "nn/parallel_plan.h"
#include "nn/unit_hook.h"
#include "tensor/batch.h"
#include "tensor/key_map.h"
#include "tensor/random.h"

namespace automodel::models {

/// Sizes that recipes, MFU, memory plans and checks ask about.
struct ModelDims {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  double attention_dropout = 0;  ///< of attention probabilities in training
};

/// Where dropout masks come from: keyed by these, never by the mesh.
struct DropoutContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_batch = 0;  ///< global index inside the step
};

/// A parameter's name in the module and how it is initialised.
struct ParameterInit {
  std::string parameter;
  tensor::InitRule rule;
};

/// A decoder-only language model. It is built without memory behind its parameters
/// (tensor::placeholder); whoever owns the memory gives it to them before the first forward.
///
/// Every forward (hidden_states, logits, loss, run_stage, loss_of_hidden) goes through unit_hook()
/// as a whole, so that the model itself may be a unit.
class CausalLM : public torch::nn::Module, public nn::HookedModule {
 public:
  nn::UnitHook& unit_hook() override { return hook_; }

  /// Final hidden states [B, S, D] (after the last norm).
  virtual at::Tensor hidden_states(const tensor::Batch& batch) = 0;

  /// Logits [..., V] of hidden states [..., D], scaled and capped as the family does. With a split
  /// head, those of this rank's rows.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;

  /// Sum of cross-entropies over labelled tokens divided by `divisor`; float32 scalar with a graph.
  virtual at::Tensor loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) = 0;

  /// Makes this one stage of a pipeline: of the embedding, blocks, final norm and head of its
  /// parallel_plan() only the named ones stay, and parallel_plan() names them only. key_map() and
  /// dims() stay those of the whole model. Before the parameters have memory. UnsupportedError
  /// where a family has no stages.
  virtual void keep_stage(const std::vector<std::string>& modules);
  /// What this stage makes of the hidden states of the one before (hidden_sizes; undefined for the
  /// first stage, which embeds the batch's tokens): hidden states for the next one, or, of the last
  /// stage, the final ones.
  virtual at::Tensor run_stage(const tensor::Batch& batch, const at::Tensor& input);
  /// loss() of the final hidden states of a batch. Last stage only.
  virtual at::Tensor loss_of_hidden(const tensor::Batch& batch, const at::Tensor& hidden,
                                    double divisor, int64_t ignore_index);
  /// Sizes of the hidden states between stages, [B, S, D] or this rank's part of the sequence.
  virtual std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const;

  /// Hugging Face names and the parameters that hold them.
  virtual const tensor::KeyMap& key_map() const = 0;
  /// Takes the names and initial values of parameters that somebody has added to its linear layers
  /// (adapters): key_map() has them behind the other parts of their layer. Before keep_stage().
  /// UnsupportedError where a family has none.
  virtual void add_parameters(const tensor::KeyMap& parts,
                              const std::vector<ParameterInit>& values);
  /// Takes other parts for parameters whose memory means something else now (weights in 4 bits):
  /// key_map() has `parts` instead of those that these parameters had. Before keep_stage().
  /// UnsupportedError where a family has none.
  virtual void replace_parts(const tensor::KeyMap& parts);
  /// Adds parameters lora_A, lora_B and with DoRA lora_magnitude of a module "lm_head" to a model
  /// whose head is the embedding: an adapter of the head alone. Once, before anybody gives it
  /// memory. UnsupportedError where a family has none.
  virtual void adapt_tied_head(nn::LoraOptions options);
  /// What dropout in adapters draws, as set_dropout_context() says it; where a family has
  /// adapters.
  virtual std::shared_ptr<const nn::DropoutKey> adapter_dropout_key() const { return nullptr; }
  /// Initial values of every parameter, upstream's rules.
  virtual std::vector<ParameterInit> initial_values() const = 0;
  virtual nn::ParallelPlan parallel_plan() const = 0;
  virtual ModelDims dims() const = 0;
  /// Bytes of one micro-batch's intermediate tensors, for memory plans.
  virtual nn::ActivationSizes activation_sizes(const nn::ActivationShape& shape) const = 0;
  /// "LlamaForCausalLM", ...: the key of the strategy registry.
  virtual std::string architecture() const = 0;
  /// The configuration as Hugging Face writes it, for the exported folder.
  virtual Json hf_config() const = 0;
  /// Beginnings of the names of tensors that its checkpoints have and it does not (towers of other
  /// modalities): left alone when loaded, taken over as they are when saved.
  virtual std::vector<std::string> kept_prefixes() const { return {}; }
  /// Tensors that some checkpoints leave out, by the names of those that stand in for them.
  virtual std::map<std::string, std::string> stand_ins() const { return {}; }

  virtual void set_dropout_context(const DropoutContext& context) = 0;
  virtual void set_attention_core(std::shared_ptr<nn::AttentionCore> core) = 0;
  virtual void set_loss_head(std::shared_ptr<nn::LossHead> head) = 0;

 protected:
  /// Sends a whole forward through unit_hook(); forwards do not call each other. What it reads is
  /// captured, not handed in: the unit's backward then ends with the whole graph's, also where
  /// several forwards make one graph.
  nn::TensorList forward_through_hook(const std::function<nn::TensorList()>& forward) const;
  at::Tensor through_hook(const std::function<at::Tensor()>& forward) const;

 private:
  nn::UnitHook hook_;
};

}  // namespace automodel::models
