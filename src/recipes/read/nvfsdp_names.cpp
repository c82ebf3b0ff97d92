#include "recipes/read/nvfsdp_names.h"

#include <utility>

#include "config/bind.h"
#include "core/error.h"
#include "distributed/strategies/nvfsdp_options.h"

namespace automodel::recipes {

using config::Diagnostics;
using config::Node;

std::vector<std::pair<std::string, std::string>> nvfsdp_names() {
  return {{"nvfsdp_unit_modules", "megatron_fsdp_unit_modules"},
          {"init_nvfsdp_with_meta_device", "init_fsdp_with_meta_device"},
          {"keep_fp8_transpose_cache_when_using_custom_fsdp", "keep_fp8_transpose_cache"}};
}

void take_nvfsdp_names(Node& section, Diagnostics& diagnostics) {
  for (const auto& [older, name] : nvfsdp_names()) {
    const Node* found = section.find(older);
    if (found == nullptr) continue;
    Node value = *found;
    section.erase(older);
    if (value.is_null()) continue;
    if (const Node* other = section.find(name); other != nullptr && !other->is_null()) {
      diagnostics.clash(value, *other, cat("'", older, "' is an older name of '", name, "'"),
                        "which is set here");
    }
    value.set_key(name, value.key_position());
    section.put(name, std::move(value));
  }
}

std::optional<std::string> take_sharding_name(Node& section, Diagnostics& diagnostics) {
  const Node* found = section.find(kShardingName);
  if (found == nullptr) return std::nullopt;
  const Node node = *found;
  section.erase(kShardingName);
  if (node.is_null()) return std::nullopt;
  const Node* number = section.find("zero_dp_strategy");
  if (number != nullptr && !number->is_null()) {
    diagnostics.clash(node, *number, "this says by a name what zero_dp_strategy says by a number",
                      "which is set here");
  }
  distributed::MegatronFSDPConfig config;
  config.data_parallel_sharding_strategy = config::read_value<std::string>(node, diagnostics);
  try {
    distributed::sharding_options(config, at::kCPU);
  } catch (const UserError& error) {
    diagnostics.error(node, error.what());
    return std::nullopt;
  }
  return config.data_parallel_sharding_strategy;
}

}  // namespace automodel::recipes
