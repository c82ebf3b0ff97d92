#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "peft/peft_config.h"

namespace automodel::peft {

/// Whether a pattern stands for a module's whole name, as in upstream 0.7.0: `*` is any text, also
/// with dots; a dot is any character; `.*` behind a whole part of a name or a number is that part
/// alone or with anything below it, so `*.layers.1.*` is not about layer 10.
bool wildcard_match(std::string_view pattern, std::string_view name);

/// Which linear layers a PeftConfig means.
class ModuleMatcher final {
 public:
  explicit ModuleMatcher(const PeftConfig& config);

  /// The patterns that choose: target_modules, or "*_proj" where the section chooses nothing.
  const std::vector<std::string>& targets() const { return targets_; }
  const std::vector<std::string>& excluded() const { return excluded_; }

  /// What has chosen the linear layer of this name: a pattern, or "all linear layers"; nullopt
  /// where it gets no adapter.
  std::optional<std::string> match(std::string_view name) const;

 private:
  std::vector<std::string> targets_;  // empty: all but the excluded ones
  std::vector<std::string> excluded_;
};

/// The name in which a pattern that chooses nothing may have been meant: with `*` in front, or the
/// nearest of the modules' last parts; "" for none.
std::string nearest_pattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace automodel::peft
