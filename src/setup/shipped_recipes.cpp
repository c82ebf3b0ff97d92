#include "setup/shipped_recipes.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <optional>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "recipes/read/recipe_paths.h"
#include "setup/new_file.h"

namespace automodel::setup {

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 5> kLabels = {"Task", "Family", "Size", "Needs", "Run"};

/// "Label" of "Label: text" (one capital word), else "".
std::string_view label_of(std::string_view line) {
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || line.empty() || line[0] < 'A' || line[0] > 'Z') return "";
  const std::string_view word = line.substr(0, colon);
  return word.find(' ') == std::string_view::npos ? word : "";
}

void append_words(std::string& text, std::string_view more) {
  if (!text.empty()) text += ' ';
  text += more;
}

std::vector<std::string> header_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with("#")) break;
    lines.push_back(line);
  }
  return lines;
}

/// The texts of kLabels, after the description.
std::array<std::string, kLabels.size() + 1> header_fields(std::string_view text) {
  std::array<std::string, kLabels.size() + 1> fields;
  std::string* field = &fields[0];
  std::string ignored;
  for (const std::string& line : header_lines(text)) {
    const std::string_view comment =
        std::string_view(line).substr(std::min<size_t>(2, line.size()));
    const std::string_view label = label_of(comment);
    if (!label.empty()) {
      const auto found = std::find(kLabels.begin(), kLabels.end(), label);
      field = found == kLabels.end() ? &ignored : &fields[1 + (found - kLabels.begin())];
      append_words(*field, trim(comment.substr(label.size() + 1)));
    } else {
      append_words(*field, trim(comment));
    }
  }
  return fields;
}

std::string all_text(const ShippedRecipe& recipe) {
  return to_lower(cat(recipe.name, "\n", recipe.about, "\n", recipe.task, "\n", recipe.family, "\n",
                      recipe.size, "\n", recipe.needs));
}

/// Where a scalar's text begins in its source, behind an anchor or a quote; nullopt for an alias,
/// whose text is written elsewhere.
std::optional<size_t> offset_of(const std::string& text, const config::Node& node) {
  size_t line = 0;
  for (int number = 1; number < node.position().line; ++number) line = text.find('\n', line) + 1;
  const size_t begin = line + static_cast<size_t>(node.position().column) - 1;
  if (text.at(begin) == '*') return std::nullopt;
  const size_t found = text.find(node.raw_text(), begin);
  AM_CHECK(found < text.find('\n', begin), "no '", node.raw_text(), "' in line ",
           node.position().line);
  return found;
}

/// The header with commands as one gives them where the copy is.
std::string header_of_copy(const std::string& header, const ShippedRecipe& recipe,
                           const std::string& destination) {
  const std::string own = cat("recipes/", recipe.name, ".yaml");
  return replace_all(replace_all(header, own, destination), "scripts/automodel ", "automodel ");
}

}  // namespace

std::string shipped_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path installed = program.parent_path() / "share/automodel/recipes";
  const fs::path built = program / "share/automodel/recipes";
  for (const fs::path& folder : {installed, built}) {
    if (fs::is_directory(folder)) return fs::canonical(folder);
  }
  throw InputError(cat("no shipped recipes: neither ", installed.string(), " nor ", built.string(),
                       " is a folder; install the program with its share folder"));
}

ShippedRecipe read_header(std::string_view text, const std::string& name, const std::string& path) {
  const auto fields = header_fields(text);
  if (fields[0].empty()) throw InputError(cat(path, ": the header does not say what it does"));
  for (size_t i = 0; i < kLabels.size(); ++i) {
    if (!fields[i + 1].empty()) continue;
    throw InputError(cat(path, ": the header has no line '# ", kLabels[i], ": ...'"));
  }
  return {.name = name,
          .path = path,
          .about = fields[0],
          .task = fields[1],
          .family = fields[2],
          .size = fields[3],
          .needs = fields[4]};
}

std::vector<ShippedRecipe> find_shipped(const std::string& folder) {
  std::vector<ShippedRecipe> recipes;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = fs::relative(entry.path(), folder).replace_extension();
    recipes.push_back(read_header(read_file(entry.path()), name, entry.path()));
  }
  std::sort(recipes.begin(), recipes.end(),
            [](const ShippedRecipe& a, const ShippedRecipe& b) { return a.name < b.name; });
  return recipes;
}

std::vector<ShippedRecipe> with_words(const std::vector<ShippedRecipe>& recipes,
                                      const std::vector<std::string>& words) {
  std::vector<ShippedRecipe> found;
  for (const ShippedRecipe& recipe : recipes) {
    const std::string text = all_text(recipe);
    const bool has_all = std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return text.find(to_lower(word)) != std::string::npos;
    });
    if (has_all) found.push_back(recipe);
  }
  return found;
}

std::string shipped_table(const std::vector<ShippedRecipe>& recipes) {
  std::vector<std::array<std::string, 5>> rows = {{"name", "task", "family", "size", "needs"}};
  for (const ShippedRecipe& recipe : recipes) {
    rows.push_back({recipe.name, recipe.task, recipe.family, recipe.size, recipe.needs});
  }
  std::array<size_t, 5> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += cat(row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    text += cat(row.back(), "\n");
  }
  return text;
}

Json shipped_json(const std::vector<ShippedRecipe>& recipes) {
  Json list = Json::array();
  for (const ShippedRecipe& recipe : recipes) {
    Json entry = Json::object();
    entry["name"] = recipe.name;
    entry["task"] = recipe.task;
    entry["family"] = recipe.family;
    entry["size"] = recipe.size;
    entry["needs"] = recipe.needs;
    entry["about"] = recipe.about;
    entry["path"] = recipe.path;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string text_of_copy(const ShippedRecipe& recipe, const std::string& destination) {
  std::string text = read_file(recipe.path);
  const auto no_variables = [](const std::string&) { return std::optional<std::string>(); };
  config::Document document = config::load_text(text, recipe.path, {}, no_variables);
  const std::string home = recipes::home_of_recipe(recipe.path);
  std::vector<std::pair<size_t, std::string>> places;  // of paths that exist in the recipe's home
  for (const config::Node* node : recipes::path_nodes(document.root)) {
    if (node->is_interpolated() || !recipes::is_below(home, node->text())) continue;
    if (const auto place = offset_of(text, *node)) places.emplace_back(*place, node->raw_text());
  }
  std::sort(places.begin(), places.end());
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    text.replace(place->first, place->second.size(), path_join(home, place->second));
  }
  const size_t header = join(header_lines(text), "\n").size();
  return cat(header_of_copy(text.substr(0, header), recipe, destination), text.substr(header));
}

const ShippedRecipe& shipped_by_name(const std::vector<ShippedRecipe>& recipes,
                                     const std::string& name) {
  const std::string wanted = name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
  std::vector<std::string> names, same_last;
  const ShippedRecipe* last = nullptr;
  for (const ShippedRecipe& recipe : recipes) {
    if (recipe.name == wanted) return recipe;
    names.push_back(recipe.name);
    names.push_back(file_name(recipe.name));
    if (file_name(recipe.name) != wanted) continue;
    same_last.push_back(recipe.name);
    last = &recipe;
  }
  if (same_last.size() == 1) return *last;
  if (!same_last.empty()) {
    throw UserError(cat("which '", wanted, "'? There are ", join(same_last, ", ")));
  }
  std::string hint = did_you_mean(wanted, names);
  const std::vector<ShippedRecipe> about = with_words(recipes, {wanted});
  if (hint.empty() && !wanted.empty() && !about.empty()) {
    std::vector<std::string> found;
    for (const ShippedRecipe& recipe : about) found.push_back(recipe.name);
    hint = cat("; '", wanted, "' is in what is said of ", join(found, ", "));
  }
  throw UserError(cat("no shipped recipe '", wanted, "'", hint, "; automodel ls lists them"));
}

int list_shipped(const std::vector<std::string>& words, bool is_json) {
  const std::vector<ShippedRecipe> found = with_words(find_shipped(shipped_folder()), words);
  if (is_json) {
    std::cout << shipped_json(found).dump(2) << "\n";
    return 0;
  }
  if (found.empty()) throw UserError(cat("no shipped recipe has '", join(words, "' and '"), "'"));
  std::cout << shipped_table(found);
  return 0;
}

int copy_shipped(const std::string& name, const std::string& destination) {
  const std::vector<ShippedRecipe> recipes = find_shipped(shipped_folder());
  const ShippedRecipe& recipe = shipped_by_name(recipes, name);
  std::string path = destination.empty() ? "." : destination;
  if (is_directory(path)) {
    path = fs::path(path_join(path, file_name(recipe.path))).lexically_normal();
  }
  write_new_file(path, text_of_copy(recipe, path));
  std::cout << path << ": a copy of " << recipe.name << "; next: automodel check " << path << "\n";
  return 0;
}

}  // namespace automodel::setup
