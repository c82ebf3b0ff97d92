#include "datasets/rows/data_card.h"

#include <algorithm>

#include "config/diagnostic.h"
#include "config/yaml_reader.h"
#include "core/error.h"

namespace automodel::datasets {

namespace {

using config::Node;

/// What stands between two lines of `---` at the beginning.
std::string head_of(const std::string& text) {
  std::string clean = replace_all(text, "\r\n", "\n");
  clean.erase(0, clean.find_first_not_of("\xEF\xBB\xBF \t\n"));  // of a byte order mark too
  if (!clean.starts_with("---\n")) return "";
  const size_t end = clean.find("\n---", 3);
  return end == std::string::npos ? "" : clean.substr(4, end - 3);
}

bool is_configs_key(const std::string& line) {
  return line.starts_with("configs:") || line.starts_with("\"configs\":") ||
         line.starts_with("'configs':");
}

/// The head with the lines of `configs` alone, the others empty; nothing where no line begins with
/// that key.
std::string configs_of(const std::string& head) {
  std::string kept;
  bool is_inside = false, is_there = false;
  for (const std::string& line : split(head, '\n')) {
    const bool goes_on =
        line.empty() || std::string_view(" \t-#").find(line[0]) != std::string_view::npos;
    is_inside = is_configs_key(line) || (is_inside && goes_on);
    is_there = is_there || is_inside;
    if (is_inside) kept += line;
    kept += '\n';
  }
  return is_there ? kept : "";
}

/// `fault`: what is wrong with it, empty if nothing is.
Node parse_head(const std::string& head, const std::string& name, std::string& fault) {
  config::Sources sources;
  config::Source source;
  source.name = name;
  source.text = head;
  sources.push_back(std::move(source));
  config::Diagnostics diagnostics(sources);
  Node root = config::read_yaml(sources, 0, diagnostics);
  const auto& findings = diagnostics.findings();
  const auto first =
      std::ranges::find(findings, config::Severity::kError, &config::Finding::severity);
  fault = first == findings.end()
              ? ""
              : cat("line ", first->position.line, " of its head: ", first->text);
  return root;
}

std::vector<std::string> texts_of(const Node& node) {
  std::vector<std::string> texts;
  if (node.is_sequence()) {
    for (const Node& child : node.children()) texts.push_back(child.text());
  } else if (node.is_scalar() && !node.is_null()) {
    texts.push_back(node.text());
  }
  return texts;
}

std::string text_of(const Node& node, const char* key) {
  const Node* child = node.find(key);
  return child == nullptr || !child->is_scalar() || child->is_null() ? "" : child->text();
}

/// "x.csv", a list of them, {split: ...}, or [{split: ..., path: ...}].
std::vector<CardFiles> read_data_files(const Node& node) {
  std::vector<CardFiles> all;
  if (node.is_mapping()) {
    for (const Node& child : node.children()) all.push_back({child.key(), texts_of(child)});
    return all;
  }
  const bool has_splits =
      node.is_sequence() && !node.children().empty() && node.children().front().is_mapping();
  if (!has_splits) return {{"train", texts_of(node)}};
  for (const Node& child : node.children()) {
    const Node* path = child.find("path");
    if (path != nullptr) all.push_back({text_of(child, "split"), texts_of(*path)});
  }
  return all;
}

}  // namespace

std::vector<CardConfig> read_card(const std::string& text, const std::string& name) {
  const std::string head = head_of(text);
  if (head.empty()) return {};
  std::string fault;
  Node root = parse_head(head, name, fault);
  if (!fault.empty()) {
    // What other keys of a card hold is none of ours.
    const std::string own = configs_of(head);
    if (own.empty() && head.find("configs") == std::string::npos) return {};
    if (!own.empty()) root = parse_head(own, name, fault);
    if (!fault.empty()) {
      throw InputError(
          cat(name, ": its `configs`, which say what files there are, cannot be read: ", fault));
    }
  }
  const Node* configs = root.is_mapping() ? root.find("configs") : nullptr;
  if (configs == nullptr || configs->is_null()) return {};
  if (!configs->is_sequence()) throw InputError(cat(name, ": `configs` must be a list"));
  std::vector<CardConfig> all;
  for (const Node& node : configs->children()) {
    if (!node.is_mapping()) throw InputError(cat(name, ": an entry of `configs` is no mapping"));
    CardConfig config;
    if (const std::string own = text_of(node, "config_name"); !own.empty()) config.name = own;
    config.is_default = to_lower(text_of(node, "default")) == "true";
    if (const std::string folder = text_of(node, "data_dir"); !folder.empty()) {
      config.folder = folder;
    }
    if (const Node* files = node.find("data_files"); files != nullptr && !files->is_null()) {
      config.data_files = read_data_files(*files);
    }
    all.push_back(std::move(config));
  }
  return all;
}

}  // namespace automodel::datasets
