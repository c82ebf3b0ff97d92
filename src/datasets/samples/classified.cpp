#include "datasets/samples/classified.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace automodel::datasets {

namespace {

/// The classes for an error: their numbers and, where they are few, their names.
std::string classes_text(const std::vector<std::string>& labels) {
  constexpr size_t kMostNamed = 10;
  const std::string numbers = cat("0 to ", labels.size() - 1);
  return labels.size() > kMostNamed ? numbers : cat(numbers, " (", join(labels, ", "), ")");
}

}  // namespace

int64_t class_of(const Json& value, const std::vector<std::string>& labels,
                 const std::string& what) {
  if (value.is_string()) {
    const std::string& name = value.as_string();
    const auto found = std::ranges::find(labels, name);
    if (found != labels.end()) return found - labels.begin();
    throw InputError(cat(what, " is '", name,
                         "', which is no class of the model's: ", join(labels, ", "),
                         did_you_mean(name, labels), "; model.id2label names them"));
  }
  if (value.is_bool()) return value.as_bool() ? 1 : 0;
  const bool is_whole = value.is_number() && value.as_double() == std::floor(value.as_double());
  if (!is_whole) {
    throw InputError(cat(what, " is ", value.is_number() ? value.dump() : value.kind(),
                         ": a class is a whole number from 0, or its name"));
  }
  const double number = value.as_double();
  if (number >= 0 && number < static_cast<double>(labels.size())) {
    return static_cast<int64_t>(number);
  }
  if (number == -1) {
    throw InputError(
        cat(what, " is -1: this split hides its classes, as test sets of benchmarks do"));
  }
  throw InputError(cat(what, " is ", value.dump(), "; the model's classes are ",
                       classes_text(labels), ": model.num_labels says how many"));
}

size_t classified_place(const std::vector<int64_t>& ids, std::optional<int64_t> pad_id) {
  for (size_t place = ids.size(); place-- > 0;) {
    if (ids[place] != pad_id) return place;
  }
  return 0;
}

std::optional<int64_t> classifier_pad_id(const TextEncoder& encoder,
                                         std::optional<int64_t> of_config) {
  if (const auto own = encoder.pad_token_id()) return own;
  return of_config ? of_config : encoder.eos_token_id();
}

}  // namespace automodel::datasets
