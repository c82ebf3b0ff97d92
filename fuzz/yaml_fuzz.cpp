// rooms: config
// A recipe's text and one override, then printing and reading back. The first line of the input is
// the override, the rest the recipe.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "config/print.h"
#include "core/error.h"

namespace {

using namespace automodel;

config::Environment environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    if (name == "X") return "[1, 'x']";
    return std::nullopt;
  };
}

/// What was printed without hiding must load to the same values.
void check_round_trip(const config::Document& document) {
  const std::string text = config::to_yaml(document.root, {.has_secrets_hidden = false});
  std::optional<config::Document> again;
  try {
    again = config::load_text(text, "again", {}, environment());
  } catch (const UserError& error) {
    // An override may put a value below a recipe that is as deep as recipes may be.
    if (std::string_view(error.what()).find("nested deeper") != std::string_view::npos) return;
    throw;
  }
  if (!config::same_value(document.root, again->root)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  std::vector<std::string> overrides;
  if (line != std::string_view::npos && line > 0) {
    overrides.push_back("--" + std::string(input.substr(0, line)));
  }
  const std::string text(line == std::string_view::npos ? input : input.substr(line + 1));
  std::optional<config::Document> document;
  try {
    document = config::load_text(text, "recipe.yaml", overrides, environment());
  } catch (const UserError&) {
    return 0;
  }
  check_round_trip(*document);
  return 0;
}
