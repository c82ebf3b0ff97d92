#include "config/diagnostic.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "config/print.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::config {

namespace {

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kUnsupported:
      return "unsupported";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "?";
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

bool is_key_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

/// Where the value that begins at `begin` ends: a quoted one behind its quote, another before what
/// ends it in YAML.
size_t end_of_value(std::string_view line, size_t begin) {
  const char quote = begin < line.size() ? line[begin] : ' ';
  if (quote == '"' || quote == '\'') {
    const size_t end = line.find(quote, begin + 1);
    return end == std::string_view::npos ? line.size() : end + 1;
  }
  const size_t end = std::min(line.find_first_of(",}]", begin), line.find(" #", begin));
  return std::min(end, line.size());
}

/// The line with a star for each character of values whose keys name secrets, in YAML or in an
/// argument; a value of the environment is not in the line.
std::string with_hidden_secrets(std::string_view line) {
  std::string out;
  size_t at = 0;
  while (at < line.size()) {
    size_t end = at;
    while (end < line.size() && is_key_letter(line[end])) ++end;
    const std::string_view word = line.substr(at, end - at);
    size_t value = end;
    if (value < line.size() && (line[value] == '"' || line[value] == '\'')) ++value;
    while (value < line.size() && line[value] == ' ') ++value;
    const bool is_key =
        !word.empty() && value < line.size() && (line[value] == ':' || line[value] == '=');
    if (is_key && is_secret_key(word.substr(word.rfind('.') + 1))) {
      ++value;
      while (value < line.size() && line[value] == ' ') ++value;
      const size_t value_end = end_of_value(line, value);
      out += line.substr(at, value - at);
      const std::string_view secret = line.substr(value, value_end - value);
      if (secret.starts_with("${")) {
        out += secret;
      } else {
        const auto is_first = [](char c) { return !is_continuation(c); };
        out.append(static_cast<size_t>(std::ranges::count_if(secret, is_first)), '*');
      }
      at = value_end;
    } else {
      end = std::max(end, at + 1);
      out += line.substr(at, end - at);
      at = end;
    }
  }
  return out;
}

/// The line with its caret, both without the line's indentation and cut to a readable width.
std::string excerpt(std::string_view line, int column) {
  constexpr size_t kWidest = 120;
  size_t caret = 0;  // byte offset of the column
  for (int i = 1; i < column && caret < line.size(); ++i) {
    ++caret;
    while (caret < line.size() && is_continuation(line[caret])) ++caret;
  }
  size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  begin = std::min(begin, caret);
  std::string before;
  if (caret - begin > kWidest * 2 / 3) {
    begin = caret - kWidest / 2;
    while (begin < caret && is_continuation(line[begin])) ++begin;
    before = "...";
  }
  std::string_view shown = line.substr(begin);
  std::string after;
  if (shown.size() > kWidest) {
    size_t end = kWidest;
    while (end > 0 && is_continuation(shown[end])) --end;
    shown = shown.substr(0, end);
    after = "...";
  }
  while (after.empty() && !shown.empty() && (shown.back() == ' ' || shown.back() == '\t')) {
    shown.remove_suffix(1);
  }
  std::string pad(before.size(), ' ');
  for (const char c : line.substr(begin, caret - begin)) {
    if (!is_continuation(c)) pad.push_back(c == '\t' ? '\t' : ' ');
  }
  return cat("\n  ", before, shown, after, "\n  ", pad, "^");
}

}  // namespace

void Diagnostics::error(const Node& node, std::string text) {
  findings_.push_back({Severity::kError, std::move(text), node.path(), node.position(), {}, {}});
}

void Diagnostics::unsupported(const Node& node, std::string text) {
  findings_.push_back(
      {Severity::kUnsupported, std::move(text), node.path(), node.position(), {}, {}});
}

void Diagnostics::warning(const Node& node, std::string text) {
  findings_.push_back({Severity::kWarning, std::move(text), node.path(), node.position(), {}, {}});
}

void Diagnostics::note(const Node& node, std::string text) {
  findings_.push_back({Severity::kNote, std::move(text), node.path(), node.position(), {}, {}});
}

void Diagnostics::error_at_key(const Node& node, std::string text) {
  findings_.push_back(
      {Severity::kError, std::move(text), node.path(), node.key_position(), {}, {}});
}

void Diagnostics::unknown_key(const Node& node, std::string text) {
  findings_.push_back(
      {absence_severity_, std::move(text), node.path(), node.key_position(), {}, {}});
}

void Diagnostics::warning_at_key(const Node& node, std::string text) {
  findings_.push_back(
      {Severity::kWarning, std::move(text), node.path(), node.key_position(), {}, {}});
}

void Diagnostics::missing(const Node& parent, std::string_view key, std::string text) {
  // A key without a value has a place of its own.
  const Node* const child = parent.is_mapping() ? parent.find(key) : nullptr;
  const Node& named = child == nullptr ? parent : *child;
  const Position& place = named.key_position().is_known() ? named.key_position() : named.position();
  const std::string path = parent.path().empty() ? std::string(key) : cat(parent.path(), ".", key);
  findings_.push_back({absence_severity_, std::move(text), path, place, {}, {}});
}

void Diagnostics::clash(const Node& node, const Node& other, std::string text,
                        std::string other_text) {
  findings_.push_back({Severity::kError, std::move(text), node.path(), node.position(),
                       other.position(), std::move(other_text)});
}

void Diagnostics::add_default(std::string path, Json value) {
  const auto known = std::ranges::find(defaults_, path, &DefaultValue::path);
  if (known == defaults_.end()) {
    defaults_.push_back({std::move(path), std::move(value)});
  } else {
    known->value = std::move(value);
  }
}

bool Diagnostics::has_errors() const {
  return std::any_of(findings_.begin(), findings_.end(), [](const Finding& finding) {
    return finding.severity == Severity::kError || finding.severity == Severity::kUnsupported;
  });
}

size_t Diagnostics::count(Severity severity) const {
  return static_cast<size_t>(
      std::count_if(findings_.begin(), findings_.end(),
                    [&](const Finding& finding) { return finding.severity == severity; }));
}

std::string Diagnostics::render_place(const Position& position, std::string_view rest) const {
  if (!position.is_known()) return std::string(rest);
  const Source& source = (*sources_)[static_cast<size_t>(position.source)];
  const std::string place = source.is_argument
                                ? cat(source.name, ": ")
                                : cat(source.name, ":", position.line, ":", position.column, ": ");
  const std::string_view line = source.line(position.line);
  if (trim(line).empty()) return cat(place, rest);
  return cat(place, rest, excerpt(with_hidden_secrets(line), position.column));
}

namespace {

/// A recipe's, an argument's or a server's text may hold what a terminal would obey.
std::string without_controls(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool is_control = (code < 0x20 && c != '\n' && c != '\t') || code == 0x7F;
    out += is_control ? cat("\\x", "0123456789abcdef"[code >> 4], "0123456789abcdef"[code & 15])
                      : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string Diagnostics::render(const Finding& finding) const {
  const std::string path = finding.path.empty() ? "" : cat(" [", finding.path, "]");
  std::string out = render_place(finding.position,
                                 cat(severity_name(finding.severity), ": ", finding.text, path));
  if (finding.other_place && finding.other_place->is_known()) {
    out += cat("\n", render_place(*finding.other_place, cat("note: ", finding.other_text)));
  }
  return without_controls(out);
}

std::vector<std::string> Diagnostics::render_all(Severity severity) const {
  std::vector<std::string> texts;
  for (const Finding& finding : findings_) {
    if (finding.severity == severity) texts.push_back(render(finding));
  }
  return texts;
}

void Diagnostics::throw_if_errors() const {
  if (!has_errors()) return;
  std::vector<std::string> texts = render_all(Severity::kError);
  const bool is_wrong = !texts.empty();
  for (std::string& text : render_all(Severity::kUnsupported)) texts.push_back(std::move(text));
  const std::string all = join(texts, "\n");
  if (!is_wrong) throw UnsupportedError(all);
  throw UserError(all);
}

}  // namespace automodel::config
