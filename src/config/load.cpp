#include "config/load.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "config/interpolate.h"
#include "config/override.h"
#include "config/scalar.h"
#include "config/yaml_guard.h"
#include "config/yaml_reader.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::config {

namespace {

bool names_python(std::string_view key) {
  return key == "_target_" || key.ends_with("_fn");
}

/// A NUL would end a path, or a name that is given to the system, in its middle.
void refuse_nul(const Node& node, Diagnostics& diagnostics) {
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (has_nul(node.key())) {
    diagnostics.error_at_key(node, "a key may not hold the character NUL");
  } else if (const auto text = node.string_value(); text && has_nul(*text)) {
    diagnostics.error(node, "a text may not hold the character NUL");
  }
  for (const Node& child : node.children()) refuse_nul(child, diagnostics);
}

/// Hydra's keys of a target, which say how Python objects are made.
void warn_of_hydra_keys(const Node& node, Diagnostics& diagnostics) {
  if (node.key() == "_recursive_" || node.key() == "_convert_") {
    diagnostics.warning_at_key(node, cat("'", node.key(),
                                         "' has no effect here: it is for Hydra, and arguments "
                                         "with a _target_ of their own are always built"));
  }
  for (const Node& child : node.children()) warn_of_hydra_keys(child, diagnostics);
}

/// Whether a file's value of this text is null.
bool is_yaml_null(std::string_view text) {
  return text == "null" || text == "Null" || text == "NULL" || text == "~";
}

/// Replaces `${ENV}` in one string and translates the result.
void resolve_string(Node& node, const Environment& environment, Diagnostics& diagnostics) {
  const std::string raw = *node.string_value();
  Interpolated result = interpolate(raw, environment);
  for (std::string& problem : result.problems) diagnostics.error(node, std::move(problem));
  if (!result.problems.empty()) return;
  if (result.has_open_brace) {
    diagnostics.warning(node,
                        "'${' is kept as it is: no '}' ends the name of a variable behind it");
  }
  if (node.style() == ScalarStyle::kArgument && is_yaml_null(result.text)) {
    diagnostics.warning(
        node, cat("'", result.text, "' is a text on the command line; `none` stands for no value"));
  }
  node.assume_value(translate_text(result.text));
  node.set_scalar_text(raw, std::move(result.text), node.style());
}

/// Upstream's scalar rules for a whole tree: names of Python objects stay, other strings are
/// interpolated and translated. What a string turns into is not looked at again.
void resolve_strings(Node& node, const Environment& environment, Diagnostics& diagnostics) {
  if (node.is_string()) {
    const std::string text = *node.string_value();
    if (!names_python(node.key())) {
      resolve_string(node, environment, diagnostics);
    } else if (text == "none" || text == "None") {
      node.assume_value(Node::null());
    }
    return;
  }
  if (node.style() != ScalarStyle::kNone) return;
  for (Node& child : node.children()) resolve_strings(child, environment, diagnostics);
}

/// \r\n and \r become \n, so that every part of the reader counts the same lines.
std::string normalise_line_ends(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string lines(text);
  if (lines.find('\r') == std::string::npos) return lines;
  lines = replace_all(std::move(lines), "\r\n", "\n");
  std::replace(lines.begin(), lines.end(), '\r', '\n');
  return lines;
}

}  // namespace

Document load_text(std::string text, std::string name, std::span<const std::string> overrides,
                   const Environment& environment) {
  Document document;
  document.sources.push_back({std::move(name), normalise_line_ends(text), false});
  Diagnostics diagnostics(document.sources);
  document.root = read_yaml(document.sources, 0, diagnostics);
  const std::vector<Override> parsed = parse_overrides(overrides, document.sources, diagnostics);
  if (document.root.is_mapping()) {
    document.root.assign_paths("");
    for (const Override& override : parsed) apply_override(override, document.root, diagnostics);
    resolve_strings(document.root, environment, diagnostics);
    document.root.assign_paths("");
    refuse_nul(document.root, diagnostics);
    warn_of_hydra_keys(document.root, diagnostics);
  }
  diagnostics.throw_if_errors();
  document.warnings = diagnostics.render_all(Severity::kWarning);
  return document;
}

namespace {

/// A recipe's text; of a file that is too large, or has no end, one byte more than a recipe may
/// have.
std::string read_text(const std::string& path) {
  std::error_code error;
  const bool is_small = std::filesystem::is_regular_file(path, error) &&
                        std::filesystem::file_size(path, error) <= kLargestText;
  if (is_small || is_directory(path)) return read_file(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return read_file(path);  // which says why it cannot
  std::string text(kLargestText + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

Document load_recipe(const std::string& path, std::span<const std::string> overrides,
                     const Environment& environment) {
  if (!path_exists(path)) {
    const bool is_name = file_name(path).find('.') == std::string::npos;
    throw UserError(cat("there is no recipe ", path, similar_path_hint(path),
                        is_name
                            ? "; automodel ls names those that come with the program, automodel "
                              "cp copies one"
                            : ""));
  }
  return load_text(read_text(path), path, overrides, environment);
}

}  // namespace automodel::config
