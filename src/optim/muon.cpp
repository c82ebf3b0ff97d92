#include "optim/muon.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/orthogonalize.h"
#include "optim/state_buffer.h"

namespace automodel::optim {

namespace {

/// The nearest number within the range of float32.
double in_float32(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::clamp(value, -kLargest, kLargest);
}

using tensor::FlatSegment;
using tensor::FlatShard;

/// How the rate of a matrix [out, in] follows from the optimizer's.
enum class RateOfMatrix { kAsItIs, kSpectralNorm, kOriginal, kRms };

double rate_factor(RateOfMatrix rate, const std::vector<int64_t>& shape) {
  const auto out = static_cast<double>(shape[0]);
  const auto in = static_cast<double>(shape[1]);
  switch (rate) {
    case RateOfMatrix::kAsItIs:
      return 1;
    case RateOfMatrix::kSpectralNorm:
      return std::sqrt(out / in);
    case RateOfMatrix::kOriginal:
      return std::sqrt(std::max(1.0, out / in));
    case RateOfMatrix::kRms:
      return 0.2 * std::sqrt(std::max(out, in));
  }
  AM_CHECK(false);
}

/// What both names of Muon become.
struct MuonRule {
  double momentum = 0.95;
  bool is_averaged = false;  ///< torch's momentum is an average of gradients, dion's a sum
  bool is_nesterov = false;
  kernels::OrthogonalizeOptions iterations;
  RateOfMatrix rate = RateOfMatrix::kAsItIs;
  std::string text;  ///< of describe()
};

/// A rank's part of one tensor, where its state lies, and its hyper-parameters.
struct MuonPart {
  ParameterRun run;  ///< its elements in the unit's buffer
  FlatSegment segment;
  bool is_matrix = false;
  int64_t state_begin = 0;  ///< in the shard of its state
  double lr_factor = 1;     ///< of the step's rate
  double wd_factor = 1;
};

bool is_matrix(const FlatSegment& segment, const TensorRoles& roles) {
  const auto role = roles.find(segment.fqn);
  AM_CHECK(role != roles.end(), segment.fqn, " has no role");
  return role->second == TensorRole::kMatrix;
}

/// A shard's zeroed state of its matrices, or of its other tensors.
FlatShard zero_state(const FlatShard& shard, const TensorRoles& roles, bool of_matrices) {
  return packed_state(shard, shard.buffer.scalar_type(),
                      [&](const FlatSegment& segment) -> std::optional<tensor::ShardSpec> {
                        if (is_matrix(segment, roles) != of_matrices) return {};
                        return segment.spec;
                      });
}

/// Whether matrices are orthogonalized in bfloat16, as the peers do it always: on devices, and for
/// weights of 16 bits.
bool is_narrow(const at::Tensor& parameters) {
  return !parameters.is_cpu() || c10::elementSize(parameters.scalar_type()) == 2;
}

class Muon final : public Optimizer {
 public:
  Muon(MuonRule rule, kernels::AdamOptions adam, std::vector<MuonPart> parts,
       std::vector<FlatShard> parameters, std::vector<FlatShard> gradients,
       const MatrixContext& context)
      : rule_(std::move(rule)),
        adam_(adam),
        parts_(std::move(parts)),
        parameters_(std::move(parameters)),
        gradients_(std::move(gradients)) {
    AM_CHECK(parameters_.size() == gradients_.size());
    for (const auto& [name, of_matrices] :
         {std::pair{"muon_momentum", true}, {"exp_avg", false}, {"exp_avg_sq", false}}) {
      state_.push_back({name, {}});
      for (const FlatShard& shard : parameters_) {
        state_.back().shards.push_back(zero_state(shard, context.roles, of_matrices));
      }
    }
    place_state();
    std::vector<FlatSegment> segments;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].is_matrix) continue;
      matrices_.push_back(i);
      segments.push_back(parts_[i].segment);
    }
    // A rank computes matrices of which it may hold no part: its choice is that of all ranks.
    rule_.iterations.is_narrow = !parameters_.empty() && is_narrow(parameters_.front().buffer);
    run_ = context.stepper(segments);
  }

  void step(const StepRates& given) override {
    const at::NoGradGuard no_grad;
    tensor::check_gradients(gradients_);
    const Rates rates(given, adam_.lr, adam_.weight_decay);
    ++num_steps_;
    for (const MuonPart& part : parts_) {
      part.is_matrix ? add_to_momentum(part, rates) : step_by_adam(part, rates);
    }
    run_({.read = [&](size_t matrix,
                      at::Tensor out) { read(parts_[matrices_[matrix]], rates, std::move(out)); },
          .compute =
              [&](const at::Tensor& whole) {
                return kernels::orthogonalize(whole, rule_.iterations);
              },
          .write =
              [&](size_t matrix, const at::Tensor& changed) {
                update(parts_[matrices_[matrix]], rates, changed);
              }});
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }
  void set_num_steps(int64_t steps) override { num_steps_ = steps; }

  std::string describe() const override { return rule_.text; }

 private:
  /// Finds each part's state: the kinds have the parts of a unit in one order.
  void place_state() {
    size_t shard = parameters_.size();
    int64_t num_of_matrices = 0, num_of_others = 0;
    for (MuonPart& part : parts_) {
      if (part.run.shard != shard) num_of_matrices = num_of_others = 0;
      shard = part.run.shard;
      int64_t& begin = part.is_matrix ? num_of_matrices : num_of_others;
      part.state_begin = begin;
      begin += part.run.end - part.run.begin;
    }
  }

  at::Tensor piece(const std::vector<FlatShard>& shards, const MuonPart& part) const {
    return shards[part.run.shard].buffer.narrow(0, part.run.begin, part.run.end - part.run.begin);
  }

  at::Tensor state_of(size_t kind, const MuonPart& part) const {
    return state_[kind].shards[part.run.shard].buffer.narrow(0, part.state_begin,
                                                             part.run.end - part.run.begin);
  }

  void step_by_adam(const MuonPart& part, const Rates& rates) {
    kernels::AdamOptions options = adam_;
    options.lr = rates.lr * part.lr_factor;
    options.weight_decay = rates.weight_decay * part.wd_factor;
    options.step = num_steps_;
    options.grad_scale = rates.grad_scale;
    kernels::adam_step(piece(parameters_, part), piece(gradients_, part), state_of(1, part),
                       state_of(2, part), {}, options);
  }

  /// By what gradients are multiplied before they are added to a momentum.
  double gradient_share(const Rates& rates) const {
    return in_float32(rule_.is_averaged ? (1 - rule_.momentum) * rates.grad_scale
                                        : rates.grad_scale);
  }

  void add_to_momentum(const MuonPart& part, const Rates& rates) {
    at::Tensor momentum = state_of(0, part);
    const double share = gradient_share(rates);
    const at::Tensor gradient = piece(gradients_, part);
    if (momentum.scalar_type() == gradient.scalar_type()) {
      momentum.mul_(rule_.momentum).add_(gradient, share);
    } else {
      const at::Tensor sum = momentum.to(at::kFloat) * rule_.momentum;
      momentum.copy_(sum.add_(gradient.to(at::kFloat), share));
    }
  }

  /// What is to be orthogonalized.
  void read(const MuonPart& part, const Rates& rates, at::Tensor out) {
    out.copy_(state_of(0, part));
    if (!rule_.is_nesterov) return;
    out.mul_(rule_.momentum)
        .add_(piece(gradients_, part).to(out.device(), at::kFloat), gradient_share(rates));
  }

  void update(const MuonPart& part, const Rates& rates, const at::Tensor& direction) {
    const double lr = rates.lr * part.lr_factor;
    const double rate = in_float32(lr * rate_factor(rule_.rate, part.segment.spec.global_shape));
    const double kept = in_float32(1 - lr * rates.weight_decay * part.wd_factor);
    at::Tensor parameter = piece(parameters_, part);
    if (parameter.scalar_type() == direction.scalar_type()) {
      parameter.mul_(kept).sub_(direction.to(parameter.device()), rate);
    } else {
      const at::Tensor wide = parameter.to(at::kFloat) * kept;
      parameter.copy_(wide.sub_(direction.to(parameter.device()), rate));
    }
  }

  MuonRule rule_;
  kernels::AdamOptions adam_;  // of other tensors; its rates are the optimizer's own
  std::vector<MuonPart> parts_;
  std::vector<size_t> matrices_;  // the parts that are of matrices
  std::vector<FlatShard> parameters_;
  std::vector<FlatShard> gradients_;
  std::vector<OptimizerState> state_;
  tensor::MatrixStepper run_;
  int64_t num_steps_ = 0;
};

/// Learning rate and weight decay of a tensor, as factors of the step's.
std::pair<double, double> factors(const MuonConfig& config, TensorRole role,
                                  const FlatSegment& segment) {
  const double scalar_lr = config.scalar_lr.value_or(config.lr);
  const auto of_lr = [&](double lr) { return config.lr > 0 ? lr / config.lr : 1.0; };
  switch (role) {
    case TensorRole::kMatrix:
      return {1, 1};
    case TensorRole::kVector:
      return {of_lr(scalar_lr), 1};
    case TensorRole::kEmbedding:
      return {of_lr(config.embed_lr.value_or(scalar_lr)), 0};
    case TensorRole::kHead: {
      const auto width = static_cast<double>(segment.spec.global_shape.back());
      return {of_lr(config.lm_head_lr.value_or(config.lr / std::sqrt(width))), 0};
    }
  }
  AM_CHECK(false);
}

std::vector<MuonPart> parts_of(const std::vector<FlatShard>& shards,
                               std::span<const ParamGroupOverride> overrides,
                               const TensorRoles& roles) {
  std::vector<MuonPart> parts;
  for (const auto& [run, segment] : segment_runs(shards, overrides)) {
    if (run.begin == run.end) continue;
    parts.push_back({run, *segment, is_matrix(*segment, roles), 0, run.lr_mult, run.wd_mult});
  }
  return parts;
}

RateOfMatrix rate_of(const MuonConfig& config) {
  if (!config.adjust_lr) return RateOfMatrix::kAsItIs;
  AM_CHECK(*config.adjust_lr == "spectral_norm" || *config.adjust_lr == "rms_norm");
  return *config.adjust_lr == "rms_norm" ? RateOfMatrix::kRms : RateOfMatrix::kSpectralNorm;
}

}  // namespace

int64_t muon_state_bytes(std::span<const FlatSegment> segments, at::ScalarType parameter,
                         const TensorRoles& roles) {
  int64_t numel = 0;
  for (const FlatSegment& segment : segments) {
    numel += segment.spec.numel() * (is_matrix(segment, roles) ? 1 : 2);
  }
  return numel * static_cast<int64_t>(c10::elementSize(parameter));
}

std::unique_ptr<Optimizer> make_muon(const MuonConfig& config, std::vector<FlatShard> parameters,
                                     std::vector<FlatShard> gradients,
                                     const MatrixContext& context) {
  AM_CHECK(config.scalar_betas.size() == 2);
  const TensorRoles& roles = context.roles;
  std::vector<MuonPart> parts = parts_of(parameters, config.param_group_overrides, roles);
  for (MuonPart& part : parts) {
    const auto [lr, wd] = factors(config, roles.at(part.segment.fqn), part.segment);
    part.lr_factor *= lr;
    part.wd_factor *= wd;
  }
  MuonRule rule{.momentum = config.mu,
                .is_averaged = false,
                .is_nesterov = config.nesterov,
                .iterations = {.coefficients = {kernels::kPolarExpressCoefficients.begin(),
                                                kernels::kPolarExpressCoefficients.end()},
                               .norm_factor = 1.02,
                               .eps = config.epsilon,
                               .is_eps_added = true},
                .rate = rate_of(config),
                .text = cat("Muon (lr ", config.lr, ", mu ", config.mu, ", weight_decay ",
                            config.weight_decay, config.nesterov ? ", nesterov" : "",
                            "; AdamW of other tensors)")};
  const kernels::AdamOptions adam{.lr = config.lr,
                                  .beta1 = config.scalar_betas[0],
                                  .beta2 = config.scalar_betas[1],
                                  .eps = config.scalar_eps,
                                  .weight_decay = config.weight_decay,
                                  .is_decoupled = true};
  return std::make_unique<Muon>(std::move(rule), adam, std::move(parts), std::move(parameters),
                                std::move(gradients), context);
}

std::unique_ptr<Optimizer> make_torch_muon(const TorchMuonConfig& config,
                                           std::vector<FlatShard> parameters,
                                           std::vector<FlatShard> gradients,
                                           const MatrixContext& context) {
  AM_CHECK(config.ns_coefficients.size() == 3);
  TensorRoles roles;
  for (const FlatShard& shard : parameters) {
    for (const FlatSegment& segment : shard.segments) {
      if (segment.spec.global_shape.size() != 2) {
        throw UserError(cat("torch.optim.Muon takes matrices alone, and ", segment.fqn, " has ",
                            segment.spec.global_shape.size(),
                            " dimension(s); dion.Muon has AdamW for such tensors"));
      }
      roles[segment.fqn] = TensorRole::kMatrix;
    }
  }
  const auto& c = config.ns_coefficients;
  MuonRule rule{
      .momentum = in_float32(config.momentum),
      .is_averaged = true,
      .is_nesterov = config.nesterov,
      .iterations = {.coefficients = {static_cast<size_t>(config.ns_steps),
                                      std::array<double, 3>{in_float32(c[0]), in_float32(c[1]),
                                                            in_float32(c[2])}},
                     .norm_factor = 1,
                     .eps = config.eps,
                     .is_eps_added = false},
      .rate =
          config.adjust_lr_fn == "match_rms_adamw" ? RateOfMatrix::kRms : RateOfMatrix::kOriginal,
      .text = cat("Muon (lr ", config.lr, ", momentum ", config.momentum, ", weight_decay ",
                  config.weight_decay, config.nesterov ? ", nesterov" : "", ")")};
  std::vector<MuonPart> parts = parts_of(parameters, config.param_group_overrides, roles);
  const kernels::AdamOptions own_rates{.lr = config.lr, .weight_decay = config.weight_decay};
  return std::make_unique<Muon>(std::move(rule), own_rates, std::move(parts), std::move(parameters),
                                std::move(gradients), MatrixContext{roles, context.stepper});
}

}  // namespace automodel::optim
