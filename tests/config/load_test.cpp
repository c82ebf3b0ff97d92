#include "config/load.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "config/print.h"
#include "core/error.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::config {
namespace {

Environment environment_of(std::vector<std::pair<std::string, std::string>> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    for (const auto& [key, value] : variables) {
      if (key == name) return value;
    }
    return std::nullopt;
  };
}

Node load(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return load_text(
             text, "recipe.yaml", overrides,
             environment_of({{"HOME", "/root"}, {"N", "7"}, {"a.b", "dotted"}, {"TRICK", "$N"}}))
      .root;
}

std::string json(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return to_json(load(text, overrides)).dump();
}

/// The whole text of what loading throws.
std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    load(text, overrides);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LoadTest, KeepsThePlaceOfKeysAndValues) {
  const Node root = load("a:\n  é: &x {b: [1, 22]}\n");
  const Node* value = root.find_path("a.é.b.1");
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->position(), (Position{0, 2, 17}));
  EXPECT_EQ(value->path(), "a.é.b.1");
  EXPECT_EQ(root.find_path("a.é")->key_position(), (Position{0, 2, 3}));
}

TEST(LoadTest, AQuoteThatIsNotClosedIsFoundWhereItBegins) {
  const std::pair<const char*, const char*> wrong[] = {
      {"a: 1\nb: \"x\n  c: 2\n",
       "recipe.yaml:2:4: error: this quote is not closed: a \" is missing"},
      {"a: 1\nb: 'it''s\n", "recipe.yaml:2:4: error: this quote is not closed: a ' is missing"},
      {"b: \"x\\\"\n", "recipe.yaml:1:4: error: this quote is not closed: a \" is missing"},
      {"a: 1\nseed\n", "recipe.yaml:2:1: error: a ':' is missing behind 'seed'"},
      {" a: 1\nb: 2\n", "Or is this line indented less than the first one?"},
      {"a: \"x\\0y\"\n", "recipe.yaml:1:4: error: a text may not hold the character NUL"}};
  for (const auto& [text, expected] : wrong) {
    EXPECT_NE(error_of(text).find(expected), std::string::npos) << error_of(text);
  }
  EXPECT_EQ(json("a: 'it''s'\nb: \"x\\\"y\"\nc: &q \"z\"\n"),
            R"({"a": "it's", "b": "x\"y", "c": "z"})");
  // Where YAML takes a key alone for null.
  EXPECT_EQ(json("a: {b, c: 1}\n? d\ne :\n"),
            R"({"a": {"b": null, "c": 1}, "d": null, "e": null})");
}

TEST(LoadTest, ControlCharactersDoNotReachATerminal) {
  const std::string error = error_of("\"\\e[31ma\": 1\n\"\\e[31ma\": 2\n");
  EXPECT_NE(error.find("key '\\x1b[31ma' appears twice"), std::string::npos) << error;
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

TEST(LoadTest, AliasesAndMergeKeysAreExpandedAsPyYamlDoes) {
  EXPECT_EQ(json("base: &b {x: 1, y: 2}\n"
                 "other: &o {y: 3, z: 4}\n"
                 "both:\n  y: 9\n  <<: [*b, *o]\n  w: *b\n"),
            R"({"base": {"x": 1, "y": 2}, "other": {"y": 3, "z": 4}, )"
            R"("both": {"y": 9, "z": 4, "x": 1, "w": {"x": 1, "y": 2}}})");
}

TEST(LoadTest, AQuotedMergeKeyIsAKey) {
  EXPECT_EQ(json("'<<': 1\n"), R"({"<<": 1})");
}

TEST(LoadTest, CoreTagsDecideTheTypeBeforeTheTranslation) {
  EXPECT_EQ(json("a: !!str 5\nb: !!float 5\nc: !!int '5'\nd: !!seq [1]\ne: !!str abc\n"),
            R"({"a": 5, "b": 5.0, "c": 5, "d": [1], "e": "abc"})");
}

TEST(LoadTest, NamesOfPythonObjectsAreNotTranslated) {
  EXPECT_EQ(json("_target_: '5'\ncollate_fn: '[1]'\nloss_fn: none\nx_fn: $N\n"),
            R"({"_target_": "5", "collate_fn": "[1]", "loss_fn": null, "x_fn": "$N"})");
}

TEST(LoadTest, ReadsEveryFormOfEnvironmentVariable) {
  EXPECT_EQ(json("a: ${HOME}/x\nb: ${oc.env:N}\nc: ${NONE,fall, back}\nd: ${oc.env:NONE,3}\n"
                 "e: $HOME/$N.\nf: $5 and $\ng: ['${N}']\nh: ${a.b}\ni: $a.b\nj: '${}'\n"),
            R"({"a": "/root/x", "b": 7, "c": "fall, back", "d": 3, "e": "/root/7.", )"
            R"("f": "$5 and $", "g": [7], "h": "dotted", "i": "dotted", "j": "${}"})");
}

TEST(LoadTest, AVariableWithoutAnEndIsWarnedOf) {
  const auto warnings = [](const std::string& text) {
    return join(load_text(text, "recipe.yaml", {}, environment_of({{"N", "7"}})).warnings, "\n");
  };
  EXPECT_EQ(
      warnings("a: 1\nb: ${N/x.jsonl\n"),
      "recipe.yaml:2:4: warning: '${' is kept as it is: no '}' ends the name of a variable behind "
      "it [b]\n"
      "  b: ${N/x.jsonl\n"
      "     ^");
  EXPECT_EQ(warnings("a: ${N}\nb: $5 { }\nc: '${}'\n"), "");
}

TEST(LoadTest, WhatHasNoEffectIsWarnedOf) {
  const auto warnings = [](const std::string& text, const std::vector<std::string>& overrides) {
    return join(load_text(text, "recipe.yaml", overrides).warnings, "\n");
  };
  EXPECT_EQ(warnings("a: null\nb: ~\nc: 'null'\n", {"--d=none", "--e=nullable"}), "");
  EXPECT_EQ(warnings("a: 1\n", {"--a=null"}),
            "command line: warning: 'null' is a text on the command line; `none` stands for no "
            "value [a]\n"
            "  --a=null\n"
            "      ^");
  EXPECT_EQ(warnings("a: [{_target_: b, _convert_: all}]\n", {}),
            "recipe.yaml:1:19: warning: '_convert_' has no effect here: it is for Hydra, and "
            "arguments with a _target_ of their own are always built [a.0._convert_]\n"
            "  a: [{_target_: b, _convert_: all}]\n"
            "                    ^");
}

TEST(LoadTest, AShellsDefaultIsNoName) {
  EXPECT_EQ(error_of("a: ${NONE:-x}\n"),
            "recipe.yaml:1:4: error: Environment variable 'NONE:-x' is not set (required by "
            "'${NONE:-x}'). A default follows a comma: '${NONE,x}'. [a]\n"
            "  a: ${NONE:-x}\n"
            "     ^");
}

TEST(LoadTest, TextFromTheEnvironmentIsNotReadAgain) {
  EXPECT_EQ(json("a: ${TRICK}\n"), R"({"a": "$N"})");
}

TEST(LoadTest, KeysAreNotInterpolated) {
  EXPECT_EQ(json("$N: 1\n"), R"({"$N": 1})");
}

TEST(LoadTest, OverridesComeInThreeFormsAndInOrder) {
  EXPECT_EQ(json("a: {b: 1}\nlist: [1, 2]\n", {"--a.b=2", "--a.c", "x y", "a.d=-5",
                                               "--new.deep.key", "-5", "--flag", "--a.b=3"}),
            R"({"a": {"b": 3, "c": "x y", "d": -5}, "list": [1, 2], "new": {"deep": {"key": -5}}, )"
            R"("flag": true})");
}

TEST(LoadTest, NoneInAnOverrideTakesASectionAwayAndMakesAValueNull) {
  EXPECT_EQ(json("a: {b: 1}\nc: 1\nd: 2\ne: {f: {g: 1}, h: [1]}\n",
                 {"--a", "none", "c=null", "--d=None", "--e.f=none", "--e.h=none", "--i=none"}),
            R"({"c": "null", "d": null, "e": {"h": null}, "i": null})");
}

TEST(LoadTest, AnOverrideReachesIntoLists) {
  EXPECT_EQ(json("l: [1, {x: 2}]\nt: \"(3, 4)\"\n", {"--l.0", "9", "l.1.x=8", "--t.1=5"}),
            R"({"l": [9, {"x": 8}], "t": [3, 5]})");
}

TEST(LoadTest, AnOverrideReplacesAScalarInTheWayByASection) {
  EXPECT_EQ(json("a: 5\n", {"--a.b=1"}), R"({"a": {"b": 1}})");
  const std::string overrides[] = {"--a.b=1"};
  const Document document = load_text("a: 5\n", "recipe.yaml", overrides);
  Diagnostics diagnostics(document.sources);
  diagnostics.error(*document.root.find("a"), "expected a number");
  EXPECT_EQ(join(diagnostics.render_all(Severity::kError), "\n"),
            "command line: error: expected a number [a]\n"
            "  --a.b=1\n"
            "    ^");
}

TEST(LoadTest, AnOverrideCanGiveAListOrMapping) {
  EXPECT_EQ(json("l: [1, 2, 3]\n", {"--l", "[4]", "--m={'x': 1}", "--v=${N}"}),
            R"({"l": [4], "m": {"x": 1}, "v": 7})");
}

TEST(LoadTest, WindowsLineEndsAndAByteOrderMarkAreFine) {
  EXPECT_EQ(json("\xEF\xBB\xBF"
                 "a: 1\r\nb:\r\n  c: x\r\n"),
            R"({"a": 1, "b": {"c": "x"}})");
}

TEST(LoadTest, ReadsAFile) {
  test::TemporaryDirectory directory;
  const std::string path = directory.write("recipe.yaml", "a: 1\n");
  EXPECT_EQ(to_json(load_recipe(path).root).dump(), R"({"a": 1})");
}

TEST(LoadTest, SaysThatAFileIsNotThere) {
  try {
    load_recipe("/nowhere/recipe.yaml");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), "there is no recipe /nowhere/recipe.yaml");
  }
}

TEST(LoadErrorTest, MissingVariable) {
  EXPECT_EQ(error_of("data:\n  path: ${DATA_DIR}/x\n"),
            "recipe.yaml:2:9: error: Environment variable 'DATA_DIR' is not set (required by "
            "'${DATA_DIR}'). [data.path]\n"
            "  path: ${DATA_DIR}/x\n"
            "        ^");
}

TEST(LoadErrorTest, MissingVariableInAnOverride) {
  EXPECT_EQ(
      error_of("a: 1\n", {"--a=$DATA"}),
      "command line: error: Environment variable 'DATA' is not set (required by '$DATA'). [a]\n"
      "  --a=$DATA\n"
      "      ^");
}

TEST(LoadErrorTest, AKeyTwiceShowsBothPlaces) {
  EXPECT_EQ(error_of("m:\n  seed: 1\n  lr: 2\n  seed: 3\n"),
            "recipe.yaml:4:3: error: key 'seed' appears twice [m.seed]\n"
            "  seed: 3\n"
            "  ^\n"
            "recipe.yaml:2:3: note: first here\n"
            "  seed: 1\n"
            "  ^");
}

TEST(LoadErrorTest, NotYaml) {
  EXPECT_EQ(
      error_of("a: [1, 2\nb: 3\n"),
      "recipe.yaml:2:2: error: not YAML: end of sequence flow not found; is the '[' before it "
      "closed by ']'?\n"
      "  b: 3\n"
      "   ^");
  const std::pair<const char*, const char*> others[] = {
      {"a: {b: 1\nc: 3\n", "end of map flow not found; is the '{' before it closed by '}'?"},
      {"a:\n    b: 1\n  c: 2\n",
       "end of map not found; is this line indented as those that it belongs to?"},
      {"a:\n  - 1\n - 2\n",
       "end of map not found; is this line indented as those that it belongs to?"},
      {"a:\n  - - 1\n   - 2\n",
       "end of sequence not found; is this line indented as those that it belongs to?"},
      {"a:\n\tb: 1\n", "illegal map value; line 2 is indented by a tab: YAML takes spaces alone"}};
  for (const auto& [text, wanted] : others) {
    EXPECT_NE(error_of(text).find(cat("error: not YAML: ", wanted)), std::string::npos)
        << error_of(text);
  }
}

/// The parser notices a missing quote at the next one.
TEST(LoadErrorTest, AQuoteThatIsNotClosedIsPointedAt) {
  const std::string error = error_of("a: 1\nmax_steps: \"4\nc: 'it''s'\nd: 5\ne: \"b\"\n");
  EXPECT_NE(error.find("; is the quote that is opened in line 2 closed?"), std::string::npos)
      << error;
  EXPECT_EQ(error_of("a: \"x \\\" y\"\nb: [1\nc: 2\n").find("quote"), std::string::npos);
}

TEST(LoadErrorTest, ATabAsIndentation) {
  EXPECT_NE(error_of("a:\n\tb: 1\n").find("recipe.yaml:2:"), std::string::npos);
}

TEST(LoadErrorTest, EmptyFile) {
  EXPECT_EQ(error_of(""), "recipe.yaml:1:1: error: the recipe is empty");
  EXPECT_EQ(error_of("# nothing\n"),
            "recipe.yaml:1:1: error: the recipe is empty\n"
            "  # nothing\n"
            "  ^");
}

TEST(LoadErrorTest, NotAMapping) {
  EXPECT_EQ(error_of("- a\n- b\n"),
            "recipe.yaml:1:1: error: a recipe is a mapping of sections, found a list of 2\n"
            "  - a\n"
            "  ^");
}

TEST(LoadErrorTest, TwoDocuments) {
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"),
            "recipe.yaml:2:1: error: a second document; a recipe is one YAML document\n"
            "  ---\n"
            "  ^");
}

TEST(LoadErrorTest, AnotherProgramsToml) {
  try {
    load_text("[training]\nsteps = 3\n", "train.toml");
    FAIL() << "it was read";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "train.toml:1:1: error: a recipe is YAML, and this file is TOML; `automodel new` "
              "writes a recipe\n  [training]\n  ^");
  }
}

TEST(LoadErrorTest, PythonTags) {
  EXPECT_EQ(
      error_of("a: !!python/object:os.system [x]\n"),
      "recipe.yaml:1:4: error: the tag '!!python/object:os.system' has no meaning in a recipe; "
      "the tags are !!str, !!int, !!float, !!bool, !!null, !!timestamp, !!seq and !!map\n"
      "  a: !!python/object:os.system [x]\n"
      "     ^");
}

TEST(LoadErrorTest, ATagThatDoesNotFit) {
  EXPECT_EQ(error_of("a: !!int abc\n"),
            "recipe.yaml:1:10: error: 'abc' does not fit its tag !!int\n"
            "  a: !!int abc\n"
            "           ^");
}

TEST(LoadErrorTest, ADateThatIsNone) {
  EXPECT_EQ(error_of("a: 2026-13-45\n"),
            "recipe.yaml:1:4: error: '2026-13-45' is no valid date or number\n"
            "  a: 2026-13-45\n"
            "     ^");
}

TEST(LoadErrorTest, AListAsKey) {
  EXPECT_EQ(error_of("? [a]\n: 1\n"),
            "recipe.yaml:1:3: error: a key must be a plain text, not a list\n"
            "  ? [a]\n"
            "    ^");
}

TEST(LoadErrorTest, AnUnknownAlias) {
  EXPECT_EQ(error_of("a: *b\n"),
            "recipe.yaml:1:4: error: not YAML: the referenced anchor is not defined\n"
            "  a: *b\n"
            "     ^");
}

TEST(LoadErrorTest, AnAliasInsideItself) {
  EXPECT_EQ(error_of("a: &x [1, *x]\n"),
            "recipe.yaml:1:11: error: this alias stands inside the value that it names\n"
            "  a: &x [1, *x]\n"
            "            ^");
}

TEST(LoadErrorTest, AMergeOfAScalar) {
  EXPECT_EQ(
      error_of("a:\n  <<: 5\n"),
      "recipe.yaml:2:3: error: '<<' takes a mapping or a list of mappings, found the integer 5\n"
      "  <<: 5\n"
      "  ^");
}

TEST(LoadErrorTest, AnAliasBomb) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 8; ++j) text += ", " + last;
    text += "]\n";
  }
  EXPECT_EQ(error_of(text),
            "recipe.yaml:6:10: error: the recipe has more than 100000 values once aliases are "
            "expanded\n"
            "  a5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]\n"
            "           ^");
}

TEST(LoadErrorTest, DeepNesting) {
  EXPECT_EQ(error_of("a: " + std::string(5000, '[') + "\n").substr(0, 57),
            "recipe.yaml:1:104: error: nested deeper than 100 levels\n ");
  EXPECT_EQ(error_of(std::string(5000, '-') + "\n"),
            "recipe.yaml:1:101: error: nested deeper than 100 levels\n  ..." +
                std::string(60, '-') + std::string(60, '-') + "...\n" + std::string(65, ' ') + "^");
}

TEST(LoadErrorTest, NotUtf8) {
  EXPECT_EQ(error_of("a: 1\nb: \xFF\n").substr(0, 63),
            "recipe.yaml:2:4: error: not UTF-8; save the file as UTF-8\n  b: ");
}

TEST(LoadErrorTest, AControlCharacter) {
  EXPECT_EQ(error_of(std::string("a: 1\nb: \x01\n")).substr(0, 66),
            "recipe.yaml:2:4: error: control character 1 in the text; remove it");
}

TEST(LoadErrorTest, AStrayWord) {
  EXPECT_EQ(error_of("a: 1\n", {"--a=1", "fast"}),
            "command line: error: 'fast' is no override; write --key=fast or key=fast with the "
            "dotted key it is meant for\n"
            "  fast\n"
            "  ^");
}

TEST(LoadErrorTest, AnEmptyKey) {
  EXPECT_EQ(error_of("a: 1\n", {"--a..b=1"}),
            "command line: error: a key is empty; write --section.key=value\n"
            "  --a..b=1\n"
            "    ^");
}

TEST(LoadErrorTest, AnArgumentThatIsNotUtf8) {
  EXPECT_EQ(error_of("a: 1\n", {"--b=1", "--a=\xFF"}), "error: argument 2 is not UTF-8");
}

TEST(LoadTest, BracketsInsideWordsAreNoNesting) {
  std::string text = "a: 1\n";
  for (int i = 0; i < 200; ++i) text += "# the interval x[0, 1)\n";
  EXPECT_EQ(json(text), R"({"a": 1})");
}

TEST(LoadTest, EscapesOfUnusualSpacesAreUtf8) {
  EXPECT_EQ(load("a: \"x\\_y\\N\"\n").find("a")->text(), "x\u00A0y\u0085");
}

TEST(LoadErrorTest, AnIndexBeyondAList) {
  EXPECT_EQ(error_of("l: [1, 2]\n", {"--l.2", "5"}),
            "command line: error: '2' is no index of the list 'l': its indexes are 0 to 1 [l.2]\n"
            "  --l.2 5\n"
            "    ^");
}

TEST(LoadErrorTest, TellsEverythingAtOnce) {
  EXPECT_EQ(
      error_of("a: $ONE\nb: $TWO\n", {"word"}),
      "command line: error: 'word' is no override; write --key=word or key=word with the "
      "dotted key it is meant for\n"
      "  word\n"
      "  ^\n"
      "recipe.yaml:1:4: error: Environment variable 'ONE' is not set (required by '$ONE'). [a]\n"
      "  a: $ONE\n"
      "     ^\n"
      "recipe.yaml:2:4: error: Environment variable 'TWO' is not set (required by '$TWO'). [b]\n"
      "  b: $TWO\n"
      "     ^");
}

}  // namespace
}  // namespace automodel::config
