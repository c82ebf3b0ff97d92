// rooms: config
// A recipe's text and overrides, then printing and reading back. Lines of the input that begin with
// two dashes are overrides while nothing else has come; the rest is the recipe.
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
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  while (input.starts_with("--") && input.find('\n') != std::string_view::npos) {
    overrides.emplace_back(input.substr(0, input.find('\n')));
    input.remove_prefix(input.find('\n') + 1);
  }
  const std::string text(input);
  std::optional<config::Document> document;
  try {
    document = config::load_text(text, "recipe.yaml", overrides, environment());
  } catch (const UserError&) {
    return 0;
  }
  check_round_trip(*document);
  return 0;
}
