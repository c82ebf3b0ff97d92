#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "peft/peft_config.h"

namespace automodel::peft {

/// Whether a pattern matches a module's whole name, by the rules of upstream 0.7.0: `*` is any
/// text, dots included; a dot is any character; `.*` after a whole component or a number matches
/// that component alone or with anything below it, so `*.layers.1.*` does not match layer 10.
bool wildcard_match(std::string_view pattern, std::string_view name);

/// The linear layers that a PeftConfig chooses.
class ModuleMatcher final {
 public:
  explicit ModuleMatcher(const PeftConfig& config);

  /// The patterns that choose: target_modules, or "*_proj" when the section chooses nothing.
  const std::vector<std::string>& targets() const { return targets_; }
  const std::vector<std::string>& excluded() const { return excluded_; }

  /// What chose the linear layer of this name: a pattern, or "all linear layers"; nullopt when it
  /// gets no adapter.
  std::optional<std::string> match(std::string_view name) const;

 private:
  std::vector<std::string> targets_;  // empty: all except excluded ones
  std::vector<std::string> excluded_;
};

/// A suggestion for a pattern that matches nothing: it with `*` in front, or the nearest of the
/// modules' last components; "" for none.
std::string nearest_pattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace automodel::peft
