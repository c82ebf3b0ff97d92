#include "config/registry.h"

#include <algorithm>
#include <array>

#include "config/other_names.h"
#include "core/text.h"

namespace automodel::config {

namespace {

constexpr const char* kTarget = "_target_";

/// The name of a class or function without its module: "AdamW", "AutoConfig" (of
/// "transformers.AutoConfig.from_pretrained").
std::string plain_name(std::string_view dotted) {
  size_t dot = dotted.rfind('.');
  if (dot != std::string_view::npos && dotted.substr(dot + 1).starts_with("from_")) {
    dotted = dotted.substr(0, dot);
    dot = dotted.rfind('.');
  }
  return std::string(dot == std::string_view::npos ? dotted : dotted.substr(dot + 1));
}

/// True for a dotted name of the Python packages that recipes are written for.
bool is_upstream_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kPackages = {
      "nemo_automodel.", "transformers.",       "torch.",   "torchao.",
      "torchdata.",      "transformer_engine.", "megatron."};
  return std::any_of(kPackages.begin(), kPackages.end(),
                     [&](std::string_view package) { return name.starts_with(package); });
}

bool differs_in_digits(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text) {
    std::string kept;
    for (const char c : text) {
      if (c >= '0' && c <= '9') kept += c;
    }
    return kept;
  };
  return digits(a) != digits(b);
}

/// The name that was meant: one of the same class or function elsewhere, or of a similar one.
/// Upstream has more names than are known here, alike ones too (KimiLinear48BConfig): of its
/// packages only a slip of a letter or two is taken for another name.
std::optional<std::string> meant_name(const std::string& found,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> plain;
  for (const std::string& name : names) plain.push_back(plain_name(name));
  std::string wanted = plain_name(found);
  const bool is_known = std::find(plain.begin(), plain.end(), wanted) != plain.end();
  if (is_upstream_name(found) && !is_known) {
    constexpr int kSlip = 2;
    const std::optional<std::string> closest = closest_match(found, names);
    if (!closest || edit_distance(found, *closest) > kSlip || differs_in_digits(found, *closest)) {
      return std::nullopt;
    }
    // Two letters of a short class are more than a slip: Lion is not Muon.
    const std::string candidate[] = {plain_name(*closest)};
    return candidate[0] == wanted || closest_match(wanted, candidate) ? closest : std::nullopt;
  }
  if (std::find(plain.begin(), plain.end(), wanted) == plain.end()) {
    const std::optional<std::string> closest = closest_match(wanted, plain);
    if (!closest) return std::nullopt;
    wanted = *closest;
  }
  std::vector<std::string> candidates;
  for (size_t i = 0; i < names.size(); ++i) {
    if (plain[i] == wanted) candidates.push_back(names[i]);
  }
  return closest_match(found, candidates).value_or(candidates.front());
}

bool is_python_file(std::string_view name) {
  const size_t colon = name.find(':');
  return colon != std::string_view::npos || name.ends_with(".py");
}

std::string with_article(const std::string& kind) {
  if (kind == "experts") return "a class of experts";
  const bool has_vowel = std::string_view("aeiou").find(kind.front()) != std::string_view::npos;
  return cat(has_vowel ? "an " : "a ", kind);
}

}  // namespace

bool has_target(const Node& node) {
  return node.find(kTarget) != nullptr;
}

/// Reports that a section has no `_target_`: at a key that is nearly its name, else at the section.
void report_missing_target(const Node& section, Diagnostics& diagnostics) {
  const std::string names[] = {kTarget};
  for (const Node& child : section.children()) {
    const std::string hint = did_you_mean(child.key(), names);
    if (hint.empty()) continue;
    diagnostics.unknown_key(child, cat("unknown key '", child.key(), "'", hint));
    return;
  }
  const std::string_view example = example_target(section.path());
  diagnostics.missing(section, kTarget,
                      cat("No _target_ found to instantiate",
                          example.empty() ? "" : cat("; write one, e.g. _target_: ", example)));
}

std::optional<Target> split_target(const Node& node, Diagnostics& diagnostics) {
  Target target;
  target.arguments = Node::mapping();
  if (node.is_mapping()) {
    const Node* name = node.find(kTarget);
    if (name == nullptr) {
      report_missing_target(node, diagnostics);
      return std::nullopt;
    }
    target.name_node = *name;
    target.arguments = node.without(kTarget).without("_recursive_").without("_convert_");
  } else {
    target.name_node = node;
  }
  const std::optional<std::string> name = target.name_node.string_value();
  if (!target.name_node.is_string() || trim(*name).empty()) {
    diagnostics.error(target.name_node, cat("expected the dotted name of a target, found ",
                                            target.name_node.describe()));
    return std::nullopt;
  }
  target.name = *name;
  if (is_python_file(target.name)) {
    if (trim(target.name).starts_with('{')) {
      diagnostics.error(target.name_node,
                        cat("expected the dotted name of a target, found the text '", target.name,
                            "'; on the command line a mapping's keys are given one by one: "
                            "--section._target_=NAME --section.key=value"));
      return std::nullopt;
    }
    diagnostics.error(target.name_node,
                      cat("'", target.name,
                          "' would load Python code; a recipe is data here, so a target is one of "
                          "the names this program knows"));
    return std::nullopt;
  }
  return target;
}

size_t TargetNames::add(TargetInfo info) {
  AM_CHECK(!find(info.name), kind_, " '", info.name, "' is registered twice");
  for (const std::string& alias : info.aliases) {
    AM_CHECK(!find(alias), kind_, " alias '", alias, "' is registered twice");
  }
  infos_.push_back(std::move(info));
  return infos_.size() - 1;
}

void TargetNames::add_unsupported(std::string name, std::string reason,
                                  std::vector<std::string> aliases, OptionsCheck check) {
  TargetInfo info;
  info.check_options = std::move(check);
  info.name = std::move(name);
  info.aliases = std::move(aliases);
  info.unsupported_reason = std::move(reason);
  add(std::move(info));
}

std::optional<size_t> TargetNames::find(std::string_view name) const {
  for (size_t i = 0; i < infos_.size(); ++i) {
    const TargetInfo& info = infos_[i];
    if (info.name == name) return i;
    if (std::find(info.aliases.begin(), info.aliases.end(), name) != info.aliases.end()) return i;
  }
  return std::nullopt;
}

std::optional<size_t> TargetNames::resolve(const Target& target, Diagnostics& diagnostics) const {
  const std::optional<size_t> index = find(target.name);
  if (index) {
    const std::string& reason = infos_[*index].unsupported_reason;
    if (reason.empty()) return index;
    if (const OptionsCheck& check = infos_[*index].check_options) check(target, diagnostics);
    diagnostics.unsupported(target.name_node,
                            cat(kind_, " '", target.name, "' is not in this version: ", reason));
    return std::nullopt;
  }
  std::vector<std::string> names, missing;
  for (const TargetInfo& info : infos_) {
    std::vector<std::string>& all = info.unsupported_reason.empty() ? names : missing;
    all.push_back(info.name);
    all.insert(all.end(), info.aliases.begin(), info.aliases.end());
  }
  const std::string elsewhere(target_here(target.name));
  const std::optional<std::string> meant = std::ranges::find(names, elsewhere) != names.end()
                                               ? std::optional(elsewhere)
                                               : meant_name(target.name, names);
  const std::optional<std::string> gone = meant_name(target.name, missing);
  const auto distance = [&](const std::string& name) {
    return edit_distance(to_lower(plain_name(target.name)), to_lower(plain_name(name)));
  };
  if (gone && (!meant || distance(*gone) < distance(*meant))) {
    diagnostics.error(target.name_node, cat("unknown ", kind_, " '", target.name, "'; '", *gone,
                                            "', which it is near, is not in this version"));
    return std::nullopt;
  }
  if (meant) {
    diagnostics.error(target.name_node,
                      cat("unknown ", kind_, " '", target.name, "'; did you mean '", *meant, "'?"));
    return std::nullopt;
  }
  constexpr size_t kFew = 4;  // names that are worth listing
  std::vector<std::string> plain;
  for (const TargetInfo& info : infos_) {
    std::string name = plain_name(info.name);
    const bool is_new = std::ranges::find(plain, name) == plain.end();
    if (info.unsupported_reason.empty() && is_new) plain.push_back(std::move(name));
  }
  const std::string known = plain.size() > kFew ? "" : cat("; known are ", join(plain, ", "));
  const std::string other = diagnostics.kind_of(target.name);
  if (!other.empty() && other != kind_) {
    diagnostics.error(target.name_node, cat("'", target.name, "' is ", with_article(other),
                                            ", not ", with_article(kind_), known));
  } else if (is_upstream_name(target.name)) {
    diagnostics.unsupported(target.name_node,
                            cat(kind_, " '", target.name, "' is not in this version"));
  } else {
    diagnostics.error(target.name_node, cat("unknown ", kind_, " '", target.name, "'", known));
  }
  return std::nullopt;
}

}  // namespace automodel::config
