#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/bind.h"
#include "config/diagnostic.h"
#include "config/node.h"
#include "core/error.h"
#include "core/json.h"

namespace automodel::config {

/// A `_target_` block, or the bare name of a `*_fn` key, split into name and arguments.
struct Target {
  std::string name;
  Node name_node;  ///< where the name is written, for errors
  Node arguments;  ///< the other keys (a mapping; empty for a bare name), in the file's order
};

/// True for a mapping with a `_target_`.
bool has_target(const Node& node);

/// Splits `{_target_: name, ...}` or a plain name; drops `_recursive_` and `_convert_`. Returns
/// nullopt after adding an error when the node is neither, or its name is `file.py:attr` (recipes
/// are data).
std::optional<Target> split_target(const Node& node, Diagnostics& diagnostics);

/// Adds findings about a target's arguments.
using OptionsCheck = std::function<void(const Target& target, Diagnostics& diagnostics)>;

/// What a registry knows about a name.
struct TargetInfo {
  std::string name;                  ///< upstream's dotted name
  std::vector<std::string> aliases;  ///< other dotted paths and the short name
  std::string doc;
  Json options = Json::object();    ///< JSON Schema of its arguments: schema_of<Options>()
  std::string unsupported_reason;   ///< not empty: a known name that is not built here
  OptionsCheck check_options = {};  ///< for a name that is not built; may be empty
};

/// Checks a target's arguments against the fields of an options struct, some of them required.
template <HasFields Options>
OptionsCheck check_options(std::vector<std::string> required = {}) {
  return [required](const Target& target, Diagnostics& diagnostics) {
    bind<Options>(target.arguments, diagnostics,
                  {.legacy_keys = {}, .other_keys = {}, .required_keys = required});
  };
}

/// The names of one kind of thing ("dataset", "optimizer").
class TargetNames {
 public:
  explicit TargetNames(std::string kind) : kind_(std::move(kind)) {}

  const std::string& kind() const { return kind_; }
  const std::vector<TargetInfo>& infos() const { return infos_; }

  /// Adds an entry; throws InternalError for a name that exists already.
  size_t add(TargetInfo info);
  /// Upstream names that this version does not build; looking one up is an "unsupported" finding.
  void add_unsupported(std::string name, std::string reason, std::vector<std::string> aliases = {},
                       OptionsCheck check = {});

  /// The entry for a name or alias.
  std::optional<size_t> find(std::string_view name) const;
  /// The entry for a target; adds a finding at its place if the name is unknown or unsupported.
  std::optional<size_t> resolve(const Target& target, Diagnostics& diagnostics) const;

 private:
  std::string kind_;
  std::vector<TargetInfo> infos_;
};

/// Names and the maker of each. One explicit function fills a registry, which is then passed down.
template <typename Maker>
class TargetRegistry final : public TargetNames {
 public:
  using TargetNames::TargetNames;

  void add(TargetInfo info, Maker maker) {
    const size_t index = TargetNames::add(std::move(info));
    AM_CHECK(index >= makers_.size());
    makers_.resize(index);
    makers_.push_back(std::move(maker));
  }

  /// The maker for a target; nullptr, after adding a finding, when there is none.
  const Maker* resolve_maker(const Target& target, Diagnostics& diagnostics) const {
    const std::optional<size_t> index = resolve(target, diagnostics);
    return index ? &makers_[*index] : nullptr;
  }

 private:
  std::vector<Maker> makers_;
};

}  // namespace automodel::config
