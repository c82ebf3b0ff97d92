#include "cli/spaced_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"

namespace automodel::cli {

namespace {

bool is_yaml(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

/// Whether it is --key without a value in the same word.
bool is_bare_key(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && word.find('=') == std::string::npos;
}

bool is_assignment(const std::string& word) {
  return !word.starts_with("-") && word.find('=') != std::string::npos;
}

/// How many words an option of the program takes behind its name.
size_t words_of(const CLI::Option& option, const std::string& word) {
  if (word.starts_with("--") && word.find('=') != std::string::npos) return 0;
  return option.get_expected_min() > 0 && option.get_type_size() > 0 ? 1 : 0;
}

const CLI::Option* option_of(const CLI::App& command, const std::string& word) {
  return word.starts_with("-") ? command.get_option_no_throw(word.substr(0, word.find('=')))
                               : nullptr;
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
    return !next.starts_with("--") && option_of(*command, next) == nullptr;
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
    } else if (is_assignment(word) && !is_yaml(word) && (has_config || !has_recipe)) {
      joined.push_back(cat("--", word));
    } else {
      has_recipe = has_recipe || !word.starts_with("-");
      joined.push_back(word);
    }
  }
  arguments = std::move(joined);
}

}  // namespace automodel::cli
