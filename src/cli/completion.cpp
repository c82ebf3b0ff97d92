#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace automodel::cli {

namespace {

/// "cpu", "cuda" of an option that takes one of some words: CLI11 keeps them as "{cpu,cuda}".
Json choices_of(const CLI::Option& option) {
  Json choices = Json::array();
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return choices;
  for (const std::string& word : split(type.substr(begin + 1, end - begin - 1), ',')) {
    choices.push_back(word);
  }
  return choices;
}

Json describe_option(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  Json described = Json::object();
  described["names"] = std::move(names);
  described["positional"] = option.get_positional() ? option.get_name(true) : std::string();
  described["takes_value"] = option.get_items_expected_max() > 0;
  described["choices"] = choices_of(option);
  const std::string type = option.get_type_name();
  described["type"] = type.substr(0, type.find(':'));
  described["required"] = option.get_required();
  described["text"] = option.get_description();
  return described;
}

void walk_keys(const Json& schema, const std::string& path, std::set<std::string>& keys) {
  if (const Json* properties = schema.find("properties")) {
    for (const auto& [key, below] : properties->as_object()) {
      const std::string dotted = path.empty() ? key : cat(path, ".", key);
      keys.insert(dotted);
      walk_keys(below, dotted, keys);
    }
  }
  if (const Json* variants = schema.find("anyOf")) {
    for (const Json& variant : variants->as_array()) walk_keys(variant, path, keys);
  }
}

const Json::Array& commands_of(const CompletionWords& words) {
  return words.commands.at("commands").as_array();
}

std::string name_of(const Json& command) {
  return command.at("name").as_string();
}

bool takes_recipe(const Json& command) {
  for (const Json& option : command.at("options").as_array()) {
    if (option.at("positional").as_string() == "recipe") return true;
  }
  return false;
}

std::vector<std::string> option_names(const Json& command) {
  std::vector<std::string> names;
  for (const Json& option : command.at("options").as_array()) {
    for (const Json& name : option.at("names").as_array()) names.push_back(name.as_string());
  }
  return names;
}

std::vector<std::string> choices_in(const Json& option) {
  std::vector<std::string> choices;
  for (const Json& choice : option.at("choices").as_array()) choices.push_back(choice.as_string());
  return choices;
}

std::vector<std::string> command_names(const CompletionWords& words) {
  std::vector<std::string> names;
  for (const Json& command : commands_of(words)) names.push_back(name_of(command));
  return names;
}

/// "--optimizer.lr=" of every key.
std::vector<std::string> key_options(const CompletionWords& words) {
  std::vector<std::string> options;
  for (const std::string& key : words.keys) options.push_back(cat("--", key, "="));
  return options;
}

/// "--optimizer." of every section.
std::vector<std::string> section_options(const CompletionWords& words) {
  std::vector<std::string> options;
  for (const std::string& key : words.keys) {
    if (key.find('.') == std::string::npos) options.push_back(cat("--", key, "."));
  }
  return options;
}

/// Words that a command takes beside options and files.
std::vector<std::string> positional_words(const Json& command, const CompletionWords& words) {
  if (name_of(command) == "cp") return words.recipes;
  if (name_of(command) == "explain") return words.keys;
  for (const Json& option : command.at("options").as_array()) {
    if (!option.at("positional").as_string().empty() && option.at("choices").size() > 0) {
      return choices_in(option);
    }
  }
  return {};
}

/// The names of recipes' commands joined by `separator`.
std::string recipe_commands(const CompletionWords& words, std::string_view separator) {
  std::vector<std::string> names;
  for (const Json& command : commands_of(words)) {
    if (takes_recipe(command)) names.push_back(name_of(command));
  }
  return join(names, separator);
}

/// The cases of a shell's `case`: what each command takes, and each option of few values.
std::string bash_cases(const CompletionWords& words) {
  std::string text;
  for (const Json& command : commands_of(words)) {
    text += cat("    ", name_of(command), ") words=\"", join(option_names(command), " "),
                " --help ", join(positional_words(command, words), " "), "\" ;;\n");
  }
  return text;
}

std::string bash_values(const CompletionWords& words) {
  std::string text;
  for (const Json& command : commands_of(words)) {
    for (const Json& option : command.at("options").as_array()) {
      if (option.at("choices").size() == 0) continue;
      for (const Json& name : option.at("names").as_array()) {
        text += cat("    ", name_of(command), ":", name.as_string(), ") words=\"",
                    join(choices_in(option), " "), "\" ;;\n");
      }
    }
  }
  return text;
}

/// How bash_script() ends: of the words those that fit, and of the files.
constexpr const char* kBashAnswer = R"(  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[.=] ]]; then
    compopt -o nospace 2>/dev/null
  fi
  [[ $word == -* ]] && return
  IFS=$'\n'
  if [[ -n $takes_recipe ]]; then
    for one in $(compgen -f -- "$word"); do
      if [[ -d $one ]]; then
        COMPREPLY+=("$one/")
        compopt -o nospace 2>/dev/null
      elif [[ $one == *.yaml || $one == *.yml ]]; then
        COMPREPLY+=("$one")
      fi
    done
  elif ((${#COMPREPLY[@]} == 0)); then
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _automodel automodel
)";

std::string bash_script(const CompletionWords& words) {
  return cat(R"(# Completes automodel's command lines in bash. Made by `automodel completion bash`.
_automodel() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} first=${COMP_WORDS[1]:-}
  local words="" takes_recipe="" IFS=$' \t\n' one
  COMPREPLY=()
  case "$first:$previous" in
)",
             bash_values(words), R"(  esac
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  if ((COMP_CWORD == 1)); then
    words=")",
             join(command_names(words), " "), R"( --help --version"
    takes_recipe=1
  else
    case "$first" in
      *.yaml|*.yml) first=run ;;
    esac
    case "$first" in
)",
             bash_cases(words), R"(    esac
    case "$first" in
      )",
             recipe_commands(words, "|"), R"() takes_recipe=1 ;;
    esac
  fi
  if [[ -n $takes_recipe && $COMP_CWORD -gt 1 && $word == --*.* ]]; then
    words=")",
             join(key_options(words), " "), R"("
    compopt -o nospace 2>/dev/null
  elif [[ -n $takes_recipe && $COMP_CWORD -gt 1 && $word == --* ]]; then
    # Sections first: all keys at once are too many to read.
    words="$words )",
             join(section_options(words), " "), R"("
  fi
)",
             kBashAnswer);
}

std::string zsh_script(const CompletionWords& words) {
  std::string described, cases;
  for (const Json& command : commands_of(words)) {
    const std::string purpose = replace_all(command.at("purpose").as_string(), ":", "\\:");
    described += cat("    ", shell_quoted(cat(name_of(command), ":", purpose)), "\n");
    cases += cat("    ", name_of(command), ") compadd -- ", join(option_names(command), " "),
                 " --help ", join(positional_words(command, words), " "), " ;;\n");
  }
  return cat(
      "#compdef automodel\n# Completes automodel's command lines in zsh. Made by `automodel "
      "completion zsh`.\n_automodel() {\n  local -a commands keys\n  commands=(\n",
      described, "  )\n  keys=(", join(key_options(words), " "),
      ")\n  if (( CURRENT == 2 )); then\n    _describe command commands\n"
      "    _files -g '*.(yaml|yml)'\n    return\n  fi\n  case $words[2] in\n",
      cases, "  esac\n  case $words[2] in\n    ", recipe_commands(words, "|"),
      "|*.yaml|*.yml)\n      [[ $PREFIX == --* ]] && compadd -S '' -- $keys\n"
      "      _files -g '*.(yaml|yml)' ;;\n    *) _files ;;\n  esac\n}\n"
      "if [[ $funcstack[1] == _automodel ]]; then\n  _automodel \"$@\"\nelse\n"
      "  compdef _automodel automodel\nfi\n");
}

std::string fish_option(const std::string& command, const Json& option) {
  std::string text;
  for (const Json& name : option.at("names").as_array()) {
    const std::string& word = name.as_string();
    text += cat("complete -c automodel -n '__fish_seen_subcommand_from ", command, "' ",
                word.starts_with("--") ? "-l " : "-s ", word.substr(word.starts_with("--") ? 2 : 1),
                " -d ", shell_quoted(option.at("text").as_string()));
    if (option.at("choices").size() > 0) {
      text += cat(" -xa ", shell_quoted(join(choices_in(option), " ")));
    } else if (option.at("takes_value").as_bool()) {
      text += " -r";
    }
    text += "\n";
  }
  return text;
}

std::string fish_script(const CompletionWords& words) {
  std::string text =
      "# Completes automodel's command lines in fish. Made by `automodel completion fish`.\n"
      "complete -c automodel -f\n"
      "complete -c automodel -n __fish_use_subcommand -a '(__fish_complete_suffix .yaml)'\n";
  for (const Json& command : commands_of(words)) {
    const std::string name = name_of(command);
    text += cat("complete -c automodel -n __fish_use_subcommand -a ", name, " -d ",
                shell_quoted(command.at("purpose").as_string()), "\n");
    for (const Json& option : command.at("options").as_array()) text += fish_option(name, option);
    const std::string positional = join(positional_words(command, words), " ");
    text += cat("complete -c automodel -n '__fish_seen_subcommand_from ", name, "' ",
                positional.empty() ? takes_recipe(command)
                                         ? std::string("-a '(__fish_complete_suffix .yaml)'")
                                         : std::string("-F")
                                   : cat("-a ", shell_quoted(positional)),
                "\n");
  }
  return cat(text, "complete -c automodel -n '__fish_seen_subcommand_from ",
             recipe_commands(words, " "), "' -a ", shell_quoted(join(key_options(words), " ")),
             "\n");
}

}  // namespace

Json describe_commands(const CLI::App& app) {
  Json commands = Json::array();
  for (const CLI::App* command : app.get_subcommands({})) {
    Json options = Json::array();
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_name() != "--help") options.push_back(describe_option(*option));
    }
    Json described = Json::object();
    described["name"] = command->get_name();
    described["purpose"] = command->get_description();
    described["options"] = std::move(options);
    described["footer"] = command->get_footer();
    commands.push_back(std::move(described));
  }
  Json described = Json::object();
  described["description"] = app.get_description();
  described["commands"] = std::move(commands);
  described["footer"] = app.get_footer();
  return described;
}

std::vector<std::string> dotted_keys(const Json& schema) {
  std::set<std::string> keys;
  walk_keys(schema, "", keys);
  return {keys.begin(), keys.end()};
}

std::string completion_script(const std::string& shell, const CompletionWords& words) {
  if (shell == "bash") return bash_script(words);
  if (shell == "zsh") return zsh_script(words);
  if (shell == "fish") return fish_script(words);
  if (shell == "json") return words.commands.dump(2) + "\n";
  throw UserError(cat("no completion for '", shell, "'; shells: bash, zsh, fish, json"));
}

}  // namespace automodel::cli
