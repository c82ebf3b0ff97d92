#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/added_parameters.h"
#include "models/causal_lm.h"
#include "models/t5/t5_block.h"
#include "models/t5/t5_config.h"
#include "nn/loss_head.h"
#include "nn/product_dtype.h"

namespace automodel::models::t5 {

/// T5ForConditionalGeneration, and mT5's class. Modules: shared (the embedding of both stacks, and
/// the head where that is tied), encoder and decoder with position_bias, blocks.N and norm each,
/// lm_head. A batch's tokens are the decoder's, its source the encoder's.
class T5Model final : public CausalLM, public nn::MultiplyingModule, public nn::GivesLogits {
 public:
  /// `hf_config` is kept for hf_config(); `config` is what was read from it.
  T5Model(std::string architecture, T5Config config, Json hf_config, at::ScalarType dtype);

  at::Tensor hidden_states(const tensor::Batch& batch) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  at::Tensor loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) override;

  const tensor::KeyMap& key_map() const override { return key_map_; }
  void add_parameters(const tensor::KeyMap& parts,
                      const std::vector<ParameterInit>& values) override {
    added_.add(key_map_, parts, values);
  }
  void replace_parts(const tensor::KeyMap& parts) override {
    models::replace_parts(key_map_, parts);
  }
  bool is_kept_from_four_bits(const std::string& parameter) const override {
    return parameter.ends_with(".down_proj.weight");  // wo, whose input grows large
  }
  void adapt_tied_head(nn::LoraOptions options) override;
  std::shared_ptr<const nn::DropoutKey> adapter_dropout_key() const override {
    return adapter_dropout_;
  }
  std::vector<ParameterInit> initial_values() const override;
  nn::ParallelPlan parallel_plan() const override { return t5::parallel_plan(config_); }
  ModelDims dims() const override;
  /// The activations of sources as long as targets.
  nn::ActivationSizes activation_sizes(const nn::ActivationShape& shape) const override;
  std::string architecture() const override { return architecture_; }
  Json hf_config() const override;
  std::vector<std::string> unused_prefixes() const override;
  std::map<std::string, std::string> stand_ins() const override;

  void set_dropout_context(const DropoutContext& context) override { dropout_ = context; }
  void set_embedding_noise(double alpha) override { embedding_noise_ = alpha; }
  void set_attention_core(std::shared_ptr<nn::AttentionCore> core) override;
  void set_loss_head(std::shared_ptr<nn::LossHead> head) override { loss_head_ = std::move(head); }
  const nn::LossHead& loss_head() const override { return *loss_head_; }

  void set_logits_dtype(at::ScalarType dtype) override { logits_dtype_ = dtype; }
  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  /// One of the two stacks' modules, which live below a module of its name.
  struct Stack {
    std::shared_ptr<nn::Embedding> position_bias;
    std::vector<std::shared_ptr<Block>> blocks;
    std::shared_ptr<nn::RmsNorm> norm;
  };

  Stack add_stack(const std::string& name, bool is_decoder, at::ScalarType dtype);
  std::shared_ptr<decoder::ForwardContext> make_context(const at::Tensor& ids) const;
  /// Runs a stack on ids [B, S]; `source` is undefined for the encoder.
  at::Tensor run_stack(const Stack& stack, const std::string& name, const at::Tensor& ids,
                       const std::shared_ptr<const decoder::ForwardContext>& context,
                       const at::Tensor& source,
                       const std::shared_ptr<const decoder::ForwardContext>& of_source) const;
  at::Tensor run(const tensor::Batch& batch) const;
  /// Calls head(x, weight) with the operands of the head's product.
  template <typename Head>
  at::Tensor with_head(const at::Tensor& hidden, const Head& head) const;

  std::string architecture_;
  T5Config config_;
  Json hf_config_;
  at::ScalarType dtype_;
  tensor::KeyMap key_map_;
  AddedParameters added_;
  std::shared_ptr<nn::DropoutKey> adapter_dropout_ = std::make_shared<nn::DropoutKey>();
  DropoutContext dropout_;
  double embedding_noise_ = 0;
  std::shared_ptr<nn::Embedding> shared_;
  Stack encoder_;
  Stack decoder_;
  std::shared_ptr<nn::Linear> lm_head_;  ///< null when the embedding is the head
  std::shared_ptr<nn::LossHead> loss_head_;
  nn::ProductDtype product_dtype_;  ///< of the head
  std::optional<at::ScalarType> logits_dtype_;
};

/// Build the model of a config.json. Throw InputError for a wrong one.
std::shared_ptr<CausalLM> build_t5(const Json& hf_config, at::ScalarType dtype);
std::shared_ptr<CausalLM> build_mt5(const Json& hf_config, at::ScalarType dtype);

}  // namespace automodel::models::t5
