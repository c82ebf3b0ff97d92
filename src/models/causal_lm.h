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
#include "nn/fake_quantizer.h"
#include "nn/lora.h"
#include "nn/loss_head.h"
#include "nn/parallel_plan.h"
#include "nn/unit_hook.h"
#include "tensor/batch.h"
#include "tensor/key_map.h"
#include "tensor/random.h"

namespace automodel::models {

/// Sizes that recipes, MFU, memory plans and checks need.
struct ModelDims {
  int64_t vocab_size = 0;
  int64_t num_labels = 0;  ///< of a model that classifies sequences; 0: a language model
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;     ///< heads of a layer; where layers differ, what divides all numbers
  int64_t num_kv_heads = 0;  ///< heads of keys and values of a layer, likewise
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
};

/// The keys of dropout masks and of noise, which never depend on the mesh.
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

/// Throws InputError where some of the ids, if they lie in the host's memory, are outside
/// [0, vocab_size).
void check_token_ids(const at::Tensor& ids, int64_t vocab_size);

/// The tokens that a loss of labels on the CPU computes logits of: those that count; undefined
/// where that is every token or none, or labels lie on a device, which would have to be waited for:
/// tensor::Batch::scored has them there.
at::Tensor scored_tokens(const at::Tensor& labels, int64_t ignore_index);

/// A language model that writes its batch's tokens, be it a decoder alone or one that attends to
/// what an encoder makes of the batch's source. Its parameters are built without memory
/// (tensor::placeholder); the memory's owner allocates it before the first forward.
///
/// Every forward (hidden_states, logits, loss, run_stage, loss_of_hidden) goes through unit_hook()
/// as a whole, so that the model itself may be a unit.
class CausalLM : public torch::nn::Module, public nn::HookedModule {
 public:
  nn::UnitHook& unit_hook() override { return hook_; }

  /// Final hidden states [B, S, D] (after the last norm).
  virtual at::Tensor hidden_states(const tensor::Batch& batch) = 0;

  /// Logits [..., V] of hidden states [..., D], scaled and capped as the family does. With a split
  /// head, V is this rank's rows.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;

  /// Sum of cross-entropies over labelled tokens divided by `divisor`; float32 scalar with a graph.
  /// In training a model that predicts further tokens adds their part.
  virtual at::Tensor loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) = 0;

  /// Makes this one stage of a pipeline. Of the embedding, blocks, final norm and head in
  /// parallel_plan() only the named ones are kept, and parallel_plan() then lists only these; with
  /// the final norm also an embedding that is the head, which the first stage then has too.
  /// key_map() and dims() remain those of the whole model. Call it before memory is allocated.
  /// Throws UnsupportedError for a family without stages.
  virtual void keep_stage(const std::vector<std::string>& modules);
  /// Runs this stage on the previous stage's hidden states (hidden_sizes; undefined for the first
  /// stage, which embeds the batch's tokens). Returns hidden states for the next stage, or the
  /// final ones.
  virtual at::Tensor run_stage(const tensor::Batch& batch, const at::Tensor& input);
  /// loss() from a batch's final hidden states. Last stage only.
  virtual at::Tensor loss_of_hidden(const tensor::Batch& batch, const at::Tensor& hidden,
                                    double divisor, int64_t ignore_index);
  /// Sizes of the hidden states between stages: [B, S, D], or this rank's part of the sequence.
  virtual std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const;

  /// Hugging Face names and the parameters that hold them.
  virtual const tensor::KeyMap& key_map() const = 0;
  /// Adds the names and initial values of parameters that were added to linear layers (adapters);
  /// key_map() has them after the other parts of their layer. Call it before keep_stage(). Throws
  /// UnsupportedError for a family without adapters.
  virtual void add_parameters(const tensor::KeyMap& parts,
                              const std::vector<ParameterInit>& values);
  /// Replaces the key map's parts of parameters whose memory now has another meaning (weights in 4
  /// bits) by `parts`. Call it before keep_stage(). Throws UnsupportedError for a family that
  /// cannot.
  virtual void replace_parts(const tensor::KeyMap& parts);
  /// Whether transformers leaves the layer with this parameter as it is when it loads the others in
  /// 4 bits.
  virtual bool is_kept_from_four_bits(const std::string&) const { return false; }
  /// Adds parameters lora_A, lora_B and with DoRA lora_magnitude in a module "lm_head" to a model
  /// whose head is the embedding: adapters of the head alone. Call it once, before memory is
  /// allocated. Throws UnsupportedError for a family that cannot.
  virtual void adapt_tied_head(nn::LoraOptions options);
  /// The key of adapters' dropout, which set_dropout_context() sets; null for a family without
  /// adapters.
  virtual std::shared_ptr<const nn::DropoutKey> adapter_dropout_key() const { return nullptr; }
  /// Initial values of every parameter, by upstream's rules.
  virtual std::vector<ParameterInit> initial_values() const = 0;
  virtual nn::ParallelPlan parallel_plan() const = 0;
  /// Whether the head is the embedding's matrix, in the whole model also where this is a stage.
  virtual bool is_head_tied() const { return parallel_plan().head.empty(); }
  virtual ModelDims dims() const = 0;
  /// Bytes of one micro-batch's intermediate tensors, for memory plans.
  virtual nn::ActivationSizes activation_sizes(const nn::ActivationShape& shape) const = 0;
  /// "LlamaForCausalLM", ...: the key of the strategy registry.
  virtual std::string architecture() const = 0;
  /// The configuration as Hugging Face writes it, for the exported folder.
  virtual Json hf_config() const = 0;
  /// Name prefixes of tensors that its checkpoints have and the model lacks (towers of other
  /// modalities): skipped when loading, copied unchanged when saving.
  virtual std::vector<std::string> kept_prefixes() const { return {}; }
  /// Name prefixes of tensors that its checkpoints may have and the model has no use for: skipped
  /// when loading and not saved.
  virtual std::vector<std::string> unused_prefixes() const { return {}; }
  /// The modules that are the head of a model that classifies sequences, in transformers and its
  /// files ("score"): its tensors' names begin with one of them and a dot. None of language models.
  virtual std::vector<std::string> class_head() const { return {}; }
  /// The modules, named as class_head()'s, that are trained whole beside adapters and saved with
  /// them: a classifier's head, and those of set_saved_modules().
  std::vector<std::string> saved_modules() const;
  void set_saved_modules(std::vector<std::string> modules) { saved_modules_ = std::move(modules); }
  /// Name prefixes of trained tensors that are drawn where a folder has none of them.
  virtual std::vector<std::string> drawn_if_absent() const { return {}; }
  /// Tensors that some checkpoints lack, mapped to those that are read instead.
  virtual std::map<std::string, std::string> stand_ins() const { return {}; }

  virtual void set_dropout_context(const DropoutContext& context) = 0;
  /// In training, adds uniform noise of up to `alpha` / sqrt(S D) to the embedding's result
  /// (NEFTune), keyed as dropout is. Throws UnsupportedError for a family that cannot.
  virtual void set_embedding_noise(double alpha);
  /// Makes linear layers and the head round their operands while the quantizer is on, as far as it
  /// fits them (quantization-aware training). Only for an unsplit model without adapters. Throws
  /// UnsupportedError for a family that cannot.
  virtual void set_fake_quantizer(std::shared_ptr<nn::FakeQuantizer> quantizer);
  /// The one that was set, whose begin_step() says which step trains; null: none.
  virtual nn::FakeQuantizer* fake_quantizer() { return nullptr; }
  virtual void set_attention_core(std::shared_ptr<nn::AttentionCore> core) = 0;
  virtual void set_loss_head(std::shared_ptr<nn::LossHead> head) = 0;
  virtual const nn::LossHead& loss_head() const = 0;

 protected:
  /// Runs a whole forward through unit_hook(); forwards must not call each other. Inputs are
  /// captured, not passed: the unit's backward then ends with the whole graph's, even if several
  /// forwards form one graph.
  nn::TensorList forward_through_hook(const std::function<nn::TensorList()>& forward) const;
  at::Tensor through_hook(const std::function<at::Tensor()>& forward) const;

 private:
  nn::UnitHook hook_;
  std::vector<std::string> saved_modules_;
};

}  // namespace automodel::models
