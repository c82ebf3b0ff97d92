#include "recipes/plan/device_memory.h"

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

struct Device {
  const char* name;
  int64_t gib;  ///< that its driver offers, rounded down
};

/// Devices are sold by round numbers of 10^9 bytes; error correction and the driver take some of
/// it.
constexpr Device kDevices[] = {{"a10", 22},      {"a100", 79},  {"a100-40g", 39}, {"a100-80g", 79},
                               {"a6000", 47},    {"b200", 178}, {"gh200", 94},    {"h100", 79},
                               {"h100-nvl", 93}, {"h20", 95},   {"h200", 139},    {"l4", 22},
                               {"l40", 44},      {"l40s", 44},  {"rtx-3090", 23}, {"rtx-4090", 23},
                               {"rtx-5090", 31}, {"t4", 14},    {"v100-16g", 15}, {"v100-32g", 31}};

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {
    {"gib", 1024.0 * 1024 * 1024}, {"mib", 1024.0 * 1024}, {"gb", 1e9}, {"mb", 1e6}};

}  // namespace

DeviceMemory parse_device_memory(std::string_view given) {
  const std::string text = to_lower(trim(given));
  std::vector<std::string> names;
  for (const Device& device : kDevices) {
    names.emplace_back(device.name);
    if (text == device.name) return {text, device.gib << 30};
  }
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::string number(trim(text.substr(0, text.size() - std::string(unit.name).size())));
    const auto value = parse_double(number);
    const bool is_size = value && std::isfinite(*value) && *value > 0 && *value * unit.bytes < 1e18;
    if (is_size) return {std::string(trim(given)), static_cast<int64_t>(*value * unit.bytes)};
  }
  const bool is_name = !text.empty() && text.front() >= 'a' && text.front() <= 'z';
  throw UserError(cat("--device-memory takes a size with its unit (80GiB, 80GB) or a device (",
                      join(names, ", "), "), found '", given, "'",
                      is_name ? did_you_mean(text, names) : ""));
}

}  // namespace automodel::recipes
