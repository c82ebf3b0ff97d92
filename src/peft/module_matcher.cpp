#include "peft/module_matcher.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "core/text.h"

namespace automodel::peft {

namespace {

/// One element of a pattern.
struct Token {
  enum class Kind {
    kLiteral,
    kAny,       ///< one character
    kText,      ///< any text
    kChildren,  ///< nothing, or a dot and any text
  };
  Kind kind = Kind::kLiteral;
  char literal = 0;
};

/// Whether the text before a `.*` is a whole component of a name, or ends with a number.
bool ends_a_part(std::string_view before) {
  if (before.empty()) return false;
  if (std::isdigit(static_cast<unsigned char>(before.back())) != 0) return true;
  const std::string_view part = before.substr(before.rfind('.') + 1);
  return !part.empty() && part.find('*') == std::string_view::npos;
}

std::vector<Token> tokens_of(std::string_view pattern) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_dot_star = pattern[i] == '.' && i + 1 < pattern.size() && pattern[i + 1] == '*';
    if (is_dot_star) {
      const bool is_whole = ends_a_part(pattern.substr(0, i));
      tokens.push_back({is_whole ? Token::Kind::kChildren : Token::Kind::kText});
      ++i;
    } else if (pattern[i] == '*') {
      tokens.push_back({Token::Kind::kText});
    } else if (pattern[i] == '.') {
      tokens.push_back({Token::Kind::kAny});
    } else {
      tokens.push_back({Token::Kind::kLiteral, pattern[i]});
    }
  }
  return tokens;
}

}  // namespace

bool wildcard_match(std::string_view pattern, std::string_view name) {
  // reached[i]: the tokens so far match the first i characters.
  std::vector<bool> reached(name.size() + 1, false);
  reached[0] = true;
  for (const Token& token : tokens_of(pattern)) {
    std::vector<bool> next(name.size() + 1, false);
    const auto fill_from = [&](size_t first) {
      std::fill(next.begin() + static_cast<std::ptrdiff_t>(first), next.end(), true);
    };
    for (size_t i = 0; i <= name.size(); ++i) {
      if (!reached[i]) continue;
      switch (token.kind) {
        case Token::Kind::kLiteral:
          if (i < name.size() && name[i] == token.literal) next[i + 1] = true;
          break;
        case Token::Kind::kAny:
          if (i < name.size()) next[i + 1] = true;
          break;
        case Token::Kind::kText:
          fill_from(i);
          break;
        case Token::Kind::kChildren:
          next[i] = true;
          if (i < name.size() && name[i] == '.') fill_from(i + 1);
          break;
      }
    }
    reached = std::move(next);
  }
  return reached[name.size()];
}

ModuleMatcher::ModuleMatcher(const PeftConfig& config) {
  if (config.match_all_linear) return;
  targets_ = config.target_modules;
  excluded_ = config.exclude_modules;
  if (targets_.empty() && excluded_.empty()) targets_ = {"*_proj"};
}

std::optional<std::string> ModuleMatcher::match(std::string_view name) const {
  const auto means = [&](const std::string& pattern) {
    return name == pattern || wildcard_match(pattern, name);
  };
  if (targets_.empty()) {
    if (std::any_of(excluded_.begin(), excluded_.end(), means)) return std::nullopt;
    return "all linear layers";
  }
  const auto found = std::find_if(targets_.begin(), targets_.end(), means);
  if (found == targets_.end()) return std::nullopt;
  return *found;
}

std::string nearest_pattern(const std::string& pattern, const std::vector<std::string>& names) {
  std::string_view middle = pattern;
  while (middle.starts_with('*')) middle.remove_prefix(1);
  while (middle.ends_with('*')) middle.remove_suffix(1);
  if (middle.empty() || middle == ".") return "";
  for (const std::string& wider : {cat("*.", middle), cat("*", middle), cat("*", middle, "*")}) {
    for (const std::string& name : names) {
      if (wildcard_match(wider, name)) return wider;
    }
  }
  const std::string leaf = pattern.substr(pattern.find_last_of("*.") + 1);
  std::set<std::string> leaves;
  for (const std::string& name : names) leaves.insert(name.substr(name.rfind('.') + 1));
  std::string best;
  int least = 4;  // names that differ in more letters are not suggested
  for (const std::string& candidate : leaves) {
    const int distance = edit_distance(leaf, candidate);
    if (distance < least) {
      least = distance;
      best = cat("*.", candidate);
    }
  }
  return best;
}

}  // namespace automodel::peft
