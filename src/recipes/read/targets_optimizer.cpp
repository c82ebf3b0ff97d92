#include "recipes/read/targets_optimizer.h"

#include <algorithm>
#include <initializer_list>

#include "config/bind.h"
#include "config/registry.h"
#include "config/schema.h"
#include "optim/block_spec.h"
#include "recipes/read/recipe.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using config::TargetInfo;

/// Finds mistakes in Adam's betas, and replaces these when they are not two.
void check_betas(std::vector<double>& betas, const Node& arguments, Diagnostics& diagnostics,
                 const char* key = "betas") {
  if (betas.size() != 2) {
    const Node* node = arguments.find(key);
    diagnostics.error(node != nullptr ? *node : arguments,
                      cat(key, " takes two numbers, found ", betas.size()));
    betas = {0.9, 0.999};
  }
  for (const double beta : betas) {
    if (beta < 0.0 || beta >= 1.0) {
      diagnostics.error(*arguments.find(key), cat("beta ", beta, " is outside [0, 1)"));
    }
  }
}

/// Makes the plan of an Adam optimizer, checking the options that all of them have.
OptimizerRecipe adam_plan(optim::AdamConfig config, const Node& arguments,
                          Diagnostics& diagnostics) {
  check_betas(config.betas, arguments, diagnostics);
  if (config.differentiable) {
    diagnostics.unsupported(*arguments.find("differentiable"),
                            "differentiating through the optimizer is not in this version");
  }
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  const bool has_own_dtype = config.masters == optim::MasterWeights::kNone;
  if (has_own_dtype && !config.exp_avg_sq_dtype) plan.eps_beside_own_dtype = config.eps;
  plan.state_bytes = [config](at::ScalarType parameter) {
    return optim::adam_state_bytes(config, parameter);
  };
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext&) {
    return optim::make_adam(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

/// Reads Adam's options over the defaults of one of its names.
OptimizerMaker adam_maker(const optim::AdamConfig& defaults) {
  return [defaults](const config::Target& target, Diagnostics& diagnostics) {
    return adam_plan(config::bind_over(defaults, target.arguments, diagnostics), target.arguments,
                     diagnostics);
  };
}

/// The dtype that a key of FusedAdam names: float32 or bfloat16. Transformer Engine's float16 and
/// uint8 states carry scales.
at::ScalarType state_dtype(const Node& arguments, const std::string& key, const std::string& value,
                           Diagnostics& diagnostics) {
  const auto dtype = tensor::parse_dtype(value);
  if (dtype == at::kFloat || dtype == at::kBFloat16) return *dtype;
  const Node& node = *arguments.find(key);
  if (dtype == at::kHalf || dtype == at::kByte) {
    diagnostics.unsupported(node, cat("scaled states of ", tensor::dtype_name(*dtype),
                                      " are not in this version; float32 and bfloat16 are"));
  } else {
    diagnostics.error(node, cat("'", value, "' is no dtype of a state; float32 and bfloat16 are"));
  }
  return at::kFloat;
}

optim::MasterWeights masters_of(const optim::FusedAdamConfig& config, const Node& arguments,
                                Diagnostics& diagnostics) {
  const auto dtype = tensor::parse_dtype(config.master_weight_dtype);
  if (!dtype) {
    diagnostics.error(*arguments.find("master_weight_dtype"),
                      cat("'", config.master_weight_dtype, "' is no dtype"));
  }
  if (!config.master_weights) {
    if (const Node* unused = arguments.find("master_weight_dtype"); unused != nullptr && dtype) {
      diagnostics.warning(*unused, "without master_weights there are none to have a dtype");
    }
    if (config.store_param_remainders) {
      diagnostics.warning(*arguments.find("store_param_remainders"),
                          "without master_weights there are no remainders to keep");
    }
    return optim::MasterWeights::kNone;
  }
  if (dtype && dtype != at::kFloat) {
    diagnostics.unsupported(*arguments.find("master_weight_dtype"),
                            "master weights are float32 in this version");
  }
  return config.store_param_remainders ? optim::MasterWeights::kRemainder
                                       : optim::MasterWeights::kFloat32;
}

OptimizerRecipe fused_adam_plan(optim::FusedAdamConfig config, const Node& arguments,
                                Diagnostics& diagnostics) {
  if (config.amsgrad) {
    diagnostics.error(*arguments.find("amsgrad"), "FusedAdam has no AMSGrad; torch.optim.Adam has");
  }
  if (config.use_decoupled_grad) {
    diagnostics.unsupported(*arguments.find("use_decoupled_grad"),
                            "gradients have one place in this version");
  }
  optim::AdamConfig adam;
  adam.lr = config.lr;
  adam.betas = config.betas;
  adam.eps = config.eps;
  adam.weight_decay = config.weight_decay;
  adam.param_group_overrides = config.param_group_overrides;
  adam.is_decoupled = config.adam_w_mode;
  adam.is_bias_corrected = config.bias_correction;
  adam.masters = masters_of(config, arguments, diagnostics);
  adam.exp_avg_dtype = state_dtype(arguments, "exp_avg_dtype", config.exp_avg_dtype, diagnostics);
  adam.exp_avg_sq_dtype =
      state_dtype(arguments, "exp_avg_sq_dtype", config.exp_avg_sq_dtype, diagnostics);
  return adam_plan(std::move(adam), arguments, diagnostics);
}

/// Reads FusedAdam's options over `defaults`: its library's, or upstream's for the short name.
OptimizerMaker fused_adam_maker(const optim::FusedAdamConfig& defaults) {
  return [defaults](const config::Target& target, Diagnostics& diagnostics) {
    return fused_adam_plan(config::bind_over(defaults, target.arguments, diagnostics),
                           target.arguments, diagnostics);
  };
}

/// The defaults of FusedAdam under upstream's short name.
optim::FusedAdamConfig upstream_fused_adam() {
  optim::FusedAdamConfig config;
  config.lr = 1e-4;
  config.weight_decay = 0.01;
  config.master_weights = true;
  return config;
}

/// Checks what bitsandbytes refuses or what depends on Python or on a device.
void check_8bit(const optim::Adam8bitConfig& config, const config::Target& target,
                Diagnostics& diagnostics) {
  const Node& arguments = target.arguments;
  if (config.amsgrad) {
    diagnostics.error(*arguments.find("amsgrad"),
                      "averages in 8 bits have no AMSGrad; torch.optim.AdamW has");
  }
  if (config.optim_bits != 32) {
    diagnostics.error(*arguments.find("optim_bits"),
                      "bitsandbytes takes no other number than 32 here, which it does not use: the "
                      "averages have 8 bits as the name says");
  }
  if (config.args) {
    diagnostics.unsupported(*arguments.find("args"),
                            "an object of Python cannot come from a recipe; give min_8bit_size "
                            "itself");
  }
}

OptimizerRecipe adam_8bit_plan(optim::Adam8bitConfig config, const config::Target& target,
                               Diagnostics& diagnostics) {
  check_betas(config.betas, target.arguments, diagnostics);
  check_8bit(config, target, diagnostics);
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.is_paged = config.is_paged;
  plan.border_numel = optim::kStateBlock;
  plan.state_bytes_of_tensors = [config](std::span<const tensor::FlatSegment> segments,
                                         at::ScalarType, const optim::TensorRoles&) {
    return optim::adam_8bit_state_bytes(config, segments);
  };
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext&) {
    return optim::make_adam_8bit(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

/// Registers one of bitsandbytes' names with its defaults.
void add_adam_8bit(config::TargetRegistry<OptimizerMaker>& registry, const std::string& name,
                   double weight_decay) {
  const bool is_paged = name.starts_with("Paged");
  optim::Adam8bitConfig defaults;
  defaults.weight_decay = weight_decay;
  defaults.is_paged = is_paged;
  const std::string module = name.ends_with("W8bit") ? "adamw" : "adam";
  registry.add(
      {.name = cat("bitsandbytes.optim.", name),
       .aliases = {cat("bitsandbytes.optim.", module, ".", name)},
       .doc = cat("Adam with decoupled weight decay and averages in 8 bits",
                  is_paged ? "; on a CPU the same as without Paged" : ""),
       .options = config::schema_of(defaults)},
      [defaults, is_paged](const config::Target& target, Diagnostics& diagnostics) {
        optim::Adam8bitConfig config = config::bind_over(defaults, target.arguments, diagnostics);
        if (is_paged && !config.is_paged) {
          diagnostics.error(*target.arguments.find("is_paged"),
                            "the optimizer of this name is always paged; the name without Paged is "
                            "not");
        }
        return adam_8bit_plan(std::move(config), target, diagnostics);
      });
}

/// Checks what flashoptim refuses, or would divide by zero for.
void check_flash(const optim::FlashAdamWConfig& config, const Node& arguments,
                 Diagnostics& diagnostics) {
  const std::optional<int64_t> bits = config.master_weight_bits;
  if (bits && *bits != 24 && *bits != 32) {
    diagnostics.error(*arguments.find("master_weight_bits"),
                      cat("a weight is kept with 24 or 32 bits, or null: with those of its "
                          "parameter; found ",
                          *bits));
  }
  if (config.decouple_lr && config.lr == 0) {
    diagnostics.error(*arguments.find("decouple_lr"),
                      "weight decay is scaled by a step's rate / lr, and lr is 0");
  }
}

OptimizerRecipe flash_plan(optim::FlashAdamWConfig config, const Node& arguments,
                           Diagnostics& diagnostics) {
  check_betas(config.betas, arguments, diagnostics);
  check_flash(config, arguments, diagnostics);
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.keeps_weight_bits = config.master_weight_bits.has_value();
  if (config.quantize) plan.border_numel = optim::kStateGroup;
  plan.state_bytes_of_tensors = [config](std::span<const tensor::FlatSegment> segments,
                                         at::ScalarType parameter, const optim::TensorRoles&) {
    return optim::flash_adamw_state_bytes(config, segments, parameter);
  };
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext&) {
    return optim::make_flash_adamw(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

/// Registers one of FlashAdamW's names with its defaults: its library's, or upstream's.
void add_flash(config::TargetRegistry<OptimizerMaker>& registry, TargetInfo info,
               const optim::FlashAdamWConfig& defaults) {
  info.options = config::schema_of(defaults);
  registry.add(std::move(info), [defaults](const config::Target& target, Diagnostics& diagnostics) {
    return flash_plan(config::bind_over(defaults, target.arguments, diagnostics), target.arguments,
                      diagnostics);
  });
}

/// The defaults of FlashAdamW under upstream's short name.
optim::FlashAdamWConfig upstream_flash_adamw() {
  optim::FlashAdamWConfig config;
  config.lr = 1e-4;
  return config;
}

OptimizerRecipe sgd_plan(const config::Target& target, Diagnostics& diagnostics) {
  const auto config = config::bind<optim::SgdConfig>(target.arguments, diagnostics);
  if (config.nesterov && (config.momentum <= 0 || config.dampening != 0)) {
    diagnostics.error(*target.arguments.find("nesterov"),
                      "nesterov needs a momentum above 0 and dampening 0");
  }
  if (config.dampening != 0 && config.momentum == 0) {
    diagnostics.warning(*target.arguments.find("dampening"),
                        "dampening has no effect: there is no momentum");
  }
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.state_bytes = [config](at::ScalarType parameter) {
    return optim::sgd_state_bytes(config, parameter);
  };
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext&) {
    return optim::make_sgd(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

/// Finds a text that is none of those that a key takes.
void check_choice(const std::optional<std::string>& value, const char* key,
                  std::initializer_list<const char*> choices, const Node& arguments,
                  Diagnostics& diagnostics) {
  if (!value || std::find(choices.begin(), choices.end(), *value) != choices.end()) return;
  diagnostics.error(
      *arguments.find(key),
      cat(key, " takes ", join(std::vector<std::string>(choices.begin(), choices.end()), " or "),
          ", found '", *value, "'"));
}

OptimizerRecipe muon_plan(const config::Target& target, Diagnostics& diagnostics) {
  const Node& arguments = target.arguments;
  auto config = config::bind<optim::MuonConfig>(arguments, diagnostics);
  check_betas(config.betas, arguments, diagnostics);
  check_betas(config.scalar_betas, arguments, diagnostics, "scalar_betas");
  check_choice(config.adjust_lr, "adjust_lr", {"spectral_norm", "rms_norm"}, arguments,
               diagnostics);
  if (config.scalar_opt == "lion") {
    diagnostics.unsupported(*arguments.find("scalar_opt"), "lion is not in this version; adamw is");
  } else {
    check_choice(config.scalar_opt, "scalar_opt", {"adamw", "lion"}, arguments, diagnostics);
  }
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.changes_matrices = true;
  plan.state_bytes_of_tensors = optim::muon_state_bytes;
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext& context) {
    return optim::make_muon(config, std::move(parameters), std::move(gradients), context);
  };
  return plan;
}

OptimizerRecipe torch_muon_plan(const config::Target& target, Diagnostics& diagnostics) {
  const Node& arguments = target.arguments;
  auto config = config::bind<optim::TorchMuonConfig>(arguments, diagnostics);
  check_choice(config.adjust_lr_fn, "adjust_lr_fn", {"original", "match_rms_adamw"}, arguments,
               diagnostics);
  if (config.ns_coefficients.size() != 3) {
    diagnostics.error(
        *arguments.find("ns_coefficients"),
        cat("ns_coefficients takes three numbers, found ", config.ns_coefficients.size()));
    config.ns_coefficients.resize(3);
  }
  OptimizerRecipe plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.changes_matrices = true;
  plan.takes_matrices_only = true;
  plan.state_bytes = [](at::ScalarType parameter) {
    return static_cast<int64_t>(c10::elementSize(parameter));
  };
  plan.make = [config](auto parameters, auto gradients, const optim::MatrixContext& context) {
    return optim::make_torch_muon(config, std::move(parameters), std::move(gradients), context);
  };
  return plan;
}

optim::AdamConfig adam_defaults(double lr, double weight_decay, bool is_decoupled) {
  optim::AdamConfig defaults;
  defaults.lr = lr;
  defaults.weight_decay = weight_decay;
  defaults.is_decoupled = is_decoupled;
  return defaults;
}

/// Registers a name of Adam with its own defaults.
void add_adam(config::TargetRegistry<OptimizerMaker>& registry, TargetInfo info,
              const optim::AdamConfig& defaults) {
  info.options = config::schema_of(defaults);
  registry.add(std::move(info), adam_maker(defaults));
}

}  // namespace

config::TargetRegistry<OptimizerMaker> optimizer_targets() {
  config::TargetRegistry<OptimizerMaker> registry("optimizer");
  add_adam(registry,
           {.name = "torch.optim.Adam",
            .aliases = {"torch.optim.adam.Adam"},
            .doc = "Adam; weight decay is added to the gradient (L2)"},
           adam_defaults(1e-3, 0, false));
  add_adam(registry,
           {.name = "torch.optim.AdamW",
            .aliases = {"torch.optim.adamw.AdamW"},
            .doc = "Adam with decoupled weight decay"},
           adam_defaults(1e-3, 1e-2, true));
  add_adam(registry, {.name = "adam", .aliases = {}, .doc = "Adam with upstream's own defaults"},
           adam_defaults(1e-4, 0.01, false));
  add_adam(registry, {.name = "adamw", .aliases = {}, .doc = "AdamW with upstream's own defaults"},
           adam_defaults(1e-4, 0.01, true));
  registry.add({.name = "torch.optim.SGD",
                .aliases = {"torch.optim.sgd.SGD"},
                .doc = "stochastic gradient descent",
                .options = config::schema_of<optim::SgdConfig>()},
               sgd_plan);
  registry.add({.name = "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam",
                .aliases = {"transformer_engine.pytorch.optimizers.FusedAdam"},
                .doc = "AdamW with float32 state beside parameters of 16 bits",
                .options = config::schema_of<optim::FusedAdamConfig>()},
               fused_adam_maker({}));
  registry.add({.name = "fused_adam",
                .aliases = {},
                .doc = "FusedAdam with upstream's own defaults: float32 weights are kept",
                .options = config::schema_of(upstream_fused_adam())},
               fused_adam_maker(upstream_fused_adam()));
  add_adam_8bit(registry, "AdamW8bit", 1e-2);
  add_adam_8bit(registry, "PagedAdamW8bit", 1e-2);
  add_adam_8bit(registry, "Adam8bit", 0);
  add_adam_8bit(registry, "PagedAdam8bit", 0);
  add_flash(registry,
            {.name = "flashoptim.FlashAdamW",
             .aliases = {"flashoptim.optimizers.FlashAdamW"},
             .doc = "AdamW with averages in 8 bits, and weights of 24 or 32 bits beside parameters "
                    "of 16"},
            {});
  add_flash(
      registry,
      {.name = "flash_adamw", .aliases = {}, .doc = "FlashAdamW with upstream's own defaults"},
      upstream_flash_adamw());
  for (const char* name : {"ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "LBFGS", "NAdam",
                           "RAdam", "RMSprop", "Rprop", "SparseAdam"}) {
    registry.add_unsupported(cat("torch.optim.", name),
                             "of torch's optimizers Adam, AdamW, SGD and Muon are here");
  }
  registry.add({.name = "dion.Muon",
                .aliases = {"dion.muon.Muon", "muon"},
                .doc = "matrices are changed by their orthogonalized momentum, other tensors by "
                       "AdamW",
                .options = config::schema_of<optim::MuonConfig>()},
               muon_plan);
  registry.add({.name = "torch.optim.Muon",
                .aliases = {"torch.optim._muon.Muon"},
                .doc = "Muon of matrices alone: where only adapters are trained",
                .options = config::schema_of<optim::TorchMuonConfig>()},
               torch_muon_plan);
  constexpr const char* kOtherMatrixOptimizers =
      "of optimizers of matrices dion.Muon and torch.optim.Muon are in this version";
  for (const char* name : {"normuon", "dion", "dion2"}) {
    registry.add_unsupported(name, kOtherMatrixOptimizers);
  }
  registry.add_unsupported("dion.Dion", kOtherMatrixOptimizers, {"dion.NorMuon", "dion.Dion2"});
  return registry;
}

OptimizerRecipe read_optimizer(const Node& node, Diagnostics& diagnostics) {
  OptimizerRecipe plan;
  const auto target = config::split_target(node, diagnostics);
  if (target) {
    const auto registry = optimizer_targets();
    if (const OptimizerMaker* maker = registry.resolve_maker(*target, diagnostics)) {
      plan = (*maker)(*target, diagnostics);
    }
  }
  plan.node = node;
  return plan;
}

}  // namespace automodel::recipes
