#include "tokenizers/regex_classes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.h"

namespace automodel::tokenizers {

namespace {

// With what became alphabetic and lower case after Unicode 14.
constexpr const char* kAlphabetic =
    "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}"
    "\\x{11081}";
constexpr const char* kLowercase = "\\p{Lowercase}\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}";

constexpr std::array<std::pair<const char*, const char*>, 38> kPropertyNames{{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"casedletter", "L&"},
    {"lc", "L&"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
}};

// Binary properties; any other name that is not a category is taken for a script.
constexpr std::array<std::string_view, 22> kBinaryProperties{"alphabetic",
                                                             "uppercase",
                                                             "lowercase",
                                                             "whitespace",
                                                             "emoji",
                                                             "emojipresentation",
                                                             "emojimodifier",
                                                             "emojimodifierbase",
                                                             "emojicomponent",
                                                             "extendedpictographic",
                                                             "ascii",
                                                             "asciihexdigit",
                                                             "hexdigit",
                                                             "idstart",
                                                             "idcontinue",
                                                             "xidstart",
                                                             "xidcontinue",
                                                             "ideographic",
                                                             "math",
                                                             "dash",
                                                             "any",
                                                             "joincontrol"};

}  // namespace

std::string posix_class_body(std::string_view name) {
  if (name == "alpha") return kAlphabetic;
  if (name == "digit") return "\\p{Nd}";
  if (name == "alnum") return cat(kAlphabetic, "\\p{Nd}");
  if (name == "space") return kSpace;
  if (name == "blank") return "\\t\\p{Zs}";
  if (name == "upper") return "\\p{Uppercase}";
  if (name == "lower") return kLowercase;
  if (name == "punct") return "\\p{P}\\p{S}";
  if (name == "cntrl") return "\\p{Cc}";
  if (name == "graph") return "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}";
  if (name == "print") return "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}";
  if (name == "xdigit") return kHex;
  if (name == "word") return kWord;
  if (name == "ascii") return "\\x{0}-\\x{7f}";
  return "";
}

std::string property_body(std::string_view name) {
  std::string key;
  for (const char c : to_lower(name)) {
    if (c != '_' && c != ' ' && c != '-') key.push_back(c);
  }
  if (key == "punct") return "\\p{P}";
  if (key == "alphabetic") return kAlphabetic;
  if (key == "lowercase") return kLowercase;
  if (std::string body = posix_class_body(key); !body.empty()) return body;
  for (const auto& [from, to] : kPropertyNames) {
    if (key == from) return cat("\\p{", to, "}");
  }
  const bool is_known =
      name.size() <= 2 ||
      std::ranges::find(kBinaryProperties, std::string_view(key)) != kBinaryProperties.end();
  // PCRE2's plain script names are script extensions, Oniguruma's are scripts.
  return cat("\\p{", is_known ? "" : "sc:", name, "}");
}

}  // namespace automodel::tokenizers
