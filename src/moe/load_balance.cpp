#include "moe/load_balance.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/text.h"

namespace automodel::moe {

std::vector<LayerRouter> routers_of(const torch::nn::Module& model) {
  std::vector<LayerRouter> routers;
  for (const auto& item : model.named_modules("", false)) {
    if (auto* router = dynamic_cast<Router*>(item.value().get())) {
      routers.push_back({item.key(), router});
    }
  }
  return routers;
}

std::vector<LayerLoad> take_loads(const std::vector<LayerRouter>& routers,
                                  const std::function<void(at::Tensor)>& sum) {
  std::vector<LayerLoad> loads;
  std::vector<at::Tensor> counts;
  for (const LayerRouter& layer : routers) {
    counts.push_back(layer.router->take_load().cpu());
    loads.push_back({layer.router->layer_name(), {}, layer.router->take_aux_loss()});
  }
  if (loads.empty()) return loads;
  const at::Tensor all = at::stack(counts);
  sum(all);
  for (size_t i = 0; i < loads.size(); ++i) loads[i].load = all[static_cast<int64_t>(i)];
  return loads;
}

bool update_correction_biases(const std::vector<LayerRouter>& routers,
                              const std::vector<LayerLoad>& loads, const tensor::KeyMap& keys,
                              const std::vector<tensor::FlatShard>& parameters) {
  const at::NoGradGuard no_grad;
  bool has_changed = false;
  for (size_t i = 0; i < routers.size(); ++i) {
    const MoEConfig& config = routers[i].router->config();
    const bool is_moved =
        config.has_correction_bias && config.gate_bias_update_factor > 0 && config.train_gate;
    if (!is_moved) continue;
    const at::Tensor& load = loads[i].load;
    const at::Tensor change = at::sign(load.mean() - load) * config.gate_bias_update_factor;
    const std::string parameter = cat(routers[i].fqn, ".e_score_correction_bias");
    for (const tensor::ParameterPart& part : keys) {
      if (part.parameter != parameter) continue;
      for (const tensor::FlatShard& shard : parameters) {
        for (const tensor::FlatSegment& segment : shard.segments) {
          if (segment.fqn != part.name) continue;
          at::Tensor held = shard.view(segment);
          held.add_(change.narrow(0, segment.spec.flat_begin, segment.spec.numel()).to(held));
        }
      }
    }
    has_changed = true;
  }
  return has_changed;
}

}  // namespace automodel::moe
