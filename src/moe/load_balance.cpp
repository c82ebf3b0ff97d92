#include "moe/load_balance.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace automodel::moe {

namespace {

bool is_corrected(const MoEConfig& config) {
  return config.has_correction_bias && config.gate_bias_update_factor > 0 && config.train_gate;
}

std::string name_of(const std::string& parameter, const tensor::KeyMap& keys) {
  const auto part = std::ranges::find(keys, parameter, &tensor::ParameterPart::parameter);
  AM_CHECK(part != keys.end(), parameter);
  return part->name;
}

/// Rows of all layers. A device is read once for all of them.
at::Tensor on_host(std::vector<at::Tensor> layers) {
  const auto on_device = std::ranges::find_if(
      layers, [](const at::Tensor& layer) { return !layer.device().is_cpu(); });
  if (on_device != layers.end()) {
    const at::Device device = on_device->device();
    for (at::Tensor& layer : layers) layer = layer.to(device);
  }
  return at::stack(layers).cpu();
}

}  // namespace

std::vector<LayerRouter> routers_of(const torch::nn::Module& model, const tensor::KeyMap& keys) {
  std::vector<LayerRouter> routers;
  for (const auto& item : model.named_modules("", false)) {
    auto* router = dynamic_cast<CountingRouter*>(item.value().get());
    if (router == nullptr) continue;
    const std::string bias = cat(item.key(), ".", kCorrectionName);
    const auto own = router->named_parameters(false);
    const at::Tensor* const weight = own.find("weight");
    const bool is_frozen = weight != nullptr && !weight->requires_grad();
    const bool is_kept = is_frozen || router->keeps_correction();
    const bool is_corrected_here = is_corrected(router->config()) && !is_kept;
    routers.push_back({router, is_corrected_here ? name_of(bias, keys) : ""});
  }
  return routers;
}

std::vector<LayerLoad> take_loads(const std::vector<LayerRouter>& routers,
                                  const std::function<void(at::Tensor)>& sum) {
  std::vector<LayerLoad> loads;
  std::vector<at::Tensor> counts, aux_losses;
  for (const LayerRouter& layer : routers) {
    counts.push_back(layer.router->take_load());
    aux_losses.push_back(layer.router->take_aux_loss());
    loads.push_back({layer.router->layer_name(), {}, 0});
  }
  if (loads.empty()) return loads;
  const at::Tensor all = on_host(std::move(counts));
  const at::Tensor all_aux = on_host(std::move(aux_losses));
  sum(all);
  for (size_t i = 0; i < loads.size(); ++i) {
    loads[i].load = all[static_cast<int64_t>(i)];
    loads[i].aux_loss = all_aux[static_cast<int64_t>(i)].item<double>();
  }
  return loads;
}

bool update_correction_biases(const std::vector<LayerRouter>& routers,
                              const std::vector<LayerLoad>& loads,
                              const std::vector<tensor::FlatShard>& parameters) {
  const at::NoGradGuard no_grad;
  std::map<std::string_view, at::Tensor> changes;
  for (size_t i = 0; i < routers.size(); ++i) {
    if (routers[i].correction.empty()) continue;
    const at::Tensor& load = loads[i].load;
    changes.emplace(routers[i].correction, at::sign(load.mean() - load) *
                                               routers[i].router->config().gate_bias_update_factor);
  }
  if (changes.empty()) return false;
  for (const tensor::FlatShard& shard : parameters) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const auto change = changes.find(segment.fqn);
      if (change == changes.end()) continue;
      at::Tensor held = shard.view(segment);
      held.add_(change->second.narrow(0, segment.spec.flat_begin, segment.spec.numel()).to(held));
    }
  }
  return true;
}

}  // namespace automodel::moe
