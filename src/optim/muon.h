#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "optim/optimizer.h"
#include "tensor/matrix_step.h"

namespace automodel::optim {

/// dion's Muon with upstream's groups of parameters: matrices are changed by their orthogonalized
/// momentum, everything else by AdamW with rates of its own.
struct MuonConfig {
  double lr = 5e-4;
  double mu = 0.95;
  std::vector<double> betas = {0.9, 0.95};
  double weight_decay = 0;
  double epsilon = 1e-8;
  bool nesterov = false;
  std::optional<std::string> adjust_lr = "spectral_norm";
  bool flatten = false;
  bool use_triton = false;
  bool no_compile = false;
  std::string scalar_opt = "adamw";
  std::vector<double> scalar_betas = {0.9, 0.999};
  double scalar_eps = 1e-8;
  std::optional<double> scalar_lr;
  std::optional<double> embed_lr;
  std::optional<double> lm_head_lr;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = MuonConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate of matrices").at_least(0),
        field("mu", &C::mu, "decay of the running sum of gradients").at_least(0),
        field("betas", &C::betas, "averages of dion's element-wise optimizers")
            .without_effect("scalar_betas are those of AdamW"),
        field("weight_decay", &C::weight_decay, "decoupled weight decay; 0 of embedding and head")
            .at_least(0),
        field("epsilon", &C::epsilon, "added to a matrix's norm before it is divided by it")
            .at_least(0),
        field("nesterov", &C::nesterov, "look ahead along the momentum"),
        field(
            "adjust_lr", &C::adjust_lr,
            "times what lr changes a matrix [out, in]: spectral_norm, by sqrt(out / in); rms_norm, "
            "by 0.2 sqrt(max(out, in)); null: 1"),
        field("flatten", &C::flatten, "tensors of more dimensions as matrices")
            .without_effect(
                "tensors of more dimensions are changed by AdamW, as upstream groups them"),
        field("use_triton", &C::use_triton, "implementation choice of dion")
            .without_effect("there is one product here"),
        field("no_compile", &C::no_compile, "implementation choice of dion")
            .without_effect("nothing is compiled at run time here"),
        field("scalar_opt", &C::scalar_opt, "what changes all but matrices: adamw"),
        field("scalar_betas", &C::scalar_betas, "decay of AdamW's averages"),
        field("scalar_eps", &C::scalar_eps, "added to AdamW's denominator").at_least(0),
        field("scalar_lr", &C::scalar_lr, "learning rate of AdamW; absent: lr").at_least(0),
        field("embed_lr", &C::embed_lr, "learning rate of embeddings; absent: scalar_lr")
            .at_least(0),
        field("lm_head_lr", &C::lm_head_lr,
              "learning rate of the head; absent: lr / sqrt(hidden size)")
            .at_least(0),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// torch.optim.Muon, which takes matrices alone.
struct TorchMuonConfig {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::vector<double> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  std::optional<std::string> adjust_lr_fn;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = TorchMuonConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("weight_decay", &C::weight_decay, "decoupled weight decay").at_least(0),
        field("momentum", &C::momentum, "decay of the average of gradients").at_least(0),
        field("nesterov", &C::nesterov, "look ahead along the momentum"),
        field("ns_coefficients", &C::ns_coefficients, "of the Newton-Schulz iterations: three"),
        field("eps", &C::eps, "least norm that a matrix is divided by").at_least(0),
        field("ns_steps", &C::ns_steps, "Newton-Schulz iterations").at_least(0).at_most(99),
        field("adjust_lr_fn", &C::adjust_lr_fn,
              "times what lr changes a matrix [out, in]: original, by sqrt(max(1, out / in)), also "
              "when absent; match_rms_adamw, by 0.2 sqrt(max(out, in))"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// What an optimizer of matrices takes a trained tensor for.
enum class TensorRole {
  kMatrix,
  kVector,  ///< anything that is neither a matrix nor one of the others
  kEmbedding,
  kHead,
};

/// The roles of trained tensors by their Hugging Face names.
using TensorRoles = std::map<std::string, TensorRole>;

/// What an optimizer of matrices must know besides its shards.
struct MatrixContext {
  TensorRoles roles;  ///< of every trained tensor
  tensor::MatrixStepperMaker stepper;
};

/// Bytes of state that Muon keeps for parts of tensors whose parameters have a dtype.
int64_t muon_state_bytes(std::span<const tensor::FlatSegment> segments, at::ScalarType parameter,
                         const TensorRoles& roles);

/// State "muon_momentum" of matrices, "exp_avg" and "exp_avg_sq" of other tensors, in the
/// parameters' dtype. Of a matrix all ranks' parts together are changed, through the stepper; the
/// ranks that it joins call this function and step() together. With rates of
/// a schedule, every group's learning rate changes by the factor by which `lr` does.
std::unique_ptr<Optimizer> make_muon(const MuonConfig& config,
                                     std::vector<tensor::FlatShard> parameters,
                                     std::vector<tensor::FlatShard> gradients,
                                     const MatrixContext& context);
/// Throws UserError for a tensor that is no matrix.
std::unique_ptr<Optimizer> make_torch_muon(const TorchMuonConfig& config,
                                           std::vector<tensor::FlatShard> parameters,
                                           std::vector<tensor::FlatShard> gradients,
                                           const MatrixContext& context);

}  // namespace automodel::optim
