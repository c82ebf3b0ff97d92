#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"

namespace automodel::distributed {

struct MixedPrecisionPolicy;
struct CPUOffloadPolicy;

/// A value in a configuration's dictionary; monostate is None. Policies are pointers into the
/// configuration, not copies, and are valid as long as it is.
using ConfigValue = std::variant<std::monostate, bool, int64_t, std::string,
                                 std::vector<std::string>, std::map<std::string, std::string>,
                                 const MixedPrecisionPolicy*, const CPUOffloadPolicy*>;

/// The names and values of a configuration's fields, in their order: upstream's to_dict().
using ConfigDict = std::vector<std::pair<std::string, ConfigValue>>;

/// The value of a field; nullptr when there is no field of this name.
const ConfigValue* find(const ConfigDict& dict, const std::string& name);

/// "sequence_parallel: false, mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}".
std::string to_text(const ConfigDict& dict);

/// The dictionary as JSON: policies are objects, None is null.
Json to_json(const ConfigDict& dict);

}  // namespace automodel::distributed
