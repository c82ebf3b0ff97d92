#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/node.h"
#include "config/source.h"
#include "core/json.h"

namespace automodel::config {

enum class Severity {
  kError,        ///< wrong: exit code 2
  kUnsupported,  ///< right, but not in this version: exit code 6
  kWarning,
  kNote,
};

/// One problem found in a recipe.
struct Finding {
  Severity severity = Severity::kError;
  std::string text;  ///< what is wrong with the values, then what would be right
  std::string path;  ///< key path, "" for none
  Position position;
  std::optional<Position> other_place;  ///< where the clashing key is
  std::string other_text;               ///< "first here"
};

/// The value of a key that a recipe leaves out.
struct DefaultValue {
  std::string path;
  Json value;
};

/// Collects findings while a recipe is read, so that all can be shown together:
///
///   recipe.yaml:12:12: error: tp_size 3 does not divide num_attention_heads 32
///   [distributed.tp_size]
///     tp_size: 3
///              ^
///
/// Keeps a reference to the sources: they must outlive it.
class Diagnostics final {
 public:
  explicit Diagnostics(const Sources& sources) : sources_(&sources) {}

  /// Each adds a finding at a value.
  void error(const Node& node, std::string text);
  void unsupported(const Node& node, std::string text);
  void warning(const Node& node, std::string text);
  void note(const Node& node, std::string text);
  /// Each adds a finding at a key rather than its value (unknown or misplaced keys).
  void error_at_key(const Node& node, std::string text);
  void warning_at_key(const Node& node, std::string text);
  /// Reports a key that nothing reads: an error, unless keys_are_open().
  void unknown_key(const Node& node, std::string text);
  /// From now on unknown and missing keys count as unsupported instead of wrong, because the recipe
  /// is of a kind whose keys are not known here.
  void keys_are_open() { absence_severity_ = Severity::kUnsupported; }
  /// Reports a key missing from `parent`; shown at the parent's own key, with the path parent.key.
  void missing(const Node& parent, std::string_view key, std::string text);
  /// Reports two keys that exclude each other, with both places.
  void clash(const Node& node, const Node& other, std::string text, std::string other_text);
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  /// Keeps the value that a key has because the recipe leaves it out.
  void add_default(std::string path, Json value);
  /// Values of keys that were left out, each key once, as it was read last.
  const std::vector<DefaultValue>& defaults() const { return defaults_; }

  /// Gives the kind of a class ("optimizer"; "" for an unknown one), for errors about targets that
  /// name a class of another kind.
  void know_kinds(std::function<std::string(const std::string& name)> kind_of) {
    kind_of_ = std::move(kind_of);
  }
  std::string kind_of(const std::string& name) const { return kind_of_ ? kind_of_(name) : ""; }

  /// Gives the hint for a key that its section does not have and another may.
  void know_keys(std::function<std::string(const Node& key)> hint_elsewhere) {
    hint_elsewhere_ = std::move(hint_elsewhere);
  }
  /// "; did you mean 'optimizer.lr'?"; "" where no section has the key.
  std::string hint_elsewhere(const Node& key) const {
    return hint_elsewhere_ ? hint_elsewhere_(key) : "";
  }

  const std::vector<Finding>& findings() const { return findings_; }
  const Sources& sources() const { return *sources_; }
  /// Errors and unsupported findings.
  bool has_errors() const;
  size_t count(Severity severity) const;

  /// `file:line:col: error: text [path]`, the line and a caret; no final newline.
  std::string render(const Finding& finding) const;
  std::vector<std::string> render_all(Severity severity) const;

  /// Throws UserError with all errors, or UnsupportedError when all are of that kind; returns when
  /// there are none.
  void throw_if_errors() const;

 private:
  std::string render_place(const Position& position, std::string_view rest) const;

  const Sources* sources_;
  std::vector<Finding> findings_;
  std::vector<DefaultValue> defaults_;
  Severity absence_severity_ = Severity::kError;
  std::function<std::string(const std::string& name)> kind_of_;
  std::function<std::string(const Node& key)> hint_elsewhere_;
};

}  // namespace automodel::config
