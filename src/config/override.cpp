#include "config/override.h"

#include <algorithm>

#include "config/scalar.h"
#include "config/yaml_guard.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

int count_characters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// Adds a source for one override and returns where its first character is.
Position add_source(std::string text, Sources& sources) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  sources.push_back({"command line", std::move(text), true});
  return {static_cast<int>(sources.size()) - 1, 1, 1};
}

/// A value not yet translated; its place is `offset` bytes into the source's text.
Node value_at(const std::string& text, Position start, size_t offset, const Sources& sources) {
  Node value = Node::string(text);
  value.set_scalar_text(text, text, ScalarStyle::kArgument);
  start.column += count_characters(
      std::string_view(sources[static_cast<size_t>(start.source)].text).substr(0, offset));
  value.set_position(start);
  return value;
}

void stray_word(const std::string& word, const Position& place, Diagnostics& diagnostics) {
  diagnostics.add({Severity::kError,
                   cat("'", word, "' is no override; write --key=", word, " or key=", word,
                       " with the dotted key it is meant for"),
                   "",
                   place,
                   {},
                   {}});
}

/// True when an override may start like this word does without dashes: "a.b=...".
bool has_key(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  const std::string_view key = word.substr(0, equals);
  return key.find_first_of(" \t[]{}'\",:") == std::string_view::npos;
}

/// Replaces a string that is written like a list or mapping by it, so that keys can lead into it.
void translate_in_place(Node& node) {
  if (!node.is_string() || node.style() == ScalarStyle::kNone) return;
  Node value = translate_text(*node.string_value());
  if (value.is_mapping() || value.is_sequence()) {
    node.assume_value(std::move(value));
    node.set_scalar_text("", "", ScalarStyle::kNone);
    node.assign_paths(node.path());
  }
}

/// The value that deletes: a section goes, another value becomes null, which some keys read.
bool is_none(const Node& value) {
  return translate_text(*value.string_value()).is_null();
}

/// The element of a list that a key names; nullptr with a finding when it names none.
Node* find_element(Node& list, const std::string& key, const Override& override,
                   Diagnostics& diagnostics) {
  const std::optional<int64_t> index = parse_int(key);
  const int64_t count = static_cast<int64_t>(list.size());
  if (index && *index >= 0 && *index < count) {
    return &list.children()[static_cast<size_t>(*index)];
  }
  const std::string hint = count == 0 ? cat("it is empty; replace it: ", list.path(), "=\"[...]\"")
                                      : cat("its indexes are 0 to ", count - 1);
  diagnostics.add({Severity::kError,
                   cat("'", key, "' is no index of the list '", list.path(), "': ", hint),
                   join(override.keys, "."),
                   override.key_position,
                   {},
                   {}});
  return nullptr;
}

}  // namespace

std::vector<Override> parse_overrides(std::span<const std::string> arguments, Sources& sources,
                                      Diagnostics& diagnostics) {
  std::vector<Override> overrides;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!is_utf8(word)) {
      diagnostics.add({Severity::kError, cat("argument ", i + 1, " is not UTF-8"), "", {}, {}, {}});
      continue;
    }
    const bool has_dashes = word.starts_with("--");
    const size_t begin = has_dashes ? 2 : 0;
    const size_t equals = word.find('=');
    if (!has_dashes && !has_key(word)) {
      stray_word(word, add_source(word, sources), diagnostics);
      continue;
    }
    Override override;
    override.keys = split(std::string_view(word).substr(begin, equals - begin), '.');
    if (equals != std::string::npos) {
      const Position start = add_source(word, sources);
      override.value = value_at(word.substr(equals + 1), start, equals + 1, sources);
      override.key_position = start;
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--") &&
               is_utf8(arguments[i + 1])) {
      const Position start = add_source(cat(word, " ", arguments[i + 1]), sources);
      override.value = value_at(arguments[i + 1], start, word.size() + 1, sources);
      override.key_position = start;
      ++i;
    } else {
      override.key_position = add_source(word, sources);
      override.value = value_at("true", override.key_position, 0, sources);
    }
    override.key_position.column += static_cast<int>(begin);
    constexpr size_t kDeepest = 32;
    if (override.keys.size() > kDeepest) {
      diagnostics.add({Severity::kError,
                       cat("a key has at most ", kDeepest, " parts"),
                       "",
                       override.key_position,
                       {},
                       {}});
      continue;
    }
    const bool is_empty = std::any_of(override.keys.begin(), override.keys.end(),
                                      [](const std::string& key) { return trim(key).empty(); });
    if (is_empty) {
      diagnostics.add({Severity::kError,
                       "a key is empty; write --section.key=value",
                       "",
                       override.key_position,
                       {},
                       {}});
      continue;
    }
    overrides.push_back(std::move(override));
  }
  return overrides;
}

void apply_override(const Override& override, Node& root, Diagnostics& diagnostics) {
  Node* node = &root;
  for (size_t i = 0; i < override.keys.size(); ++i) {
    const std::string& key = override.keys[i];
    const bool is_last = i + 1 == override.keys.size();
    translate_in_place(*node);
    if (node->is_sequence()) {
      node = find_element(*node, key, override, diagnostics);
      if (node == nullptr) return;
      if (is_last) {
        const std::string path = node->path();
        *node = override.value;
        node->assign_paths(path);
      }
      continue;
    }
    if (!node->is_mapping()) {  // a scalar or null in the way
      node->assume_value(Node::mapping());
      node->set_scalar_text("", "", ScalarStyle::kNone);
      node->set_position(override.key_position);
    }
    if (is_last) {
      const Node* present = node->find(key);
      Node value = override.value;
      if (present != nullptr && is_none(value)) {
        if (present->is_mapping()) {
          node->erase(key);
          return;
        }
        value.mark_deleted();
      }
      value.set_key(key, override.key_position);
      node->put(key, std::move(value));
      return;
    }
    Node* child = node->find(key);
    if (child == nullptr) {
      Node section = Node::mapping();
      section.set_position(override.key_position);
      section.set_key(key, override.key_position);
      child = &node->put(key, std::move(section));
    }
    node = child;
  }
}

}  // namespace automodel::config
