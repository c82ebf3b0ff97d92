#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/added_parameters.h"
#include "models/causal_lm.h"
#include "models/decoder/block.h"
#include "models/decoder/decoder_activations.h"
#include "models/decoder/embedder.h"
#include "models/decoder/family.h"
#include "models/decoder/layer_inputs.h"
#include "models/decoder/next_tokens.h"
#include "models/masked_denoiser.h"
#include "nn/loss_head.h"
#include "nn/product_dtype.h"
#include "nn/rope_tables.h"
#include "nn/tensor_parallel.h"

namespace automodel::models::decoder {

/// The shared decoder. Modules, in this order and as far as the config has them:
/// model.embed_tokens, model.layer_inputs, model.embed_positions, model.embed_types,
/// model.embed_norm, model.layers.N, model.hc_head, model.norm, model.pooler, lm_head (absent
/// when tied), mtp. In training the loss has a part of tokens further
/// ahead, if the config says so.
class DecoderModel final : public CausalLM,
                           public MaskedDenoiser,
                           public nn::SplitsSequence,
                           public nn::MultiplyingModule,
                           public nn::GivesLogits {
 public:
  /// `hf_config` is kept for hf_config(); `config` is what the family read from it.
  DecoderModel(const Family& family, DecoderConfig config, Json hf_config, at::ScalarType dtype);

  at::Tensor hidden_states(const tensor::Batch& batch) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  at::Tensor loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) override;
  at::Tensor losses_of_runs(const tensor::Batch& batch, const std::vector<ScoredRun>& runs,
                            double divisor, int64_t ignore_index) override;

  void keep_stage(const std::vector<std::string>& modules) override;
  at::Tensor run_stage(const tensor::Batch& batch, const at::Tensor& input) override;
  at::Tensor loss_of_hidden(const tensor::Batch& batch, const at::Tensor& hidden, double divisor,
                            int64_t ignore_index) override;
  std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const override;

  const tensor::KeyMap& key_map() const override { return key_map_; }
  void replace_parts(const tensor::KeyMap& parts) override;
  void add_parameters(const tensor::KeyMap& parts,
                      const std::vector<ParameterInit>& values) override;
  void adapt_tied_head(nn::LoraOptions options) override;
  std::shared_ptr<const nn::DropoutKey> adapter_dropout_key() const override {
    return adapter_dropout_;
  }
  std::vector<ParameterInit> initial_values() const override;
  nn::ParallelPlan parallel_plan() const override;
  bool is_head_tied() const override { return family_.parallel_plan(config_).head.empty(); }
  ModelDims dims() const override;
  nn::ActivationSizes activation_sizes(const nn::ActivationShape& shape) const override {
    return decoder::activation_sizes(config_, shape);
  }
  std::string architecture() const override {
    if (config_.makes_embeddings) return headless_class(family_);
    return std::string(config_.is_classifier() ? family_.classifier : family_.architecture);
  }
  Json hf_config() const override;
  std::vector<std::string> kept_prefixes() const override;
  std::vector<std::string> drawn_if_absent() const override;
  /// The head of the language model that a classifier is made of.
  std::vector<std::string> unused_prefixes() const override;
  std::vector<std::string> class_head() const override;
  /// MLPs under the name of layers of experts, where a family has two and transformers writes one.
  std::map<std::string, std::string> stand_ins() const override;

  void set_dropout_context(const DropoutContext& context) override { dropout_ = context; }
  void set_embedding_noise(double alpha) override { embedding_noise_ = alpha; }
  void set_fake_quantizer(std::shared_ptr<nn::FakeQuantizer> quantizer) override;
  nn::FakeQuantizer* fake_quantizer() override { return quantizer_.get(); }
  void set_attention_core(std::shared_ptr<nn::AttentionCore> core) override;
  void set_loss_head(std::shared_ptr<nn::LossHead> head) override { loss_head_ = std::move(head); }
  const nn::LossHead& loss_head() const override { return *loss_head_; }
  void set_logits_dtype(at::ScalarType dtype) override { logits_dtype_ = dtype; }
  nn::ProductDtype& product_dtype() override { return product_dtype_; }

  void keep_sequence_part(int part, int num_parts, std::function<void(int64_t)> on_length) override;

  const DecoderConfig& config() const { return config_; }

 private:
  /// Hidden states [N, D] with labels [N], and the weight of their loss.
  struct ScoredRows {
    at::Tensor hidden;
    at::Tensor labels;
    at::Tensor scored = {};  ///< tensor::Batch::scored
    double weight = 1;
  };

  /// Whether the embedding is the head of this model, or of this stage.
  bool multiplies_by_embedding() const;
  std::shared_ptr<const ForwardContext> make_context(const tensor::Batch& batch);
  at::Tensor embed(const at::Tensor& token_ids, const ForwardContext& context) const;
  at::Tensor place(at::Tensor embedded, const tensor::Batch& batch,
                   const ForwardContext& context) const;
  at::Tensor positions(const tensor::Batch& batch) const;
  at::Tensor pool(const at::Tensor& x, const ForwardContext& context) const;
  /// All layers and the norm behind them; `layer_inputs` has one for each layer, or none.
  at::Tensor transform(at::Tensor x, const std::vector<at::Tensor>& layer_inputs,
                       const std::shared_ptr<const ForwardContext>& context) const;
  std::vector<ScoredRows> rows_of_all_depths(const tensor::Batch& batch, int64_t ignore_index);
  /// run_stage() and loss_of_hidden() without the hook, as parts of a forward.
  at::Tensor run_blocks(const tensor::Batch& batch, const at::Tensor& input);
  at::Tensor cross_entropy(std::vector<ScoredRows> parts, double divisor,
                           int64_t ignore_index) const;
  /// The parts' losses without their weights, [parts].
  at::Tensor cross_entropies(std::vector<ScoredRows> parts, double divisor,
                             int64_t ignore_index) const;
  bool rounds_head() const;
  /// Calls `body` with the head's input and weight, through the head's unit if it has its own.
  template <typename Body>
  at::Tensor with_head(const at::Tensor& hidden, const Body& body) const;

  Family family_;
  DecoderConfig config_;
  Json hf_config_;
  at::ScalarType dtype_;
  tensor::KeyMap key_map_;
  AddedParameters added_;
  std::shared_ptr<nn::DropoutKey> adapter_dropout_ = std::make_shared<nn::DropoutKey>();
  DropoutContext dropout_;
  double embedding_noise_ = 0;
  std::optional<std::set<std::string>> kept_;  // modules of this stage; absent: the whole model
  int64_t sequence_part_ = 0;
  int64_t num_sequence_parts_ = 1;
  std::function<void(int64_t)> on_length_;
  std::vector<nn::RopeTables> ropes_;
  std::shared_ptr<nn::Embedding> embed_tokens_;
  std::shared_ptr<LayerInputs> layer_inputs_;  // null without
  std::shared_ptr<nn::Embedding> embed_positions_;
  std::shared_ptr<nn::Embedding> embed_types_;  // null without types of tokens
  std::shared_ptr<nn::Norm> embed_norm_;        // null unless a norm is behind the embeddings' sum
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<nn::HyperHead> hc_head_;  // null without streams
  std::shared_ptr<nn::Norm> norm_;
  std::shared_ptr<nn::Linear> pooler_;     // in an encoder
  std::shared_ptr<nn::Norm> pooler_norm_;  // behind it
  std::shared_ptr<nn::Linear> lm_head_;
  std::shared_ptr<NextTokenModule> mtp_;     // null without layers that predict further tokens
  std::shared_ptr<nn::TiedHead> tied_head_;  // null unless a tied head has adapters
  std::shared_ptr<nn::LossHead> loss_head_;
  nn::ProductDtype product_dtype_;                // of the head
  std::shared_ptr<nn::FakeQuantizer> quantizer_;  // null: none
  std::optional<at::ScalarType> logits_dtype_;
};

}  // namespace automodel::models::decoder
