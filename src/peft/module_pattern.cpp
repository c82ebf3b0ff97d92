#include "peft/module_pattern.h"

#include "core/error.h"
#include "core/python_pattern.h"
#include "core/text.h"

namespace automodel::peft {

struct ModulePattern::Matchers {
  std::string key;
  std::vector<PythonPattern> of_entries;
};

namespace {

/// The expressions of `key`, told in what is thrown.
template <typename Body>
auto naming(const std::string& key, const std::string& expression, const Body& body) {
  try {
    return body();
  } catch (const UserError& error) {
    throw InputError(cat(key, " '", expression,
                         "' is not a regular expression that can be used: ", error.what()));
  }
}

}  // namespace

ModulePattern::ModulePattern(const std::string& key, const Json* value) {
  if (value == nullptr || value->is_null()) return;
  if (!value->is_object()) {
    throw InputError(cat(key, " is no object of module names and numbers"));
  }
  const auto matchers = std::make_shared<Matchers>();
  for (const auto& [expression, number] : value->as_object()) {
    if (!number.is_number()) throw InputError(cat(key, " of ", expression, " is no number"));
    matchers->of_entries.push_back(naming(key, expression, [&, &expression = expression] {
      return PythonPattern(cat("(.*\\.)?(", expression, ")"));
    }));
    entries_.emplace_back(expression, number.as_double());
  }
  matchers->key = key;
  matchers_ = matchers;
}

std::optional<double> ModulePattern::find(const std::string& module) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool is_match = naming(matchers_->key, entries_[i].first,
                                 [&] { return matchers_->of_entries[i].is_all_of(module); });
    if (is_match) return entries_[i].second;
  }
  return std::nullopt;
}

}  // namespace automodel::peft
