#include "models/text_pooling.h"

#include <array>
#include <vector>

#include "core/text.h"

namespace automodel::models {

namespace {

struct PoolingName {
  std::string_view name;
  TextPooling pooling;
};

/// The first name of a kind is the one that is written.
constexpr std::array<PoolingName, 5> kNames = {{{"avg", TextPooling::kMean},
                                                {"mean", TextPooling::kMean},
                                                {"weighted_avg", TextPooling::kSum},
                                                {"cls", TextPooling::kFirst},
                                                {"last", TextPooling::kLast}}};

}  // namespace

std::optional<TextPooling> parse_text_pooling(std::string_view name) {
  for (const PoolingName& each : kNames) {
    if (each.name == name) return each.pooling;
  }
  return std::nullopt;
}

std::string text_pooling_problem(const std::string& name) {
  std::vector<std::string> known;
  for (const PoolingName& each : kNames) known.emplace_back(each.name);
  return cat("takes ", join(known, ", "), ", found '", name, "'", did_you_mean(name, known));
}

std::string_view text_pooling_name(TextPooling pooling) {
  for (const PoolingName& each : kNames) {
    if (each.pooling == pooling) return each.name;
  }
  return "";
}

}  // namespace automodel::models
