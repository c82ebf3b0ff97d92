#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tokenizers/regex.h"

namespace automodel::tokenizers {

/// One component of tokenizer.json (an object with a "type") and where it stands, so that what is
/// wrong in it is reported with the file and the path.
class Component final {
 public:
  /// `path` is e.g. "pre_tokenizer". Throws InputError when `json` is no object with a type.
  Component(const Json& json, std::string file, std::string path);

  const std::string& type() const { return type_; }
  const Json& json() const { return *json_; }
  /// "FILE: PATH (TYPE)".
  std::string where() const;

  /// Members; absent or null gives the fallback, another kind an InputError.
  bool flag(std::string_view key, bool fallback) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;
  /// Members that must be there.
  std::string text(std::string_view key) const;
  const Json& member(std::string_view key) const;
  /// A member that is one character.
  char32_t character(std::string_view key) const;
  /// A member that is {"Regex": ...}, {"String": ...} or a plain string.
  Regex pattern(std::string_view key) const;
  /// The components of a member that is a list.
  std::vector<Component> list(std::string_view key) const;

  /// Throws InputError "FILE: PATH (TYPE): what".
  [[noreturn]] void fail(std::string_view what) const;
  /// Throws InputError for a type that is none of `known`, with a suggestion.
  [[noreturn]] void fail_unknown(std::span<const std::string_view> known) const;

 private:
  const Json* json_;
  std::string file_;
  std::string path_;
  std::string type_;
};

}  // namespace automodel::tokenizers
