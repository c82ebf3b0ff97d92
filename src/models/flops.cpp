#include "models/flops.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "models/catalog.h"
#include "models/decoder/classifier.h"
#include "models/families/families.h"

namespace automodel::models {

FlopCount training_flops(const Json& hf_config) {
  const FamilyCheck check = find_family(hf_config);
  if (!check.is_known) throw UnsupportedError(check.reason);
  const auto* family = *std::ranges::find(decoder::kFamilies, check.architecture,
                                          [](const auto* row) { return row->architecture; });
  if (family->flops == nullptr) return nullptr;
  decoder::ConfigReader reader(hf_config);
  return [count = family->flops, config = decoder::read_options(*family, reader)](
             int64_t num_sequences, int64_t length) {
    return count(config, static_cast<double>(num_sequences), static_cast<double>(length));
  };
}

std::optional<double> peak_tflops(std::string_view device_name) {
  // A name comes before names that are contained in it.
  using Entry = std::pair<std::string_view, double>;
  static constexpr std::array<Entry, 17> kPeaks = {{{"gb200", 2500},
                                                    {"b200", 2250},
                                                    {"h100", 989},
                                                    {"h200", 989},
                                                    {"h800", 989},
                                                    {"a100", 312},
                                                    {"a800", 312},
                                                    {"l40s", 362.05},
                                                    {"l40", 181.05},
                                                    {"a40", 149.7},
                                                    {"l20", 119.5},
                                                    {"h20", 148},
                                                    {"mi300x", 1336},
                                                    {"rtx pro 6000 blackwell max-q", 438.9},
                                                    {"rtx pro 6000", 503.8},
                                                    {"rtx 3070 ti", 21.75},
                                                    {"cpu", 0.448}}};
  const std::string name = to_lower(device_name);
  for (const auto& [part, peak] : kPeaks) {
    if (name.find(part) != std::string::npos) return peak;
  }
  return std::nullopt;
}

}  // namespace automodel::models
