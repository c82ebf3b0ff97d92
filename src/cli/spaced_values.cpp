#include "cli/spaced_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "recipes/read/recipe_schema.h"

namespace automodel::cli {

namespace {

bool is_yaml(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

/// Whether it is --key without a value in the same word.
bool is_bare_key(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && word.find('=') == std::string::npos;
}

/// The key of `a.b.c=value`; empty for another word, such as a path with a sign of equality in it.
std::string_view assigned_key(std::string_view word) {
  const size_t equals = word.find('=');
  if (word.starts_with("-") || equals == std::string_view::npos) return {};
  const std::string_view key = word.substr(0, equals);
  return key.find_first_of(" \t[]{}'\",:/") == std::string_view::npos ? key : std::string_view();
}

/// Whether a word is `section.key=value` of a section that recipes have.
bool changes_section(std::string_view word) {
  const std::string_view key = assigned_key(word);
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view section = key.substr(0, dot);
  return section.starts_with("validation_dataset_") ||
         recipes::recipe_schema().at("properties").contains(section);
}

/// Whether a word is -x and more, of one letter.
bool is_short(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '-';
}

/// How many words an option of the program takes behind its name.
size_t words_of(const CLI::Option& option, const std::string& word) {
  if (is_short(word) ? word.size() > 2 : word.find('=') != std::string::npos) return 0;
  return option.get_expected_min() > 0 && option.get_type_size() > 0 ? 1 : 0;
}

const CLI::Option* option_of(const CLI::App& command, const std::string& word) {
  if (!word.starts_with("-")) return nullptr;
  return command.get_option_no_throw(is_short(word) ? word.substr(0, 2)
                                                    : word.substr(0, word.find('=')));
}

}  // namespace

void join_spaced_values(const CLI::App& app, std::vector<std::string>& arguments) {
  if (arguments.empty()) return;
  const auto commands = app.get_subcommands([&](const CLI::App* each) {
    return each->get_name() == arguments[0] && each->get_option_no_throw("--config") != nullptr;
  });
  if (commands.empty()) return;
  const CLI::App* const command = commands[0];
  const CLI::Option* const config = command->get_option_no_throw("--config");
  const bool has_config = std::ranges::any_of(
      arguments, [&](const auto& word) { return option_of(*command, word) == config; });
  bool has_recipe = has_config;
  const auto comes_later = [&](size_t i) {
    return std::any_of(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end(),
                       is_yaml);
  };
  const auto may_be_value = [&](const std::string& next) {
    if (next.starts_with("--") || changes_section(next)) return false;
    const CLI::Option* const option = option_of(*command, next);
    return option == nullptr || (next.size() > 2 && option->get_expected_min() == 0);
  };
  std::vector<std::string> joined = {arguments[0]};
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
    if (const CLI::Option* option = option_of(*command, word)) {
      joined.push_back(word);
      if (words_of(*option, word) > 0 && next != nullptr) joined.push_back(arguments[++i]);
    } else if (is_bare_key(word) && next != nullptr && may_be_value(*next) &&
               (has_recipe || (!is_yaml(*next) && comes_later(i + 2)))) {
      joined.push_back(cat(word, "=", *next));
      ++i;
    } else if (is_bare_key(word)) {
      joined.push_back(cat(word, "=true"));
    } else if (!assigned_key(word).empty() &&
               (has_recipe || (!is_yaml(word) && !path_exists(word)))) {
      joined.push_back(cat("--", word));
    } else {
      has_recipe = has_recipe || !word.starts_with("-");
      joined.push_back(word);
    }
  }
  arguments = std::move(joined);
}

}  // namespace automodel::cli
