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

ClassTable::ClassTable(std::vector<std::string> names) : names_(std::move(names)) {
  for (size_t id = 0; id < names_.size(); ++id) {
    ids_.emplace(names_[id], static_cast<int64_t>(id));
  }
  are_numbers_ = std::ranges::all_of(
      names_, [](const std::string& name) { return parse_double(name).has_value(); });
}

int64_t ClassTable::class_called(const std::string& name, const std::string& what) const {
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  throw InputError(cat(what, " is '", name,
                       "', which is no class of the model's: ", classes_text(names_),
                       did_you_mean(name, names_), "; model.id2label names them"));
}

int64_t ClassTable::class_of(const Json& value, const std::string& what) const {
  if (value.is_string()) return class_called(value.as_string(), what);
  if (value.is_bool()) {
    for (const auto& [name, id] : ids_) {
      if (to_lower(name) == (value.as_bool() ? "true" : "false")) return id;
    }
    return value.as_bool() ? 1 : 0;
  }
  const bool is_whole = value.is_number() && value.as_double() == std::floor(value.as_double());
  if (!is_whole) {
    throw InputError(cat(what, " is ", value.is_number() ? value.dump() : value.kind(),
                         ": a class is a whole number from 0, or its name"));
  }
  const double number = value.as_double();
  constexpr double kLargest = 1e15;  // a number that a double holds exactly
  if (are_numbers_) {
    return class_called(
        std::abs(number) < kLargest ? cat(static_cast<int64_t>(number)) : value.dump(), what);
  }
  if (number >= 0 && number < static_cast<double>(names_.size())) {
    return static_cast<int64_t>(number);
  }
  if (number == -1) {
    throw InputError(
        cat(what, " is -1: this split hides its classes, as test sets of benchmarks do"));
  }
  throw InputError(cat(what, " is ", value.dump(), "; the model's classes are ",
                       classes_text(names_), ": model.num_labels says how many"));
}

size_t classified_place(const std::vector<int64_t>& ids, const ClassifierFacts& model,
                        std::optional<int64_t> pad_id) {
  if (model.is_encoder) return 0;
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
