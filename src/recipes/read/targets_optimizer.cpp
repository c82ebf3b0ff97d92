#include "recipes/read/targets_optimizer.h"

#include "config/bind.h"
#include "config/registry.h"
#include "config/schema.h"
#include "recipes/read/absent_targets.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using config::TargetInfo;

OptimizerPlan adam_plan(optim::AdamConfig config, const Node& arguments, Diagnostics& diagnostics) {
  if (config.betas.size() != 2) {
    const Node* betas = arguments.find("betas");
    diagnostics.error(betas != nullptr ? *betas : arguments,
                      cat("betas takes two numbers, found ", config.betas.size()));
    config.betas = {0.9, 0.999};
  }
  for (const double beta : config.betas) {
    if (beta < 0.0 || beta >= 1.0) {
      diagnostics.error(*arguments.find("betas"), cat("beta ", beta, " is outside [0, 1)"));
    }
  }
  if (config.differentiable) {
    diagnostics.unsupported(*arguments.find("differentiable"),
                            "differentiating through the optimizer is not in this version");
  }
  OptimizerPlan plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.num_states = config.amsgrad ? 3 : 2;
  plan.make = [config](auto parameters, auto gradients) {
    return optim::make_adam(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

/// Adam's options with other defaults than torch's.
template <typename Change>
OptimizerMaker adam_maker(Change change) {
  return [change](const config::Target& target, Diagnostics& diagnostics) {
    optim::AdamConfig defaults;
    change(defaults);
    optim::AdamConfig config = config::bind<optim::AdamConfig>(target.arguments, diagnostics);
    // bind() starts from the struct's own defaults; those of the name that was written are put
    // back where the recipe is silent.
    if (!target.arguments.has("lr")) config.lr = defaults.lr;
    if (!target.arguments.has("weight_decay")) config.weight_decay = defaults.weight_decay;
    config.is_decoupled = defaults.is_decoupled;
    return adam_plan(std::move(config), target.arguments, diagnostics);
  };
}

OptimizerPlan sgd_plan(const config::Target& target, Diagnostics& diagnostics) {
  const auto config = config::bind<optim::SgdConfig>(target.arguments, diagnostics);
  if (config.nesterov && (config.momentum <= 0 || config.dampening != 0)) {
    diagnostics.error(*target.arguments.find("nesterov"),
                      "nesterov needs a momentum above 0 and dampening 0");
  }
  OptimizerPlan plan;
  plan.lr = config.lr;
  plan.weight_decay = config.weight_decay;
  plan.param_group_overrides = config.param_group_overrides;
  plan.num_states = config.momentum > 0 ? 1 : 0;
  plan.make = [config](auto parameters, auto gradients) {
    return optim::make_sgd(config, std::move(parameters), std::move(gradients));
  };
  return plan;
}

Json adam_schema(double lr, double weight_decay) {
  optim::AdamConfig defaults;
  defaults.lr = lr;
  defaults.weight_decay = weight_decay;
  return config::schema_of(defaults);
}

}  // namespace

config::TargetRegistry<OptimizerMaker> optimizer_targets() {
  config::TargetRegistry<OptimizerMaker> registry("optimizer");
  registry.add({.name = "torch.optim.Adam",
                .aliases = {"torch.optim.adam.Adam"},
                .doc = "Adam; weight decay is added to the gradient (L2)",
                .options = adam_schema(1e-3, 0)},
               adam_maker([](optim::AdamConfig&) {}));
  registry.add({.name = "torch.optim.AdamW",
                .aliases = {"torch.optim.adamw.AdamW"},
                .doc = "Adam with decoupled weight decay",
                .options = adam_schema(1e-3, 1e-2)},
               adam_maker([](optim::AdamConfig& config) {
                 config.weight_decay = 1e-2;
                 config.is_decoupled = true;
               }));
  registry.add({.name = "adam",
                .aliases = {},
                .doc = "Adam with upstream's own defaults",
                .options = adam_schema(1e-4, 0.01)},
               adam_maker([](optim::AdamConfig& config) {
                 config.lr = 1e-4;
                 config.weight_decay = 0.01;
               }));
  registry.add({.name = "adamw",
                .aliases = {},
                .doc = "AdamW with upstream's own defaults",
                .options = adam_schema(1e-4, 0.01)},
               adam_maker([](optim::AdamConfig& config) {
                 config.lr = 1e-4;
                 config.weight_decay = 0.01;
                 config.is_decoupled = true;
               }));
  registry.add({.name = "torch.optim.SGD",
                .aliases = {"torch.optim.sgd.SGD"},
                .doc = "stochastic gradient descent",
                .options = config::schema_of<optim::SgdConfig>()},
               sgd_plan);
  const char* masters =
      "optimizers with float32 master weights are not in this version; "
      "torch.optim.AdamW on float32 parameters has the same arithmetic";
  registry.add_unsupported("transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", masters,
                           {"transformer_engine.pytorch.optimizers.FusedAdam", "fused_adam"},
                           config::check_options<MasterAdamOptions>());
  registry.add_unsupported("flashoptim.FlashAdamW", masters, {"flash_adamw"},
                           config::check_options<MasterAdamOptions>());
  for (const char* name : {"ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "LBFGS", "Muon",
                           "NAdam", "RAdam", "RMSprop", "Rprop", "SparseAdam"}) {
    registry.add_unsupported(cat("torch.optim.", name),
                             "the optimizers here are Adam, AdamW and SGD");
  }
  for (const char* name : {"muon", "normuon", "dion", "dion2"}) {
    registry.add_unsupported(name, "matrix optimizers are not in this version");
  }
  registry.add_unsupported("dion.Muon", "matrix optimizers are not in this version",
                           {"dion.Dion", "dion.NorMuon", "dion.Dion2"});
  return registry;
}

OptimizerPlan read_optimizer(const Node& node, Diagnostics& diagnostics) {
  OptimizerPlan plan;
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
