#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::peft {

/// PEFT's rank_pattern or alpha_pattern: numbers of the modules that expressions name. The first
/// expression counts that is a module's name or its end behind a dot.
class ModulePattern {
 public:
  /// Gives no module a number.
  ModulePattern() = default;
  /// From an adapter_config.json's value of `key`, or null. Throws InputError for another form and
  /// for what is no regular expression of Python's.
  ModulePattern(const std::string& key, const Json* value);

  /// `module`: its name in transformers' modules.
  std::optional<double> find(const std::string& module) const;

  bool is_empty() const { return entries_.empty(); }
  /// Expressions and numbers, in order.
  const std::vector<std::pair<std::string, double>>& entries() const { return entries_; }

 private:
  struct Matchers;

  std::vector<std::pair<std::string, double>> entries_;
  std::shared_ptr<const Matchers> matchers_;
};

}  // namespace automodel::peft
