#include "config/schema.h"

#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "core/text.h"

namespace automodel::config {

enum class Shade { kLight, kDark };

}  // namespace automodel::config

namespace automodel {

template <>
struct EnumNames<config::Shade> {
  static constexpr std::array<std::pair<std::string_view, config::Shade>, 2> values = {
      {{"light", config::Shade::kLight}, {"dark", config::Shade::kDark}}};
};

}  // namespace automodel

namespace automodel::config {
namespace {

struct Small {
  std::string path;
  Shade shade = Shade::kDark;

  static constexpr auto fields() {
    return std::tuple{field("path", &Small::path, "where it is").required(),
                      field("shade", &Small::shade, "how dark")};
  }
};

struct Whole {
  int tp_size = 1;
  double lr = 0.5;
  std::optional<bool> is_on;
  std::vector<double> betas = {0.9};
  Small small;

  static constexpr auto fields() {
    return std::tuple{field("tp_size", &Whole::tp_size, "ranks a layer is cut over").at_least(1),
                      field("lr", &Whole::lr, "learning rate").above(0).without_effect("fixed"),
                      field("is_on", &Whole::is_on, "whether"),
                      field("betas", &Whole::betas, "decays").at_most(1),
                      field("small", &Whole::small, "a section")};
  }
};

TEST(SchemaTest, SaysTypesRangesDefaultsAndDocs) {
  const Json schema = schema_of<Whole>();
  EXPECT_EQ(schema.at("additionalProperties").as_bool(), false);
  const Json& properties = schema.at("properties");
  const Json& size = properties.at("tp_size");
  EXPECT_EQ(size.at("type").dump(), R"(["integer", "string", "null"])");
  EXPECT_EQ(size.at("minimum").as_int(), 1);
  EXPECT_EQ(size.at("default").as_int(), 1);
  EXPECT_EQ(size.at("description").as_string(), "ranks a layer is cut over");
  EXPECT_EQ(properties.at("lr").at("exclusiveMinimum").as_double(), 0);
  EXPECT_EQ(properties.at("lr").at("description").as_string(),
            "learning rate. No effect here: fixed");
  EXPECT_FALSE(properties.at("is_on").contains("default"));
  EXPECT_EQ(properties.at("betas").at("items").at("maximum").as_double(), 1);
  EXPECT_EQ(properties.at("small").at("required").dump(), R"(["path"])");
  EXPECT_EQ(properties.at("small").at("properties").at("shade").at("anyOf").as_array()[0].dump(),
            R"({"enum": ["light", "dark", null]})");
}

TEST(SchemaTest, ADocumentNamesItsDraft) {
  const Json document = schema_document(schema_of<Whole>(), "recipe", "A recipe");
  EXPECT_EQ(document.at("$schema").as_string(), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_TRUE(document.at("properties").contains("small"));
}

TEST(ExplainTest, AKey) {
  EXPECT_EQ(explain(schema_of<Whole>(), "tp_size"),
            "tp_size: integer, at least 1 (default 1)\n"
            "  ranks a layer is cut over");
  EXPECT_EQ(explain(schema_of<Whole>(), "small.shade"),
            "small.shade: one of light, dark (default dark)\n"
            "  how dark");
  EXPECT_EQ(explain(schema_of<Whole>(), "betas"),
            "betas: list, each: number, at most 1 (default [0.9])\n"
            "  decays");
}

TEST(ExplainTest, ASection) {
  EXPECT_EQ(explain(schema_of<Whole>(), "small"),
            "small: section\n"
            "  a section\n"
            "  path: string (default \"\") (required)\n"
            "      where it is\n"
            "  shade: one of light, dark (default dark)\n"
            "      how dark");
}

TEST(ExplainTest, TheEndOfAKeyFindsIt) {
  EXPECT_EQ(explain(schema_of<Whole>(), "shade"), explain(schema_of<Whole>(), "small.shade"));
  EXPECT_EQ(keys_ending_with(schema_of<Whole>(), "shade"),
            (std::vector<std::string>{"small.shade"}));
  EXPECT_TRUE(keys_ending_with(schema_of<Whole>(), "hade").empty());
}

/// Keys that other trainers give other names, and a section of one of them.
struct Tuning {
  double lr = 0.1;
  int64_t dim = 8;

  static constexpr auto fields() {
    return std::tuple{field("lr", &Tuning::lr, "the peak of the Learning Rate"),
                      field("dim", &Tuning::dim, "width of the adapters")};
  }
};

struct Trainer {
  Tuning optimizer;

  static constexpr auto fields() {
    return std::tuple{field("optimizer", &Trainer::optimizer, "how it learns")};
  }
};

TEST(ExplainTest, ANameThatOtherTrainersUseFindsTheKey) {
  EXPECT_EQ(explain(schema_of<Trainer>(), "learning_rate"),
            cat("what others call 'learning_rate' is said by lr here:\n",
                explain(schema_of<Trainer>(), "optimizer.lr")));
  EXPECT_EQ(explain(schema_of<Trainer>(), "optim"),
            cat("what others call 'optim' is said by optimizer here:\n",
                explain(schema_of<Trainer>(), "optimizer")));
}

TEST(ExplainTest, WordsOfAKeysTextFindIt) {
  try {
    explain(schema_of<Trainer>(), "peak_of_the_learning");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "no key 'peak_of_the_learning' in a recipe; 'peak of the learning' is in the text of "
              "optimizer.lr");
  }
}

TEST(ExplainTest, AnUnknownKey) {
  try {
    explain(schema_of<Whole>(), "small.shape");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), "no key 'shape' in 'small'; did you mean 'shade'?");
  }
}

}  // namespace
}  // namespace automodel::config
