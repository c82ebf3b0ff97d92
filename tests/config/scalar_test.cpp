#include "config/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "config/load.h"
#include "core/json.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::config {
namespace {

const char* kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kBool:
      return "bool";
    case NodeKind::kInt:
      return "int";
    case NodeKind::kFloat:
      return "float";
    case NodeKind::kString:
      return "string";
    case NodeKind::kDate:
      return "date";
    case NodeKind::kSequence:
      return "list";
    case NodeKind::kMapping:
      return "mapping";
    case NodeKind::kForeign:
      return "foreign";
  }
  return "?";
}

/// "" when the node is what the golden file says, else what differs.
std::string difference(const Node& node, const Json& golden) {
  const std::string kind = golden.at("kind").as_string();
  if (kind_name(node.kind()) != kind) return cat("a ", kind_name(node.kind()), ", not ", kind);
  const Json* value = golden.find("value");
  if (value == nullptr) return "";
  if (kind == "bool" && node.bool_value() != value->as_bool()) return "other truth";
  if (kind == "string" && node.string_value() != value->as_string()) return *node.string_value();
  if (kind == "int" && value->is_int() && node.int_value() != value->as_int()) return "other int";
  if (kind == "float" || (kind == "int" && !value->is_int())) {
    const double want = value->as_double();
    const double have = *node.number();
    const bool is_same = want == have || (std::isnan(want) && std::isnan(have)) ||
                         (kind == "int" && std::abs(want - have) <= 1e-15 * std::abs(want));
    if (!is_same) return cat("number ", have, ", not ", want);
  }
  if (kind != "list" && kind != "mapping") return "";
  if (node.size() != value->size()) return cat(node.size(), " children");
  for (size_t i = 0; i < node.size(); ++i) {
    const Json& element = value->as_array()[i];
    const Node& child = node.children()[i];
    if (kind == "mapping" && element.as_array()[0].as_string() != child.key()) return child.key();
    const std::string inner =
        difference(child, kind == "mapping" ? element.as_array()[1] : element);
    if (!inner.empty()) return cat("child ", i, ": ", inner);
  }
  return "";
}

Json::Array goldens() {
  return Json::parse_file(test::source_file("tests/config/data/scalars.json")).as_array();
}

TEST(ScalarTest, StringsBecomeWhatUpstreamTranslatesThemTo) {
  for (const Json& row : goldens()) {
    const std::string text = row.at("text").as_string();
    EXPECT_EQ(difference(translate_text(text), row.at("string")), "") << "text: " << text;
  }
}

TEST(ScalarTest, PlainScalarsBecomeWhatPyYamlAndTheTranslationMakeOfThem) {
  for (const Json& row : goldens()) {
    const Json* golden = row.find("plain");
    if (golden == nullptr) continue;
    const std::string text = row.at("text").as_string();
    std::optional<Node> node = resolve_plain_scalar(text);
    if (golden->at("kind").as_string() == "error") {
      EXPECT_FALSE(node) << "text: " << text;
      continue;
    }
    ASSERT_TRUE(node) << "text: " << text;
    if (node->is_string()) node = translate_text(*node->string_value());
    EXPECT_EQ(difference(*node, *golden), "") << "text: " << text;
  }
}

TEST(ScalarTest, PlainScalarsInARecipeAreReadAsAlone) {
  int num_checked = 0;
  for (const Json& row : goldens()) {
    const Json* golden = row.find("plain");
    const std::string text = row.at("text").as_string();
    if (golden == nullptr || golden->at("kind").as_string() == "error") continue;
    const Document document = load_text(cat("k: ", text, "\n"), "recipe.yaml");
    EXPECT_EQ(difference(*document.root.find("k"), *golden), "") << "text: " << text;
    ++num_checked;
  }
  EXPECT_GT(num_checked, 200);
}

TEST(ScalarTest, OverridesKnowNoYaml) {
  for (const Json& row : goldens()) {
    const std::string text = row.at("text").as_string();
    if (text.find('$') != std::string::npos) continue;
    const std::vector<std::string> overrides = {cat("--k=", text)};
    const Document document = load_text("a: 1\n", "recipe.yaml", overrides);
    EXPECT_EQ(difference(*document.root.find("k"), row.at("string")), "") << "text: " << text;
  }
}

}  // namespace
}  // namespace automodel::config
