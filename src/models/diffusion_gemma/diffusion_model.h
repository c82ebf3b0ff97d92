#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/added_parameters.h"
#include "models/block_denoiser.h"
#include "models/causal_lm.h"
#include "models/diffusion_gemma/canvas.h"
#include "models/diffusion_gemma/layer.h"
#include "nn/loss_head.h"
#include "nn/product_dtype.h"
#include "nn/rope_tables.h"

namespace automodel::models::diffusion_gemma {

/// The result of reading a text.
struct EncodedText {
  at::Tensor hidden;             ///< [B, S, D], after the last norm
  std::vector<KeysValues> keys;  ///< of each layer
};

/// DiffusionGemmaForBlockDiffusion without its vision tower: one stack of layers that reads text
/// causally and denoises a canvas after it in both directions. Modules: model.embed_tokens (also
/// the head), model.layers.N, model.norm, model.self_conditioning. As a CausalLM it reads text.
class DiffusionGemmaModel final : public CausalLM,
                                  public BlockDenoiser,
                                  public nn::MultiplyingModule,
                                  public nn::GivesLogits {
 public:
  /// `hf_config` is kept for hf_config(); `config` is what was read from it.
  DiffusionGemmaModel(DiffusionGemmaConfig config, Json hf_config, at::ScalarType dtype);

  /// encode, decode and expected_canvas are parts of a forward and do not go through the model's
  /// own hook.
  EncodedText encode(const at::Tensor& input_ids, const at::Tensor& padding_mask);
  /// Final hidden states [B, R, D] of the batch's canvas. `expected` [B, R, D]: expected_canvas()
  /// of an earlier pass; undefined: none.
  at::Tensor decode(const BlockDiffusionBatch& batch, const EncodedText& text,
                    const at::Tensor& expected);
  /// The expected embeddings, by a pass's hidden states [B, R, D]; zero in rows that are not
  /// conditioned.
  at::Tensor expected_canvas(const at::Tensor& hidden, const at::Tensor& is_conditioned) const;

  BlockDiffusionLoss block_diffusion_loss(const BlockDiffusionBatch& batch,
                                          const BlockDiffusionScale& scale,
                                          int64_t ignore_index) override;
  int64_t canvas_length() const override { return config_.canvas_length; }
  bool has_self_conditioning() const override { return config_.has_self_conditioning; }

  at::Tensor hidden_states(const tensor::Batch& batch) override;
  /// Logits in float32, capped.
  at::Tensor logits(const at::Tensor& hidden) override;
  at::Tensor loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) override;

  const tensor::KeyMap& key_map() const override { return key_map_; }
  void add_parameters(const tensor::KeyMap& parts,
                      const std::vector<ParameterInit>& values) override {
    added_.add(key_map_, parts, values);
  }
  std::shared_ptr<const nn::DropoutKey> adapter_dropout_key() const override {
    return adapter_dropout_;
  }
  std::vector<ParameterInit> initial_values() const override;
  nn::ParallelPlan parallel_plan() const override {
    return diffusion_gemma::parallel_plan(config_.text);
  }
  ModelDims dims() const override;
  nn::ActivationSizes activation_sizes(const nn::ActivationShape& shape) const override;
  std::string architecture() const override { return "DiffusionGemmaForBlockDiffusion"; }
  Json hf_config() const override;
  std::vector<std::string> kept_prefixes() const override;
  std::map<std::string, std::string> stand_ins() const override;

  /// Keys the dropout of adapters; the model has none of its own.
  void set_dropout_context(const DropoutContext& context) override { dropout_ = context; }
  void set_attention_core(std::shared_ptr<nn::AttentionCore> core) override;
  void set_loss_head(std::shared_ptr<nn::LossHead> head) override;
  const nn::LossHead& loss_head() const override;

  void set_logits_dtype(at::ScalarType dtype) override { logits_dtype_ = dtype; }
  nn::ProductDtype& product_dtype() override { return product_dtype_; }

  const DiffusionGemmaConfig& config() const { return config_; }

 private:
  /// The passes of a forward, whose adapters drop different numbers.
  enum class Pass { kText, kFirstCanvas, kCanvas };

  std::shared_ptr<PassContext> make_context(int64_t num_positions, at::Device device, Pass pass);
  at::Tensor embed(const at::Tensor& ids) const;
  /// The embedding's factor, rounded to the embedding's dtype.
  double embedding_scale(at::ScalarType dtype) const;
  at::Tensor loss_of(const at::Tensor& hidden, const at::Tensor& labels, double divisor,
                     int64_t ignore_index) const;
  BlockDiffusionLoss losses_of(const BlockDiffusionBatch& batch, const BlockDiffusionScale& scale,
                               int64_t ignore_index);
  /// The input and the weight of the head's product.
  at::Tensor head_input(const at::Tensor& hidden) const;
  at::Tensor head() const { return product_dtype_.of(embed_tokens_->weight()); }

  DiffusionGemmaConfig config_;
  Json hf_config_;
  at::ScalarType dtype_;
  tensor::KeyMap key_map_;
  AddedParameters added_;
  std::shared_ptr<nn::DropoutKey> adapter_dropout_ = std::make_shared<nn::DropoutKey>();
  DropoutContext dropout_;
  std::vector<nn::RopeTables> ropes_;
  std::shared_ptr<nn::Embedding> embed_tokens_;
  std::vector<std::shared_ptr<DiffusionLayer>> layers_;
  std::shared_ptr<nn::RmsNorm> norm_;
  std::shared_ptr<SelfConditioning> self_conditioning_;
  nn::ProductDtype product_dtype_;  // of the head
  std::optional<at::ScalarType> logits_dtype_;
};

/// Builds the model of a config.json. Throws InputError for a wrong one.
std::shared_ptr<CausalLM> build(const Json& hf_config, at::ScalarType dtype);

}  // namespace automodel::models::diffusion_gemma
