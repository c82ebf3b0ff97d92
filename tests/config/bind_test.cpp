#include "config/bind.h"

#include <gtest/gtest.h>

#include <array>

#include "config/load.h"
#include "core/error.h"

namespace automodel::config {

enum class Speed { kSlow, kFast };

}  // namespace automodel::config

namespace automodel {

template <>
struct EnumNames<config::Speed> {
  static constexpr std::array<std::pair<std::string_view, config::Speed>, 3> values = {
      {{"slow", config::Speed::kSlow},
       {"fast", config::Speed::kFast},
       {"on", config::Speed::kFast}}};
};

}  // namespace automodel

namespace automodel::config {
namespace {

struct Inner {
  double dropout = 0.5;
  std::vector<std::string> names;

  static constexpr auto fields() {
    return std::tuple{field("dropout", &Inner::dropout, "share dropped").at_least(0).at_most(1),
                      field("names", &Inner::names, "what it is called").or_one()};
  }
  static std::vector<LegacyKey> legacy_keys() {
    return {{"use_triton", "kernels are chosen here"}};
  }
};

struct Outer {
  int tp_size = 1;
  int64_t max_steps = 100;
  double lr = 0.1;
  double norm = 1;
  bool is_on = false;
  std::string path = "here";
  Speed speed = Speed::kSlow;
  std::optional<int64_t> every = 5;
  std::vector<double> betas = {0.9, 0.999};
  std::map<std::string, int64_t> sizes;
  Inner inner;
  std::optional<Inner> other;
  Node raw;
  std::string plan;

  static constexpr auto fields() {
    return std::tuple{field("norm", &Outer::norm, "largest norm").or_infinite(),
                      field("tp_size", &Outer::tp_size, "ranks a layer is cut over").at_least(1),
                      field("max_steps", &Outer::max_steps, "steps"),
                      field("lr", &Outer::lr, "learning rate").above(0),
                      field("is_on", &Outer::is_on, "whether"),
                      field("path", &Outer::path, "where"),
                      field("speed", &Outer::speed, "how fast"),
                      field("every", &Outer::every, "how often").at_least(1),
                      field("betas", &Outer::betas, "decays"),
                      field("sizes", &Outer::sizes, "sizes by name"),
                      field("inner", &Outer::inner, "inside"),
                      field("other", &Outer::other, "inside, perhaps"),
                      field("raw", &Outer::raw, "built later"),
                      field("plan", &Outer::plan, "a plan").without_effect("there is one plan")};
  }
};

struct Needs {
  std::string path;

  static constexpr auto fields() {
    return std::tuple{field("path", &Needs::path, "where").required()};
  }
};

struct Bound {
  Outer value;
  std::string errors;  // what throw_if_errors throws
  std::string warnings;
};

Bound bind_text(const std::string& text, const std::vector<std::string>& overrides = {},
                const BindOptions& options = {}) {
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SECRET") return "hunter2";
    return std::nullopt;
  };
  const Document document = load_text(text, "r.yaml", overrides, environment);
  Diagnostics diagnostics(document.sources);
  Bound bound;
  bound.value = bind<Outer>(document.root, diagnostics, options);
  for (const std::string& warning : diagnostics.render_all(Severity::kWarning)) {
    bound.warnings += warning + "\n";
  }
  try {
    diagnostics.throw_if_errors();
  } catch (const UserError& error) {
    bound.errors = error.what();
  }
  return bound;
}

TEST(BindTest, ReadsEveryKindOfMember) {
  const Bound bound = bind_text(
      "tp_size: 2\nmax_steps: 1e3\nlr: 1e-8\nis_on: yes\npath: /x\nspeed: FAST\nevery: null\n"
      "betas: (0.1, 1)\nsizes: {a: 1, b: 2}\ninner: {dropout: 1, names: only}\n"
      "other: {}\nraw: {_target_: x, y: [1]}\n");
  EXPECT_EQ(bound.errors, "");
  const Outer& value = bound.value;
  EXPECT_EQ(value.tp_size, 2);
  EXPECT_EQ(value.max_steps, 1000);
  EXPECT_EQ(value.lr, 1e-8);
  EXPECT_TRUE(value.is_on);
  EXPECT_EQ(value.path, "/x");
  EXPECT_EQ(value.speed, Speed::kFast);
  EXPECT_EQ(value.every, std::nullopt);
  EXPECT_EQ(value.betas, (std::vector<double>{0.1, 1}));
  EXPECT_EQ(value.sizes.at("b"), 2);
  EXPECT_EQ(value.inner.dropout, 1);
  EXPECT_EQ(value.inner.names, std::vector<std::string>{"only"});
  ASSERT_TRUE(value.other.has_value());
  EXPECT_EQ(value.other->dropout, 0.5);
  EXPECT_EQ(value.raw.path(), "raw");
  EXPECT_EQ(to_json(value.raw).dump(), R"({"_target_": "x", "y": [1]})");
}

TEST(BindTest, NullKeepsTheDefaultOfWhatIsNotOptional) {
  const Bound bound = bind_text("tp_size: none\nbetas: null\ninner:\npath: ~\n");
  EXPECT_EQ(bound.errors, "");
  EXPECT_EQ(bound.value.tp_size, 1);
  EXPECT_EQ(bound.value.betas.size(), 2u);
  EXPECT_EQ(bound.value.path, "here");
}

TEST(BindTest, AnAbsentOptionalKeepsItsDefault) {
  EXPECT_EQ(bind_text("tp_size: 1\n").value.every, 5);
}

TEST(BindTest, AStringIsTheTextWhateverItLooksLike) {
  EXPECT_EQ(bind_text("path: 0.99, 0.01, 0.00\n").value.path, "0.99, 0.01, 0.00");
  EXPECT_EQ(bind_text("path: 017\n").value.path, "017");
  EXPECT_EQ(bind_text("path: 'true'\n").value.path, "true");
  EXPECT_EQ(bind_text("path: 2026-08-01\n").value.path, "2026-08-01");
  EXPECT_EQ(bind_text("path: \"'abc'\"\n").value.path, "abc");
}

TEST(BindTest, AnEnumTakesTheBooleansOfYaml) {
  EXPECT_EQ(bind_text("speed: on\n").value.speed, Speed::kFast);
}

TEST(BindTest, InfinityIsANumberWhereItMeansSomething) {
  EXPECT_EQ(bind_text("norm: inf\n").value.norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(bind_text("norm: .inf\n").value.norm, std::numeric_limits<double>::infinity());
}

TEST(BindErrorTest, InfinityElsewhere) {
  for (const char* text : {"inf", ".inf", "-.inf", ".nan", "nan"}) {
    EXPECT_NE(bind_text(cat("lr: ", text, "\n")).errors.find("error: expected a finite number"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(bind_text("norm: nan\n").errors, "");
}

TEST(BindErrorTest, NotABoolean) {
  EXPECT_EQ(bind_text("is_on: 1\n").errors,
            "r.yaml:1:8: error: expected true or false, found the integer 1 [is_on]\n"
            "  is_on: 1\n"
            "         ^");
}

TEST(BindErrorTest, NotAnInteger) {
  EXPECT_EQ(bind_text("max_steps: 1.5\n").errors,
            "r.yaml:1:12: error: expected an integer, found the number 1.5 [max_steps]\n"
            "  max_steps: 1.5\n"
            "             ^");
}

TEST(BindErrorTest, AnIntegerTooLarge) {
  EXPECT_EQ(bind_text("max_steps: 99999999999999999999\n").errors,
            "r.yaml:1:12: error: expected a 64-bit integer, found the integer 99999999999999999999 "
            "[max_steps]\n"
            "  max_steps: 99999999999999999999\n"
            "             ^");
}

TEST(BindErrorTest, AnIntegerBelowItsRange) {
  EXPECT_EQ(bind_text("tp_size: 0\n").errors,
            "r.yaml:1:10: error: expected an integer at least 1, found the integer 0 [tp_size]\n"
            "  tp_size: 0\n"
            "           ^");
}

TEST(BindErrorTest, ANumberOutsideItsRange) {
  EXPECT_EQ(bind_text("inner:\n  dropout: 1.5\n").errors,
            "r.yaml:2:12: error: expected a number at least 0 and at most 1, found the number 1.5 "
            "[inner.dropout]\n"
            "  dropout: 1.5\n"
            "           ^");
}

TEST(BindErrorTest, ANumberAtAnExcludedBound) {
  EXPECT_EQ(bind_text("lr: 0\n").errors,
            "r.yaml:1:5: error: expected a number above 0, found the integer 0 [lr]\n"
            "  lr: 0\n"
            "      ^");
}

TEST(BindErrorTest, AnOverridePointsIntoTheArgument) {
  EXPECT_EQ(bind_text("tp_size: 1\n", {"--lr=abc"}).errors,
            "command line: error: expected a number above 0, found the string 'abc' [lr]\n"
            "  --lr=abc\n"
            "       ^");
  EXPECT_EQ(
      bind_text("tp_size: 1\n", {"--inner.dropout", "abc"}).errors,
      "command line: error: expected a number at least 0 and at most 1, found the string 'abc' "
      "[inner.dropout]\n"
      "  --inner.dropout abc\n"
      "                  ^");
}

TEST(BindErrorTest, UnknownKeyWithASuggestion) {
  EXPECT_EQ(bind_text("inner:\n  drop_out: 0\n").errors,
            "r.yaml:2:3: error: unknown key 'drop_out'; did you mean 'dropout'? [inner.drop_out]\n"
            "  drop_out: 0\n"
            "  ^");
}

TEST(BindErrorTest, UnknownKeyWithTheKeysThereAre) {
  EXPECT_EQ(
      bind_text("inner:\n  zebra: 0\n").errors,
      "r.yaml:2:3: error: unknown key 'zebra'; the keys here are dropout, names [inner.zebra]\n"
      "  zebra: 0\n"
      "  ^");
}

TEST(BindErrorTest, UnknownKeyFromAnOverride) {
  EXPECT_EQ(bind_text("tp_size: 1\n", {"--inner.dropuot=0"}).errors,
            "command line: error: unknown key 'dropuot'; did you mean 'dropout'? [inner.dropuot]\n"
            "  --inner.dropuot=0\n"
            "    ^");
}

TEST(BindErrorTest, NotOneOfTheTexts) {
  EXPECT_EQ(
      bind_text("speed: fats\n").errors,
      "r.yaml:1:8: error: expected one of slow, fast, on; found the string 'fats'; did you mean "
      "'fast'? [speed]\n"
      "  speed: fats\n"
      "         ^");
}

TEST(BindErrorTest, NotAString) {
  EXPECT_EQ(bind_text("path: [a, b]\n").errors,
            "r.yaml:1:7: error: expected a string, found a list of 2 [path]\n"
            "  path: [a, b]\n"
            "        ^");
}

TEST(BindErrorTest, NotAList) {
  EXPECT_EQ(bind_text("betas: 0.9\n").errors,
            "r.yaml:1:8: error: expected a list, found the number 0.9 [betas]\n"
            "  betas: 0.9\n"
            "         ^");
}

TEST(BindErrorTest, AWrongElement) {
  EXPECT_EQ(bind_text("betas: [0.9, x]\n").errors,
            "r.yaml:1:14: error: expected a number, found the string 'x' [betas.1]\n"
            "  betas: [0.9, x]\n"
            "               ^");
}

TEST(BindErrorTest, NotAMapping) {
  EXPECT_EQ(bind_text("inner: fast\n").errors,
            "r.yaml:1:8: error: expected a mapping of keys such as dropout, found the string "
            "'fast' [inner]\n"
            "  inner: fast\n"
            "         ^");
}

TEST(BindErrorTest, AWrongValueOfAMap) {
  EXPECT_EQ(bind_text("sizes: {a: 1, b: x}\n").errors,
            "r.yaml:1:18: error: expected an integer, found the string 'x' [sizes.b]\n"
            "  sizes: {a: 1, b: x}\n"
            "                   ^");
}

TEST(BindErrorTest, APythonValueOfNoUse) {
  EXPECT_EQ(bind_text("lr: 1j\n").errors,
            "r.yaml:1:5: error: expected a number above 0, found a complex number [lr]\n"
            "  lr: 1j\n"
            "      ^");
  EXPECT_EQ(bind_text("raw: 1j\n").errors, "");
}

TEST(BindErrorTest, ValuesFromTheEnvironmentAreNotShown) {
  EXPECT_EQ(bind_text("lr: ${SECRET}\n").errors,
            "r.yaml:1:5: error: expected a number above 0, found what '${SECRET}' stands for [lr]\n"
            "  lr: ${SECRET}\n"
            "      ^");
}

TEST(BindErrorTest, ARequiredKeyIsMissing) {
  const Document document = load_text("data: {}\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  bind<Needs>(*document.root.find("data"), diagnostics);
  EXPECT_EQ(diagnostics.render_all(Severity::kError),
            std::vector<std::string>{"r.yaml:1:1: error: 'path' is required [data.path]\n"
                                     "  data: {}\n"
                                     "  ^"});
}

TEST(BindErrorTest, EverythingIsToldAtOnce) {
  EXPECT_EQ(bind_text("tp_size: 0\nlr: x\n").errors,
            "r.yaml:1:10: error: expected an integer at least 1, found the integer 0 [tp_size]\n"
            "  tp_size: 0\n"
            "           ^\n"
            "r.yaml:2:5: error: expected a number above 0, found the string 'x' [lr]\n"
            "  lr: x\n"
            "      ^");
}

TEST(BindErrorTest, TwoKeysThatExcludeEachOther) {
  const Document document = load_text("a: 1\nb: 2\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  diagnostics.clash(*document.root.find("b"), *document.root.find("a"), "'b' excludes 'a'",
                    "'a' is here");
  EXPECT_EQ(diagnostics.render(diagnostics.findings()[0]),
            "r.yaml:2:4: error: 'b' excludes 'a' [b]\n"
            "  b: 2\n"
            "     ^\n"
            "r.yaml:1:4: note: 'a' is here\n"
            "  a: 1\n"
            "     ^");
}

TEST(BindWarningTest, AFieldWithoutEffect) {
  const Bound bound = bind_text("plan: x\n");
  EXPECT_EQ(bound.errors, "");
  EXPECT_EQ(bound.warnings,
            "r.yaml:1:1: warning: 'plan' has no effect here: there is one plan [plan]\n"
            "  plan: x\n"
            "  ^\n");
}

TEST(BindWarningTest, LegacyKeysOfTheCallerAndOfTheStruct) {
  BindOptions options;
  options.legacy_keys = {{"rng", "use `seed`"}};
  const Bound bound = bind_text("rng: {seed: 1}\ninner: {use_triton: true}\n", {}, options);
  EXPECT_EQ(bound.errors, "");
  EXPECT_EQ(bound.warnings,
            "r.yaml:1:1: warning: 'rng' is ignored: use `seed` [rng]\n"
            "  rng: {seed: 1}\n"
            "  ^\n"
            "r.yaml:2:9: warning: 'use_triton' is ignored: kernels are chosen here "
            "[inner.use_triton]\n"
            "  inner: {use_triton: true}\n"
            "          ^\n");
}

TEST(BindTest, KeysOfTheCallerAreLeftAlone) {
  BindOptions options;
  options.other_keys = {"_target_"};
  EXPECT_EQ(bind_text("_target_: x.Y\n", {}, options).errors, "");
}

TEST(BindTest, AnUnknownKeyThatAnOverrideDeletedIsNoMistake) {
  const auto errors = [](const std::vector<std::string>& overrides) {
    const Document document = load_text("inner: {dropuot: 1}\n", "r.yaml", overrides);
    Diagnostics diagnostics(document.sources);
    bind<Inner>(*document.root.find("inner"), diagnostics);
    return diagnostics.count(Severity::kError);
  };
  EXPECT_EQ(errors({}), 1u);
  EXPECT_EQ(errors({"--inner.dropuot=none"}), 0u);
  EXPECT_EQ(errors({"--inner.dropuot=none", "--inner.naems=none"}), 1u);
}

TEST(BindTest, UnknownAndMissingKeysAreUnsupportedWhereKeysAreOpen) {
  const Document document = load_text("inner: {dropuot: 1, dropout: high}\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  diagnostics.keys_are_open();
  bind<Inner>(*document.root.find("inner"), diagnostics, {.required_keys = {"names"}});
  EXPECT_EQ(diagnostics.count(Severity::kUnsupported), 2u);
  EXPECT_EQ(diagnostics.count(Severity::kError), 1u);  // a wrong type stays one
}

}  // namespace
}  // namespace automodel::config
