#include "distributed/fsdp/flat_units.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "nn/buffer_parameter.h"

namespace automodel::distributed {

namespace {

using tensor::FlatSegment;

bool is_below(const std::string& parameter, const std::string& module) {
  return !module.empty() && parameter.starts_with(module) && parameter.size() > module.size() &&
         parameter[module.size()] == '.';
}

/// The experts' module, block or table that a parameter belongs to; "" for the root.
std::string unit_of(const std::string& parameter, const nn::ParallelPlan& plan,
                    const TableUnits& tables, const std::vector<std::string>& experts) {
  for (const std::string& module : experts) {
    if (is_below(parameter, module)) return module;
  }
  for (const std::string& block : plan.blocks) {
    if (is_below(parameter, block)) return block;
  }
  for (const std::string& table : {tables.embedding, tables.head}) {
    if (is_below(parameter, table)) return table;
  }
  return "";
}

torch::nn::Module* find_module(torch::nn::Module& root, const std::string& fqn) {
  for (const auto& item : root.named_modules("", false)) {
    if (item.key() == fqn) return item.value().get();
  }
  return nullptr;
}

/// `fqn` if that module exists and has trained parameters, else "".
std::string if_trained(torch::nn::Module& root, const std::string& fqn) {
  torch::nn::Module* const module = find_module(root, fqn);
  if (module == nullptr) return "";
  for (const at::Tensor& parameter : module->parameters()) {
    if (parameter.requires_grad()) return fqn;
  }
  return "";
}

void add_to_group(const std::string& unit, const std::string& name, const at::Tensor& value,
                  std::vector<FlatParameters>& groups) {
  // Bytes are never cast either.
  const bool keeps_dtype =
      nn::is_buffer_parameter(name) || !c10::isFloatingType(value.scalar_type());
  auto it = std::find_if(groups.begin(), groups.end(), [&](const FlatParameters& group) {
    return group.unit == unit && group.dtype == value.scalar_type() &&
           group.is_trained == value.requires_grad() && group.keeps_dtype == keeps_dtype;
  });
  if (it == groups.end()) {
    groups.push_back({unit, value.scalar_type(), value.requires_grad(), keeps_dtype, {}});
    it = std::prev(groups.end());
  }
  it->parameters.emplace_back(name, value);
}

/// A module's parameters; one that has several names has the first.
std::vector<NamedParameter> once_named(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> seen;
  std::vector<NamedParameter> named;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    named.emplace_back(item.key(), item.value());
  }
  return named;
}

}  // namespace

FlatLayout FlatParameters::layout(int64_t element_size, int64_t num_ranks,
                                  int64_t border_numel) const {
  std::vector<LayoutItem> items;
  for (const auto& [name, value] : parameters) items.push_back({name, value.numel()});
  return lay_out(items, element_size, num_ranks, border_numel);
}

int64_t FlatParameters::numel() const {
  int64_t count = 0;
  for (const auto& [name, value] : parameters) count += value.numel();
  return count;
}

TableUnits untied_tables(torch::nn::Module& module, const nn::ParallelPlan& plan) {
  if (plan.head.empty()) return {};
  return {if_trained(module, plan.embedding), if_trained(module, plan.head)};
}

std::vector<FlatParameters> flat_parameters(torch::nn::Module& module, const nn::ParallelPlan& plan,
                                            const TableUnits& tables,
                                            const std::vector<std::string>& experts) {
  std::vector<FlatParameters> groups;
  for (const auto& item : once_named(module)) {
    add_to_group(unit_of(item.first, plan, tables, experts), item.first, item.second, groups);
  }
  return groups;
}

std::vector<FlatParameters> flat_parameters(const std::string& unit,
                                            const std::vector<NamedParameter>& parameters) {
  std::vector<FlatParameters> groups;
  for (const auto& [name, value] : parameters) add_to_group(unit, name, value, groups);
  return groups;
}

namespace {

/// The shard spec of all elements of the part's box.
tensor::ShardSpec spec_of(const tensor::ParameterPart& part) {
  tensor::ShardSpec spec = tensor::ShardSpec::whole(part.shape);
  if (part.box_shape.empty()) return spec;
  spec.box_offset = part.box_offset;
  spec.box_shape = part.box_shape;
  spec.flat_end = spec.box_numel();
  return spec;
}

}  // namespace

std::vector<FlatSegment> segments_in(const FlatLayout& layout, const tensor::KeyMap& keys,
                                     int64_t begin, int64_t end) {
  std::vector<FlatSegment> segments;
  for (const LayoutEntry& entry : layout.entries) {
    int64_t covered = 0;
    bool is_split = false;
    for (const tensor::ParameterPart& part : keys) {
      if (part.parameter != entry.parameter) continue;
      tensor::ShardSpec spec = spec_of(part);
      is_split = is_split || !part.box_shape.empty();
      const std::vector<int64_t>& shape = spec.box_shape;
      const int64_t numel = spec.box_numel();
      const int64_t row = shape.empty() || shape[0] == 0 ? 1 : numel / shape[0];
      const int64_t first = entry.offset + part.row_begin * row;
      covered += numel;
      const int64_t held_begin = std::max(begin, first);
      const int64_t held_end = std::min(end, first + numel);
      if (held_begin >= held_end) continue;
      spec.flat_begin = held_begin - first;
      spec.flat_end = held_end - first;
      segments.push_back({part.name, std::move(spec), held_begin - begin});
    }
    const bool is_padded = is_split && covered < entry.numel;
    AM_CHECK(is_padded || covered == entry.numel, "the key map covers ", covered, " of ",
             entry.numel, " elements of ", entry.parameter);
  }
  return segments;
}

tensor::KeyMap own_names(const torch::nn::Module& module) {
  tensor::KeyMap keys;
  for (const auto& item : once_named(module)) {
    keys.push_back({item.first, item.first, 0, item.second.sizes().vec()});
  }
  return keys;
}

torch::nn::Module& module_at(torch::nn::Module& root, const std::string& fqn) {
  torch::nn::Module* const found = find_module(root, fqn);
  AM_CHECK(found != nullptr, "there is no module ", fqn);
  return *found;
}

}  // namespace automodel::distributed
