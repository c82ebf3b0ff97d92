#include "moe/load_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/text.h"

namespace automodel::moe {

namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

struct LayerStatistics {
  std::vector<double> utilization;  ///< by expert
  double variation = 0;
  double dead_fraction = 0;
  double diversity = 0;
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

LayerStatistics statistics_of(const LayerLoad& layer) {
  const at::Tensor load = layer.load.to(at::kDouble).contiguous();
  const double* data = load.const_data_ptr<double>();
  const std::vector<double> counts(data, data + load.numel());
  const auto num_experts = static_cast<double>(counts.size());
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  LayerStatistics out;
  out.utilization.assign(counts.size(), 0.0);
  if (total == 0) return out;
  const double mean = total / num_experts;
  double squares = 0;
  double entropy = 0;
  int64_t num_dead = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    out.utilization[i] = counts[i] / mean;
    squares += (counts[i] - mean) * (counts[i] - mean);
    if (counts[i] == 0) {
      ++num_dead;
    } else {
      entropy -= counts[i] / total * std::log(counts[i] / total);
    }
  }
  if (counts.size() > 1) out.variation = std::sqrt(squares / (num_experts - 1)) / mean;
  out.dead_fraction = static_cast<double>(num_dead) / num_experts;
  out.diversity = std::exp(entropy) / num_experts;
  return out;
}

double median_of_sorted(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

void add_extremes(const std::string& layer, const LayerStatistics& of, int64_t count,
                  Metrics& metrics) {
  std::vector<size_t> order(of.utilization.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return of.utilization[a] > of.utilization[b]; });
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto k = static_cast<size_t>(count);
    if (rank >= k && rank + k < order.size()) continue;
    metrics.emplace_back(cat("moe_expert_utilization/", layer, "_expert_", order[rank]),
                         of.utilization[order[rank]]);
  }
}

}  // namespace

Metrics load_metrics(const std::vector<LayerLoad>& loads, const LoadMetricsOptions& options) {
  Metrics metrics;
  if (loads.empty()) return metrics;
  std::vector<LayerStatistics> layers;
  std::vector<double> variations, aux_losses, utilization, dead, diversities;
  for (const LayerLoad& load : loads) {
    layers.push_back(statistics_of(load));
    const LayerStatistics& layer = layers.back();
    variations.push_back(layer.variation);
    aux_losses.push_back(load.aux_loss);
    dead.push_back(layer.dead_fraction);
    diversities.push_back(layer.diversity);
    utilization.insert(utilization.end(), layer.utilization.begin(), layer.utilization.end());
  }
  std::sort(variations.begin(), variations.end());
  std::sort(utilization.begin(), utilization.end());
  const size_t n = utilization.size();
  metrics = {
      {"moe/cv_mean", mean_of(variations)},
      {"moe/cv_median", median_of_sorted(variations)},
      {"moe/cv_min", variations.front()},
      {"moe/cv_max", variations.back()},
      {"moe/aux_loss_mean", mean_of(aux_losses)},
      {"moe/expert_utilization_min", utilization.front()},
      {"moe/expert_utilization_p25", utilization[n / 4]},
      {"moe/expert_utilization_median", median_of_sorted(utilization)},
      {"moe/expert_utilization_p75", utilization[3 * n / 4]},
      {"moe/expert_utilization_max", utilization.back()},
      {"moe/dead_expert_frac_mean", mean_of(dead)},
      {"moe/expert_diversity_mean", mean_of(diversities)},
      {"moe/expert_diversity_min", *std::min_element(diversities.begin(), diversities.end())}};
  for (size_t i = 0; i < layers.size(); ++i) {
    std::string name = loads[i].layer;
    std::replace(name.begin(), name.end(), ' ', '_');
    if (options.top_k_experts > 0) add_extremes(name, layers[i], options.top_k_experts, metrics);
    if (!options.is_detailed) continue;
    const std::string prefix = cat("moe/", name, "/");
    metrics.emplace_back(prefix + "cv", layers[i].variation);
    metrics.emplace_back(prefix + "aux_loss", loads[i].aux_loss);
    metrics.emplace_back(prefix + "utilization_mean", mean_of(layers[i].utilization));
    metrics.emplace_back(prefix + "dead_expert_frac", layers[i].dead_fraction);
    metrics.emplace_back(prefix + "expert_diversity", layers[i].diversity);
  }
  return metrics;
}

}  // namespace automodel::moe
