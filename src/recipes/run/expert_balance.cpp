#include "recipes/run/expert_balance.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "comm/groups/sums.h"
#include "moe/load_metrics.h"
#include "recipes/build/tp_request.h"

namespace automodel::recipes {

namespace {

int64_t number_of(const moe::LayerLoad& load) {
  return std::stoll(load.layer.substr(load.layer.rfind(' ') + 1));
}

/// Gathers the layers of all stages, in order.
std::vector<moe::LayerLoad> of_all_stages(const std::vector<moe::LayerLoad>& loads,
                                          const comm::ProcessGroup& stages) {
  Json::Array rows;
  for (const moe::LayerLoad& load : loads) {
    Json row = Json::object();
    row["layer"] = load.layer;
    row["aux_loss"] = load.aux_loss;
    Json::Array counts;
    const float* count = load.load.const_data_ptr<float>();
    for (int64_t e = 0; e < load.load.numel(); ++e) {
      counts.push_back(Json(static_cast<double>(count[e])));
    }
    row["load"] = Json(std::move(counts));
    rows.push_back(std::move(row));
  }
  std::vector<moe::LayerLoad> all;
  for (const std::string& text : stages.all_gather_text(Json(std::move(rows)).dump())) {
    const Json stage = Json::parse(text, "loads of a stage");
    for (const Json& row : stage.as_array()) {
      std::vector<float> counts;
      for (const Json& count : row.at("load").as_array()) {
        counts.push_back(static_cast<float>(count.as_double()));
      }
      all.push_back(
          {row.at("layer").as_string(), at::tensor(counts), row.at("aux_loss").as_double()});
    }
  }
  std::ranges::stable_sort(all, {}, number_of);
  return all;
}

}  // namespace

ExpertBalance::ExpertBalance(const Parts& parts, BalanceRanks ranks) : ranks_(std::move(ranks)) {
  for (const auto& part : parts) {
    const auto routers = moe::routers_of(*part, part->key_map());
    routers_.insert(routers_.end(), routers.begin(), routers.end());
  }
  has_experts_ = comm::max_over(ranks_.stages, {routers_.empty() ? 0 : 1})[0] > 0;
  if (ranks_.context.size() == 1 && ranks_.sequence.size() == 1) return;
  for (const moe::LayerRouter& layer : routers_) {
    layer.router->set_sum_over_sequence([ranks = ranks_](at::Tensor values) {
      ranks.context.all_reduce(values, comm::ReduceOp::kSum);
      ranks.sequence.all_reduce(values, comm::ReduceOp::kSum);
    });
  }
}

void ExpertBalance::use_fake_balanced_gates() {
  for (const moe::LayerRouter& layer : routers_) layer.router->use_fake_balanced_gate();
}

void ExpertBalance::set_aux_loss_scale(double scale) {
  for (const moe::LayerRouter& layer : routers_) layer.router->set_aux_loss_scale(scale);
}

void ExpertBalance::begin_step(int64_t num_micro_batches) {
  // Gradients are averaged over context-parallel ranks, but each rank's is only its tokens' share.
  scale_ = static_cast<double>(ranks_.context.size()) / static_cast<double>(num_micro_batches);
  set_aux_loss_scale(scale_);
}

void ExpertBalance::begin_batch(double divisor, int64_t num_micro_batches) {
  set_aux_loss_scale(scale_ * divisor / static_cast<double>(num_micro_batches));
}

void ExpertBalance::end_step(distributed::Engine& engine) {
  const auto sum = [&](at::Tensor counts) {
    ranks_.tokens.all_reduce(counts, comm::ReduceOp::kSum);
    if (ranks_.sequence.size() > 1) ranks_.sequence.all_reduce(counts, comm::ReduceOp::kSum);
  };
  if (routers_.empty()) return;
  loads_ = moe::take_loads(routers_, sum);
  add_to_gather();
  if (keeps_corrections_) return;
  if (moe::update_correction_biases(routers_, loads_, engine.parameters())) {
    engine.parameters_changed();
  }
}

void ExpertBalance::add_to_gather() {
  ++steps_since_gather_;
  if (since_gather_.empty()) {
    for (const moe::LayerLoad& load : loads_) {
      since_gather_.push_back({load.layer, load.load.to(at::kDouble), load.aux_loss});
    }
    return;
  }
  for (size_t i = 0; i < loads_.size(); ++i) since_gather_[i].load += loads_[i].load;
}

ExpertBalance::GatheredLoad ExpertBalance::gather() {
  std::vector<moe::LayerLoad> sums = std::exchange(since_gather_, {});
  for (moe::LayerLoad& sum : sums) sum.load = sum.load.to(at::kFloat);
  GatheredLoad gathered{std::move(sums), std::exchange(steps_since_gather_, 0)};
  if (!has_all_layers()) gathered.layers = of_all_stages(gathered.layers, ranks_.stages);
  return gathered;
}

Json expert_load(const std::vector<moe::LayerLoad>& loads) {
  Json layers = Json::array();
  for (const moe::LayerLoad& load : loads) {
    const float* const tokens = load.load.const_data_ptr<float>();
    const double sum = std::max(std::accumulate(tokens, tokens + load.load.numel(), 0.0), 1.0);
    Json shares = Json::array();
    for (int64_t expert = 0; expert < load.load.numel(); ++expert) {
      shares.push_back(std::round(1e5 * tokens[expert] / sum) / 1e5);
    }
    layers.push_back(Json::Object{{"layer", number_of(load)}, {"shares", std::move(shares)}});
  }
  Json fields = Json::object();
  fields["layers"] = std::move(layers);
  return fields;
}

void ExpertBalance::describe(const MoeMetricsSection& section, int64_t step, Json& record) const {
  if (!section.enabled) return;
  const bool is_detailed =
      section.mode == "detailed" && step % section.detailed_every_steps.value_or(1) == 0;
  const std::vector<moe::LayerLoad> loads =
      ranks_.stages.size() == 1 ? loads_ : of_all_stages(loads_, ranks_.stages);
  for (const auto& [name, value] : moe::load_metrics(loads, {is_detailed, section.top_k_experts})) {
    record[name] = value;
  }
}

ExpertBalance build_expert_balance(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                   const ExpertBalance::Parts& parts) {
  const bool splits_sequence = tp_request(recipe).sequence_parallel;
  ExpertBalance balance(parts, {mesh.group("dp_cp"), mesh.group("cp"),
                                splits_sequence ? mesh.group("tp") : comm::ProcessGroup::solo("tp"),
                                mesh.group("pp")});
  if (recipe.peft) balance.keep_corrections();
  if (recipe.model.has_fake_balanced_gate) balance.use_fake_balanced_gates();
  return balance;
}

}  // namespace automodel::recipes
