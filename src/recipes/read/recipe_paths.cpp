#include "recipes/read/recipe_paths.h"

#include <filesystem>

#include "core/file.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

constexpr const char* kModelKeys[] = {"pretrained_model_name_or_path", "name_or_path"};
constexpr const char* kDataKeys[] = {"path_or_dataset_id", "path_or_dataset",
                                     "dataset_name",       "path",
                                     "chat_template",      "file_pattern"};

/// Adds the texts of a path key: one, or a list of them.
template <typename Tree>
void add_texts(Tree* node, std::vector<Tree*>& paths) {
  if (node == nullptr) return;
  if (node->is_string()) paths.push_back(node);
  if (!node->is_sequence()) return;
  for (Tree& child : node->children()) add_texts(&child, paths);
}

/// Adds a folder: the node itself, or those of its keys that name one.
template <typename Tree>
void add_folder(Tree* node, std::vector<Tree*>& paths) {
  if (node == nullptr) return;
  add_texts(node, paths);
  for (const char* key : kModelKeys) add_texts(node->find(key), paths);
}

template <typename Tree>
void add_data(Tree& section, std::vector<Tree*>& paths) {
  for (const char* key : kDataKeys) add_texts(section.find(key), paths);
  if (Tree* files = section.find("paths")) {
    add_texts(files, paths);
    for (Tree& part : files->children()) add_texts(&part, paths);
  }
  if (Tree* entries = section.find("data_dir_list")) {
    add_texts(entries, paths);
    add_texts(entries->find("path"), paths);
    for (Tree& entry : entries->children()) add_texts(entry.find("path"), paths);
  }
  add_folder(section.find("tokenizer"), paths);
  if (Tree* mixed = section.find("datasets"); mixed != nullptr && mixed->is_sequence()) {
    for (Tree& part : mixed->children()) add_data(part, paths);
  }
}

/// Whether PATH exists as a file or folder, stands for PATH.idx, or is a pattern with a match.
bool is_there(const std::string& path) {
  return path_exists(path) || path_exists(path + ".idx") || !matching_paths(path).empty();
}

/// The second folder in which a path may exist, beside the current one; "" when there is none.
std::string other_place(const Node& path, const Diagnostics& diagnostics) {
  const std::string text = path.string_value().value_or("");
  if (text.empty() || text.front() == '/' || !path.position().is_known()) return "";
  const config::Source& source = diagnostics.sources()[static_cast<size_t>(path.position().source)];
  if (source.is_argument) return "";
  const std::string home = home_of_recipe(source.name);
  return home == std::filesystem::current_path() ? "" : home;
}

bool is_mesh(const std::string& key) {
  return key == "distributed" || key == "teacher_distributed";
}

}  // namespace

std::vector<Node*> path_nodes(Node& root) {
  std::vector<Node*> paths;
  for (Node& section : root.children()) {
    const std::string& key = section.key();
    if (!section.is_mapping()) continue;
    if (key == "model" || key == "teacher_model") {
      add_folder(&section, paths);
      add_folder(section.find("config"), paths);
    } else if (key == "dataset" || key.starts_with("validation_dataset") ||
               key == "tool_call_eval") {
      add_data(section, paths);
    } else if (key == "tokenizer") {
      add_folder(&section, paths);
    } else if (key == "peft") {
      add_texts(section.find("adapter_name_or_path"), paths);
    } else if (Node* pipeline = is_mesh(key) ? section.find("pipeline") : nullptr) {
      add_texts(pipeline->find("pp_schedule_csv"), paths);
    }
  }
  return paths;
}

bool is_below(const std::string& folder, const std::string& path) {
  return !path.empty() && path.front() != '/' && is_there(path_join(folder, path));
}

std::string home_of_recipe(const std::string& recipe_path) {
  namespace fs = std::filesystem;
  const fs::path own = fs::absolute(recipe_path).lexically_normal().parent_path();
  for (fs::path folder = own; folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.filename() == "recipes" || folder.filename() == "examples") {
      return folder.parent_path();
    }
  }
  return own;
}

void find_paths(Node& root, Diagnostics& diagnostics) {
  for (Node* path : path_nodes(root)) {
    const std::string home = other_place(*path, diagnostics);
    const std::string text = path->string_value().value_or("");
    if (home.empty()) continue;
    const std::string there = path_join(home, text);
    if (!is_there(there)) continue;
    if (is_there(text)) {
      if (path_exists(text) && path_exists(there) && !std::filesystem::equivalent(text, there)) {
        diagnostics.note(*path, cat("the current folder's is meant, not ", there));
      }
      continue;
    }
    path->assume_value(Node::string(there));
    path->set_scalar_text(there, there, path->style());
  }
}

bool is_plain_file(const std::string& path) {
  return path_exists(path) && !is_directory(path);
}

std::string looked_for_text(const Node& path, const Diagnostics& diagnostics) {
  const std::string home = other_place(path, diagnostics);
  const std::string text = path.string_value().value_or("");
  if (home.empty() || is_there(text) || is_there(path_join(home, text))) return "";
  return cat("; looked for in ", std::filesystem::current_path().string(), " and in ", home);
}

std::string looked_for_below(const Node& section, const std::string& said,
                             const Diagnostics& diagnostics) {
  std::vector<const Node*> paths;
  add_data(section, paths);
  for (const Node* path : paths) {
    const bool is_named = said.find(path->string_value().value_or("")) != std::string::npos;
    const std::string text = is_named ? looked_for_text(*path, diagnostics) : "";
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace automodel::recipes
