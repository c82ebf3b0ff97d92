#include "config/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "config/scalar.h"
#include "config/yaml_guard.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

constexpr size_t kMostNodes = 100000;  // after aliases are expanded
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

/// Thrown inside this file only: what is wrong, where.
struct ReadProblem {
  Position position;
  std::string text;
};

/// yaml-cpp writes the escapes \N and \_ as single bytes 0x85 and 0xA0: makes UTF-8 of them.
std::string repair_escapes(const std::string& value) {
  if (is_utf8(value)) return value;
  std::string out;
  uint32_t code = 0;
  for (size_t at = 0; at < value.size();) {
    const size_t length = decode_utf8(value, at, code);
    if (length == 0) out.push_back('\xC2');
    out.append(value, at, length == 0 ? 1 : length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

size_t count_nodes(const Node& node) {
  size_t count = 1;
  for (const Node& child : node.children()) count += count_nodes(child);
  return count;
}

/// Builds the tree from yaml-cpp's events, with an explicit stack.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const Sources& sources, int source, Diagnostics& diagnostics)
      : source_(source), diagnostics_(diagnostics) {
    const std::string& text = sources[static_cast<size_t>(source)].text;
    lines_.push_back(text);
    for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
      lines_.push_back(std::string_view(text).substr(at + 1));
    }
  }

  Node take_root() { return std::move(root_); }
  bool has_document() const { return has_document_; }
  Position position_of(const YAML::Mark& mark) const {
    const size_t line = static_cast<size_t>(std::max(mark.line, 0));
    Position position{source_, static_cast<int>(line) + 1, 1};
    if (line >= lines_.size()) return position;
    const std::string_view before =
        lines_[line].substr(0, static_cast<size_t>(std::max(mark.column, 0)));
    position.column += static_cast<int>(std::count_if(before.begin(), before.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
    return position;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      const bool is_marked = rest_of_line(mark).starts_with("---");
      throw ReadProblem{
          position_of(mark),
          cat("a second document; a recipe is one YAML document",
              is_marked ? "" : ". Or is this line indented less than the first one?")};
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const std::string word = plain_word_at(mark);
    const bool is_written = word == "~" || to_lower(word) == "null";
    if (!is_written && !stack_.empty() && stack_.back().has_key && stack_.back().lacks_colon) {
      throw ReadProblem{stack_.back().key_position,
                        cat("a ':' is missing behind '", stack_.back().key, "'")};
    }
    Node node = Node::null();
    // An empty value has no place of its own: yaml-cpp gives the next token's.
    node.set_position(is_written || stack_.empty() || !stack_.back().has_key
                          ? position_of(mark)
                          : stack_.back().key_position);
    node.set_scalar_text(word, word, ScalarStyle::kPlain);
    if (!is_written) node.set_scalar_text("", "", ScalarStyle::kPlain);
    add_scalar(std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& written) override {
    const std::string value = repair_escapes(written);
    const YAML::Mark begin = skip_properties(mark);
    const Position position = position_of(begin);
    check_closed(begin, position);
    Node node = make_scalar(tag, value, position);
    const bool is_plain = tag == "?" || (tag != "!" && !is_quote_at(position));
    node.set_scalar_text(value, value, is_plain ? ScalarStyle::kPlain : ScalarStyle::kQuoted);
    node.set_position(position);
    const bool is_key =
        !stack_.empty() && stack_.back().node.is_mapping() && !stack_.back().has_key;
    add_scalar(std::move(node), anchor);
    if (is_key && is_plain) stack_.back().lacks_colon = is_without_colon(begin, written);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Position position = position_of(mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      throw ReadProblem{position, "this alias stands inside the value that it names"};
    }
    num_nodes_ += count_nodes(found->second);
    check_size(position);
    Node copy = found->second;
    if (copy.is_scalar()) copy.set_position(position);
    add(std::move(copy));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::sequence(), mark, tag, "seq", anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Node::mapping(), mark, tag, "map", anchor);
    stack_.back().is_flow = style == YAML::EmitterStyle::Flow;
  }
  void OnMapEnd() override {
    apply_merges(stack_.back());
    close();
  }

 private:
  struct Level {
    Node node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // a mapping that waits for a value
    bool is_merge = false;
    bool is_flow = false;      // {a: 1}, where a key may stand alone
    bool lacks_colon = false;  // the key
    std::string key;
    Position key_position;
    std::vector<Node> merges;
  };

  void check_size(const Position& position) const {
    if (num_nodes_ <= kMostNodes) return;
    throw ReadProblem{position, cat("the recipe has more than ", kMostNodes,
                                    " values once aliases are expanded")};
  }

  static Node make_scalar(const std::string& tag, const std::string& value,
                          const Position& position) {
    if (tag == "!" || tag == std::string(kCoreTag) + "str") return Node::string(value);
    if (tag != "?" && !tag.starts_with(kCoreTag)) refuse_tag(tag, position);
    const std::optional<Node> node = resolve_plain_scalar(value);
    if (!node) throw ReadProblem{position, cat("'", value, "' is no valid date or number")};
    if (tag == "?") return *node;
    const std::string_view name = std::string_view(tag).substr(kCoreTag.size());
    const bool is_right = (name == "null" && node->is_null()) ||
                          (name == "bool" && node->kind() == NodeKind::kBool) ||
                          (name == "int" && node->kind() == NodeKind::kInt) ||
                          (name == "float" && node->is_number()) ||
                          (name == "timestamp" && node->kind() == NodeKind::kDate);
    if (name == "float" && node->kind() == NodeKind::kInt) return Node::real(*node->number());
    if (is_right) return *node;
    const bool is_known =
        name == "null" || name == "bool" || name == "int" || name == "float" || name == "timestamp";
    if (!is_known) refuse_tag(tag, position);
    throw ReadProblem{position, cat("'", value, "' does not fit its tag !!", name)};
  }

  [[noreturn]] static void refuse_tag(const std::string& tag, const Position& position) {
    const std::string shown =
        tag.starts_with(kCoreTag) ? cat("!!", tag.substr(kCoreTag.size())) : tag;
    throw ReadProblem{position,
                      cat("the tag '", shown,
                          "' has no meaning in a recipe; the tags are !!str, !!int, !!float, "
                          "!!bool, !!null, !!timestamp, !!seq and !!map")};
  }

  /// From a place to the end of the text.
  std::string_view text_from(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<size_t>(mark.line) >= lines_.size()) return {};
    const std::string_view rest = lines_[static_cast<size_t>(mark.line)];
    return rest.substr(std::min(static_cast<size_t>(std::max(mark.column, 0)), rest.size()));
  }

  std::string_view rest_of_line(const YAML::Mark& mark) const {
    const std::string_view rest = text_from(mark);
    return rest.substr(0, rest.find('\n'));
  }

  /// yaml-cpp takes the end of the text for a closing quote.
  void check_closed(const YAML::Mark& mark, const Position& position) const {
    const std::string_view text = text_from(mark);
    if (!text.starts_with('"') && !text.starts_with('\'')) return;
    const char quote = text[0];
    for (size_t at = 1; at < text.size(); ++at) {
      if (text[at] == '\\' && quote == '"') {
        ++at;
      } else if (text[at] == quote) {
        const bool is_doubled = quote == '\'' && at + 1 < text.size() && text[at + 1] == quote;
        if (!is_doubled) return;
        ++at;
      }
    }
    throw ReadProblem{position, cat("this quote is not closed: a ", quote, " is missing")};
  }

  /// Whether a plain key of a block mapping has no ':' behind it, which yaml-cpp takes for null.
  bool is_without_colon(const YAML::Mark& mark, const std::string& key) const {
    if (stack_.back().is_flow || lines_.empty()) return false;
    const std::string_view line = lines_[static_cast<size_t>(std::max(mark.line, 0))];
    const std::string_view before =
        line.substr(0, std::min(static_cast<size_t>(std::max(mark.column, 0)), line.size()));
    if (before.find('?') != std::string_view::npos) return false;  // an explicit key
    std::string_view rest = rest_of_line(mark);
    if (!rest.starts_with(key)) return false;
    rest.remove_prefix(key.size());
    const size_t next = rest.find_first_not_of(" \t");
    return next == std::string_view::npos || rest[next] != ':';
  }

  std::string plain_word_at(const YAML::Mark& mark) const {
    const std::string_view rest = rest_of_line(skip_properties(mark));
    return std::string(rest.substr(0, rest.find_first_of(" \t,]}#:")));
  }

  /// A node's mark is that of its anchor or tag: the value's own place, when on the same line.
  YAML::Mark skip_properties(YAML::Mark mark) const {
    std::string_view rest = rest_of_line(mark);
    while (rest.starts_with('&') || rest.starts_with('!')) {
      const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
      const size_t next = rest.find_first_not_of(" \t", end);
      if (next == std::string_view::npos) return mark;
      mark.column += static_cast<int>(next);
      rest.remove_prefix(next);
    }
    return mark;
  }

  bool is_quote_at(const Position& position) const {
    const std::string_view line = lines_[static_cast<size_t>(position.line - 1)];
    size_t at = 0;
    for (int i = 1; i < position.column && at < line.size(); ++i) {
      ++at;
      while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
    }
    return at < line.size() &&
           (line[at] == '\'' || line[at] == '"' || line[at] == '|' || line[at] == '>');
  }

  void open(Node node, const YAML::Mark& mark, const std::string& tag, const char* kind,
            YAML::anchor_t anchor) {
    const Position position = position_of(mark);
    if (tag != "?" && tag != "!" && tag != cat(kCoreTag, kind)) refuse_tag(tag, position);
    if (!stack_.empty() && stack_.back().node.is_mapping() && !stack_.back().has_key) {
      throw ReadProblem{position, cat("a key must be a plain text, not a ",
                                      node.is_mapping() ? "mapping" : "list")};
    }
    ++num_nodes_;
    check_size(position);
    node.set_position(position);
    Level level;
    level.node = std::move(node);
    level.anchor = anchor;
    stack_.push_back(std::move(level));
  }

  void close() {
    Level level = std::move(stack_.back());
    stack_.pop_back();
    if (level.anchor != 0) anchors_[level.anchor] = level.node;
    add(std::move(level.node));
  }

  void add_scalar(Node node, YAML::anchor_t anchor) {
    ++num_nodes_;
    check_size(node.position());
    if (anchor != 0) anchors_[anchor] = node;
    add(std::move(node));
  }

  void add(Node node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = stack_.back();
    if (level.node.is_sequence()) {
      level.node.children().push_back(std::move(node));
    } else if (!level.has_key) {
      take_key(level, node);
    } else {
      add_entry(level, std::move(node));
    }
  }

  static void take_key(Level& level, const Node& node) {
    if (!node.is_scalar()) {
      throw ReadProblem{node.position(), "a key must be a plain text, not a mapping or a list"};
    }
    const bool is_plain = node.style() == ScalarStyle::kPlain;
    if (is_plain && node.is_null()) throw ReadProblem{node.position(), "a key is missing or null"};
    level.has_key = true;
    level.key = node.raw_text();
    level.key_position = node.position();
    level.is_merge = is_plain && level.key == "<<";
  }

  void add_entry(Level& level, Node node) {
    level.has_key = false;
    if (level.is_merge) {
      collect_merge(level, std::move(node));
      return;
    }
    if (const Node* first = level.node.find(level.key)) {
      diagnostics_.add({Severity::kError, cat("key '", level.key, "' appears twice"),
                        path_to(level.key), level.key_position, first->key_position(),
                        "first here"});
      return;
    }
    node.set_key(level.key, level.key_position);
    level.node.children().push_back(std::move(node));
  }

  std::string path_to(const std::string& key) const {
    std::string path;
    for (size_t i = 0; i + 1 < stack_.size(); ++i) {
      const Level& level = stack_[i];
      const std::string part = level.node.is_mapping() ? level.key : cat(level.node.size());
      path += cat(path.empty() ? "" : ".", part);
    }
    return cat(path, path.empty() ? "" : ".", key);
  }

  static void collect_merge(Level& level, Node node) {
    if (node.is_mapping()) {
      level.merges.push_back(std::move(node));
      return;
    }
    const auto is_mapping = [](const Node& child) { return child.is_mapping(); };
    if (!node.is_sequence() ||
        !std::all_of(node.children().begin(), node.children().end(), is_mapping)) {
      throw ReadProblem{level.key_position,
                        cat("'<<' takes a mapping or a list of mappings, found ", node.describe())};
    }
    // The first mapping of a list wins, so it comes last (as PyYAML orders them).
    for (size_t i = node.size(); i-- > 0;) {
      level.merges.push_back(std::move(node.children()[i]));
    }
  }

  /// Merged keys stand before the mapping's own, which win.
  static void apply_merges(Level& level) {
    if (level.merges.empty()) return;
    Node merged = Node::mapping();
    merged.set_position(level.node.position());
    for (const Node& mapping : level.merges) {
      for (const Node& child : mapping.children()) merged.put(child.key(), child);
    }
    for (const Node& child : level.node.children()) merged.put(child.key(), child);
    level.node = std::move(merged);
  }

  int source_;
  Diagnostics& diagnostics_;
  std::vector<std::string_view> lines_;  // each from its start to the end of the text
  std::vector<Level> stack_;
  std::map<YAML::anchor_t, Node> anchors_;
  Node root_;
  bool has_document_ = false;
  size_t num_nodes_ = 0;
};

/// Whether a line has an odd quote: a value begins with one that does not end in the line.
bool leaves_quote_open(std::string_view line) {
  size_t begin = line.find_first_not_of(" -");
  if (begin == line.npos || line[begin] == '#') return false;
  if (const size_t colon = line.find(": "); colon != line.npos) {
    begin = line.find_first_not_of(' ', colon + 1);
    if (begin == line.npos) return false;
  }
  const char quote = line[begin];
  if (quote != '"' && quote != '\'') return false;
  for (size_t i = begin + 1; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\') {
      ++i;
    } else if (line[i] == quote) {
      return false;
    }
  }
  return true;
}

/// "; is the quote that is opened in line 3 closed?" for the last line up to `line` that leaves one
/// open: a missing quote is noticed at the next one only.
std::string open_quote_text(std::string_view text, int line) {
  std::string found;
  const std::vector<std::string> lines = split(text, '\n');
  for (int i = 0; i < line && i < static_cast<int>(lines.size()); ++i) {
    if (!leaves_quote_open(lines[static_cast<size_t>(i)])) continue;
    found = cat("; is the quote that is opened in line ", i + 1, " closed?");
  }
  return found;
}

/// What most often is behind yaml-cpp's messages about an end that it did not find.
std::string missing_end_text(std::string_view message) {
  constexpr const char* kIndented = "; is this line indented as those that it belongs to?";
  static const std::pair<std::string_view, const char*> kTexts[] = {
      {YAML::ErrorMsg::END_OF_MAP, kIndented},
      {YAML::ErrorMsg::END_OF_SEQ, kIndented},
      {YAML::ErrorMsg::END_OF_MAP_FLOW, "; is the '{' before it closed by '}'?"},
      {YAML::ErrorMsg::END_OF_SEQ_FLOW, "; is the '[' before it closed by ']'?"}};
  const auto* const found =
      std::ranges::find(kTexts, message, [](const auto& text) { return text.first; });
  return found == std::end(kTexts) ? "" : found->second;
}

/// Says that lines are indented by tabs, which YAML does not allow, if one near `line` is.
std::string tab_text(const std::string& text, int line) {
  const std::vector<std::string> lines = split(text, '\n');
  for (int number = std::max(1, line - 1); number <= line + 1; ++number) {
    if (number > std::ssize(lines)) break;
    const std::string& candidate = lines[static_cast<size_t>(number - 1)];
    const size_t content = candidate.find_first_not_of(" \t");
    if (candidate.substr(0, content).find('\t') != std::string::npos) {
      return cat("; line ", number, " is indented by a tab: YAML takes spaces alone");
    }
  }
  return "";
}

void add_problem(Diagnostics& diagnostics, const Position& position, std::string text) {
  diagnostics.add({Severity::kError, std::move(text), "", position, {}, {}});
}

}  // namespace

Node read_yaml(const Sources& sources, int source, Diagnostics& diagnostics) {
  const std::string& text = sources[static_cast<size_t>(source)].text;
  if (const std::optional<TextProblem> problem = find_text_problem(text)) {
    add_problem(diagnostics, {source, problem->line, problem->column}, problem->text);
    return Node::null();
  }
  if (sources[static_cast<size_t>(source)].name.ends_with(".toml")) {
    add_problem(diagnostics, {source, 1, 1},
                "a recipe is YAML, and this file is TOML; `automodel new` writes a recipe");
    return Node::null();
  }
  TreeBuilder builder(sources, source, diagnostics);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& failure) {
    const Position position = builder.position_of(failure.mark);
    add_problem(diagnostics, position,
                cat("not YAML: ", failure.msg, missing_end_text(failure.msg),
                    open_quote_text(text, position.line), tab_text(text, position.line)));
    return Node::null();
  } catch (const ReadProblem& problem) {
    add_problem(diagnostics, problem.position, problem.text);
    return Node::null();
  }
  Node root = builder.take_root();
  if (!builder.has_document() || (root.is_null() && root.raw_text().empty())) {
    add_problem(diagnostics, {source, 1, 1}, "the recipe is empty");
    return Node::null();
  }
  if (!root.is_mapping()) {
    add_problem(diagnostics, root.position(),
                cat("a recipe is a mapping of sections, found ", root.describe()));
    return Node::null();
  }
  return root;
}

}  // namespace automodel::config
