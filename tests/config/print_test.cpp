#include "config/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "core/json.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::config {
namespace {

Node load(const std::string& text) {
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "TOKEN") return "hunter2";
    if (name == "N") return "7";
    return std::nullopt;
  };
  return load_text(text, "recipe.yaml", {}, environment).root;
}

TEST(PrintTest, WritesBlockStyleInTheOrderOfTheFile) {
  EXPECT_EQ(to_yaml(load("b: {x: 1, y: [1, [2, 3], {z: 4, w: 5}]}\na: []\nc: {}\n")),
            "b:\n"
            "  x: 1\n"
            "  y:\n"
            "    - 1\n"
            "    -\n"
            "      - 2\n"
            "      - 3\n"
            "    - z: 4\n"
            "      w: 5\n"
            "a: []\n"
            "c: {}\n");
}

TEST(PrintTest, KeepsWhatWasWritten) {
  EXPECT_EQ(to_yaml(load("_target_: torch.optim.Adam\nlr: 1e-8\nn: 0x10\nb: 'abc'\nt: 1,2\n"
                         "y: yes\nz: ~\nq: \"5\"\np: ${N}/x\nd: 12:30:45\n")),
            "_target_: torch.optim.Adam\n"
            "lr: 1e-8\n"
            "n: 0x10\n"
            "b: abc\n"
            "t: 1,2\n"
            "y: yes\n"
            "z: null\n"
            "q: '5'\n"
            "p: ${N}/x\n"
            "d: 12:30:45\n");
}

TEST(PrintTest, WritesTheValuesThatAreUsedWhenAsked) {
  const Node recipe = load(
      "n: ${N}\np: ${N}/x\nmissing: ${NOT_SET,1e-4}\nhf_token: ${TOKEN}\n"
      "note: ${TOKEN}\nkept: 0x10\nlist: ['${N}', a]\n");
  const std::string text = to_yaml(recipe, {.has_values = true});
  EXPECT_EQ(text,
            "n: '7'\n"
            "p: 7/x\n"
            "missing: 1e-4\n"
            "hf_token: ${TOKEN}\n"
            "note: hunter2\n"
            "kept: 0x10\n"
            "list:\n"
            "  - '7'\n"
            "  - a\n");
  const std::string whole = to_yaml(recipe, {.has_secrets_hidden = false, .has_values = true});
  EXPECT_NE(whole.find("hf_token: hunter2\n"), std::string::npos) << whole;
  // It is read as the same values without the environment.
  const Environment nothing = [](const std::string&) { return std::nullopt; };
  EXPECT_TRUE(same_value(load_text(whole, "again", {}, nothing).root, recipe)) << whole;
}

TEST(PrintTest, HidesSecretsByKey) {
  EXPECT_EQ(to_yaml(load("hf_token: abc\ncomet: {api_key: [x, {y: z}]}\nuse_auth_token: true\n"
                         "my_token: ${TOKEN}\ntokenizer: gpt2\n")),
            "hf_token: '******'\n"
            "comet:\n"
            "  api_key:\n"
            "    - '******'\n"
            "    - y: '******'\n"
            "use_auth_token: true\n"
            "my_token: ${TOKEN}\n"
            "tokenizer: gpt2\n");
}

TEST(PrintTest, KnowsSecretKeysByTheirWords) {
  for (const char* key :
       {"password", "db_password", "secret", "client-secret", "token", "hf_token", "HF_TOKEN",
        "apikey", "api_key", "wandb.api_key", "apiKey", "auth", "authorization", "authToken"}) {
    EXPECT_TRUE(is_secret_key(key)) << key;
  }
  for (const char* key : {"tokenizer", "num_label_tokens", "author", "eos_token", "pad_token_id",
                          "start_of_turn_token", "authors", "max_new_tokens", "secretary", "key"}) {
    EXPECT_FALSE(is_secret_key(key)) << key;
  }
}

TEST(PrintTest, ValuesMadeByTheProgramReadBack) {
  Node root = Node::mapping();
  root.put("five", Node::string("5"));
  root.put("none", Node::string("none"));
  root.put("text", Node::string("a: \"b\"\n'c'\\"));
  root.put("plain", Node::string("hello"));
  root.put("small", Node::real(1e-8));
  root.put("inf", Node::real(std::numeric_limits<double>::infinity()));
  root.put_path("a.b", Node::sequence({Node::integer(1), Node::boolean(true), Node::null()}));
  const Node again = load_text(to_yaml(root), "again").root;
  EXPECT_TRUE(same_value(root, again)) << to_yaml(root);
}

TEST(PrintTest, EveryScalarReadsBackToItsValue) {
  PrintOptions options;
  options.has_secrets_hidden = false;
  const Json rows = Json::parse_file(test::source_file("tests/config/data/scalars.json"));
  for (const Json& row : rows.as_array()) {
    const std::string text = row.at("text").as_string();
    const std::vector<std::string> overrides = {cat("--k=", text)};
    const Node root = load_text("a: 1\n", "recipe.yaml", overrides).root;
    const std::string printed = to_yaml(root, options);
    EXPECT_TRUE(same_value(root, load_text(printed, "again").root)) << printed;
    EXPECT_EQ(to_yaml(load_text(printed, "again").root, options), printed);
  }
}

/// A literal is written as it was typed unless something in it is hidden.
TEST(PrintTest, SecretsInsideALiteralOfAnArgumentAreHidden) {
  const std::vector<std::string> overrides = {"--wandb={'enable': False, 'api_key': 'abc'}",
                                              "--model={'dim': [1, 2]}"};
  const Node root = load_text("a: 1\n", "recipe.yaml", overrides).root;
  EXPECT_EQ(to_yaml(root, {.has_secrets_hidden = true}),
            "a: 1\nwandb:\n  enable: false\n  api_key: '******'\nmodel: '{''dim'': [1, 2]}'\n");
  EXPECT_THAT(to_yaml(root, {.has_secrets_hidden = false}), testing::HasSubstr("abc"));
}

/// Hiding one entry shows no other one's value from the environment.
TEST(PrintTest, LiteralsOfArgumentsKeepTheirPlaceholders) {
  const Environment environment = [](const std::string&) { return std::optional("hunter2"); };
  const std::vector<std::string> overrides = {
      "--wandb={'api_key': 'abc', 'name': 'run of ${NAME}', 'list': ['${NAME}']}"};
  const Node root = load_text("a: 1\n", "recipe.yaml", overrides, environment).root;
  EXPECT_EQ(to_yaml(root, {.has_secrets_hidden = true}),
            "a: 1\nwandb:\n  api_key: '******'\n  name: run of ${NAME}\n  list:\n"
            "    - ${NAME}\n");
}

// An override into a string makes its Python literal a list whose elements the program prints.
TEST(PrintTest, IntegersOfPythonLiteralsStayIntegers) {
  const std::string digits(40, '9');
  for (const std::string& value :
       {digits, "-" + digits, std::string("0x") + std::string(40, 'f'),
        "-0b1" + std::string(70, '0'), std::string("1") + std::string(320, '0')}) {
    const std::vector<std::string> overrides = {"--l.1=x"};
    const Node root = load_text(cat("l: \"(", value, ", 0)\"\n"), "recipe.yaml", overrides).root;
    ASSERT_EQ(root.find("l")->children().front().kind(), NodeKind::kInt) << value;
    const std::string printed = to_yaml(root);
    EXPECT_TRUE(same_value(root, load_text(printed, "again").root)) << printed;
  }
  EXPECT_TRUE(load_text(cat("l: \"(0x", std::string(300, 'f'), ", 0)\"\n"), "recipe.yaml")
                  .root.find("l")
                  ->is_string());
}

TEST(PrintTest, LongKeysTakeTheExplicitForm) {
  const std::string key(200, 'k');
  const std::string text = "a:\n  - ? " + key + "\n    : 1\n";
  EXPECT_EQ(to_yaml(load(text)), text);
}

TEST(PrintTest, ControlCharactersAreEscaped) {
  const std::string text = "a: \"x\\x14\\u2028y\"\n";
  EXPECT_EQ(to_yaml(load(text)), text);
}

// yaml-cpp's emitter would write U+FFFD for each of them.
TEST(PrintTest, NoncharactersKeepTheirValue) {
  const std::string text = "\"k\\uffff\": \"x\\ufdd0\\U0001fffey é\"\n";
  const Node root = load(text);
  EXPECT_EQ(root.children().front().key(), "k\xEF\xBF\xBF");
  EXPECT_EQ(to_yaml(root), text);
}

TEST(PrintTest, OddKeysAreQuoted) {
  EXPECT_EQ(to_yaml(load("'yes': 1\n'a: b': 2\n'': 3\n'5': 4\n")),
            "'yes': 1\n'a: b': 2\n'': 3\n'5': 4\n");
}

}  // namespace
}  // namespace automodel::config
