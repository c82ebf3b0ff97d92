#include "distributed/pipeline/stage_split.h"

#include <algorithm>
#include <map>

#include "core/divide.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::distributed {

namespace {

bool is_rotary(const std::string& name) {
  return name == "rotary_emb" || name.ends_with(".rotary_emb");
}

/// The modules that are divided among stages, in forward order.
std::vector<std::string> modules_in_order(const nn::ParallelPlan& plan) {
  std::vector<std::string> names = {plan.embedding};
  names.insert(names.end(), plan.blocks.begin(), plan.blocks.end());
  names.push_back(plan.final_norm);
  names.push_back(plan.head);
  std::erase(names, "");
  return names;
}

}  // namespace

int64_t calculate_virtual_stages(const StageCountRequest& request) {
  const int64_t ranks = request.pp_size;
  if (!request.layers_per_stage) return ranks * (request.is_multi_stage ? 2 : 1);
  const int64_t layers = request.num_layers;
  const int64_t per_stage = *request.layers_per_stage;
  int64_t stages = ceil_div(layers, per_stage);
  const std::string model =
      cat("Model has ", layers, " layers with pipeline_parallel_layers_per_stage=", per_stage);
  if (request.rounding && *request.rounding != "up" && *request.rounding != "down") {
    throw UserError(cat("Invalid value for round_to_pp_multiple: ", *request.rounding,
                        ". Use 'up' or 'down'."));
  }
  if (stages % ranks != 0) {
    if (!request.rounding) {
      throw UserError(cat("Number of virtual stages (", stages,
                          ") must be divisible by pipeline parallel size (", ranks, "). ", model,
                          ". Please adjust pipeline_parallel_layers_per_stage to a value that "
                          "results in a number of stages divisible by ",
                          ranks, "."));
    }
    stages += *request.rounding == "up" ? ranks - stages % ranks : -(stages % ranks);
  }
  const int64_t per_rank = stages / ranks;
  const std::string got =
      cat(per_rank, " stages per rank. ", model, ", resulting in num_virtual_stages=", stages,
          " across ", ranks, " PP ranks. Please ");
  if (!request.is_multi_stage && per_rank != 1) {
    throw UserError(cat("Single stage schedule requires exactly 1 stage per rank, but got ", got,
                        "increase pipeline_parallel_layers_per_stage to ", layers / ranks,
                        " or higher to achieve 1 stage per rank."));
  }
  if (request.is_multi_stage && per_rank < 2) {
    throw UserError(cat("Multi-stage schedule requires at least 2 stages per rank, but got ", got,
                        "decrease pipeline_parallel_layers_per_stage to ", layers / (2 * ranks),
                        " or lower to achieve at least 2 stages per rank."));
  }
  return stages;
}

StageModules split_into_stages(const nn::ParallelPlan& plan, int64_t num_stages) {
  const auto layers = static_cast<int64_t>(plan.blocks.size());
  if (num_stages < 1) throw UserError("Number of stages must be at least 1");
  if (num_stages > layers) {
    throw UserError(
        cat("Number of stages (", num_stages, ") cannot exceed number of layers (", layers, ")"));
  }
  StageModules parts(static_cast<size_t>(num_stages));
  parts.front().push_back(plan.embedding);
  auto block = plan.blocks.begin();
  for (int64_t stage = 0; stage < num_stages; ++stage) {
    const int64_t count = layers / num_stages + (stage < layers % num_stages ? 1 : 0);
    parts[static_cast<size_t>(stage)].insert(parts[static_cast<size_t>(stage)].end(), block,
                                             block + count);
    block += count;
  }
  parts.back().push_back(plan.final_norm);
  if (!plan.head.empty()) parts.back().push_back(plan.head);
  return parts;
}

std::string stage_modules_finding(const nn::ParallelPlan& plan, const StageModules& parts) {
  const std::vector<std::string> modules = modules_in_order(plan);
  std::map<std::string, size_t> part_of;
  for (size_t part = 0; part < parts.size(); ++part) {
    bool has_module = false;
    for (const std::string& name : parts[part]) {
      if (is_rotary(name)) continue;
      has_module = true;
      if (std::find(modules.begin(), modules.end(), name) == modules.end()) {
        return cat("part ", part, " lists '", name, "', which the model has not",
                   did_you_mean(name, modules));
      }
      const auto [place, is_new] = part_of.emplace(name, part);
      if (!is_new && place->second == part) return cat("part ", part, " lists ", name, " twice");
      if (!is_new) {
        return cat(name, " is in part ", place->second, " and again in part ", part);
      }
    }
    if (!has_module) return cat("part ", part, " is empty");
  }
  std::vector<std::string> missing;
  for (const std::string& name : modules) {
    if (!part_of.contains(name)) missing.push_back(name);
  }
  if (!missing.empty()) {
    return cat("no part has ", join(missing, ", "), ": every module belongs to one part");
  }
  for (size_t i = 1; i < modules.size(); ++i) {
    if (part_of.at(modules[i]) >= part_of.at(modules[i - 1])) continue;
    return cat(modules[i], " is in part ", part_of.at(modules[i]), ", before ", modules[i - 1],
               " in part ", part_of.at(modules[i - 1]));
  }
  return "";
}

StageModules normalize_stage_modules(const StageModules& parts) {
  StageModules modules = parts;
  for (std::vector<std::string>& part : modules) std::erase_if(part, is_rotary);
  return modules;
}

}  // namespace automodel::distributed
