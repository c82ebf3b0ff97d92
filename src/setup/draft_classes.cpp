#include "setup/draft_classes.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "core/error.h"

namespace automodel::setup {

namespace {

std::string first_column(const Json& row, std::initializer_list<const char*> names) {
  const auto is_there = [&](const char* name) { return row.contains(name); };
  const auto* const found = std::ranges::find_if(names, is_there);
  return found == names.end() ? "" : *found;
}

}  // namespace

ClassColumns class_columns(const Json& row, const ClassColumns& named, const std::string& data) {
  if (!named.text.empty()) return named;
  ClassColumns columns;
  columns.text = first_column(row, {"text", "sentence", "sentence1", "question1", "premise",
                                    "content", "review", "title", "input"});
  columns.label = first_column(
      row, {"label", "labels", "class", "category", "intent", "sentiment", "topic", "target"});
  const std::pair<const char*, const char*> pairs[] = {
      {"sentence1", "sentence2"}, {"question1", "question2"}, {"premise", "hypothesis"}};
  for (const auto& [first, second] : pairs) {
    if (columns.text == first && row.contains(second)) columns.pair = second;
  }
  if (!columns.text.empty() && !columns.label.empty()) return columns;
  std::vector<std::string> all;
  for (const auto& [key, value] : row.as_object()) all.push_back(key);
  throw InputError(cat("--data ", data, ": no text with a class is found in the columns ",
                       join(all, ", "),
                       "; usual names are text or sentence, and label or class; --columns "
                       "text=NAME,label=NAME names others, pair=NAME a second text"));
}

ClassFacts look_at_classes(const datasets::RowSource& source, const ClassColumns& named,
                           const std::string& data) {
  constexpr size_t kMostClasses = 1000;
  ClassFacts facts{.columns = class_columns(source.row(0), named, data)};
  const std::string& label = facts.columns.label;
  std::set<std::string> names;
  std::set<int64_t> numbers;
  for (int64_t i = 0; i < source.size(); ++i) {
    const Json row = source.row(i);
    const Json& value = datasets::required_column(row, label, source, i);
    if (value.is_string()) {
      names.insert(value.as_string());
    } else if (value.is_bool()) {
      numbers.insert(value.as_bool() ? 1 : 0);
    } else if (value.is_int() && value.as_int() >= 0) {
      numbers.insert(value.as_int());
    } else {
      throw InputError(cat(source.origin(i), ": column '", label, "' is ", value.dump(),
                           ": a class is a whole number from 0, or a name"));
    }
    if (!names.empty() && !numbers.empty()) {
      throw InputError(
          cat(source.origin(i), ": column '", label, "' has names and numbers in turn"));
    }
    const bool are_too_many = names.size() > kMostClasses ||
                              (!numbers.empty() && *numbers.rbegin() >= int64_t{kMostClasses});
    if (are_too_many) {
      throw InputError(cat("--data ", data, ": column '", label, "' has more than ", kMostClasses,
                           " values, which are no classes; --columns text=NAME,label=NAME names "
                           "another"));
    }
  }
  if (names.size() + numbers.size() < 2) {
    throw InputError(cat("--data ", data, ": all rows have one class in column '", label, "'"));
  }
  facts.names.assign(names.begin(), names.end());
  facts.num_classes = names.empty() ? *numbers.rbegin() + 1 : std::ssize(facts.names);
  return facts;
}

}  // namespace automodel::setup
