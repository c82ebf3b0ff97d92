#include "peft/module_pattern.h"

#include <cctype>
#include <regex>
#include <string_view>

#include "core/error.h"

namespace automodel::peft {

struct ModulePattern::Matchers {
  std::vector<std::regex> of_entries;
};

namespace {

/// Whether every escape means the same here and in Python: a letter without a meaning here would
/// stand for itself.
bool has_known_escapes(std::string_view expression) {
  constexpr std::string_view kKnown = "dDsSwWbB";
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '\\') continue;
    i += 1;
    if (i == expression.size()) return true;  // refused as no expression
    const bool is_letter = std::isalpha(static_cast<unsigned char>(expression[i])) != 0;
    if (is_letter && kKnown.find(expression[i]) == std::string_view::npos) return false;
  }
  return true;
}

std::regex expression_of(const std::string& key, const std::string& expression) {
  try {
    if (has_known_escapes(expression)) {
      return std::regex(cat("(.*\\.)?(", expression, ")"), std::regex::ECMAScript);
    }
  } catch (const std::regex_error&) {
    // Python's own syntax; the text below says so.
  }
  throw UnsupportedError(cat(key, " '", expression,
                             "': this expression is not understood in this version; module "
                             "names with . * + ? | ( ) [ ] { } and \\d are"));
}

}  // namespace

ModulePattern::ModulePattern(const std::string& key, const Json* value) {
  if (value == nullptr || value->is_null()) return;
  if (!value->is_object()) {
    throw InputError(cat(key, " is no object of module names and numbers"));
  }
  const auto matchers = std::make_shared<Matchers>();
  for (const auto& [expression, number] : value->as_object()) {
    if (!number.is_number()) throw InputError(cat(key, " of ", expression, " is no number"));
    matchers->of_entries.push_back(expression_of(key, expression));
    entries_.emplace_back(expression, number.as_double());
  }
  matchers_ = matchers;
}

std::optional<double> ModulePattern::find(const std::string& module) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (std::regex_match(module, matchers_->of_entries[i])) return entries_[i].second;
  }
  return std::nullopt;
}

}  // namespace automodel::peft
