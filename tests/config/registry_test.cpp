#include "config/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::config {
namespace {

using Maker = int (*)(int);

TargetRegistry<Maker> optimizers() {
  TargetRegistry<Maker> registry("optimizer");
  registry.add_unsupported("dion.Muon", "use torch.optim.AdamW");
  registry.add({"torch.optim.Adam", {"adam", "Adam"}, "L2", Json::object(), ""},
               [](int x) { return x + 1; });
  registry.add({"torch.optim.AdamW", {"AdamW"}, "decoupled", Json::object(), ""},
               [](int x) { return x + 2; });
  return registry;
}

/// What is found when the block `optimizer` of a text is looked up.
std::string findings_of(const std::string& text) {
  const Document document = load_text(text, "r.yaml");
  Diagnostics diagnostics(document.sources);
  const std::optional<Target> target = split_target(*document.root.find("o"), diagnostics);
  if (target) optimizers().resolve_maker(*target, diagnostics);
  try {
    diagnostics.throw_if_errors();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(RegistryTest, FindsMakersByNameAndAlias) {
  const TargetRegistry<Maker> registry = optimizers();
  const Document document =
      load_text("o: {_target_: torch.optim.AdamW, lr: 1, _recursive_: true}\np: adam\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  const std::optional<Target> target = split_target(*document.root.find("o"), diagnostics);
  ASSERT_TRUE(target);
  EXPECT_EQ((*registry.resolve_maker(*target, diagnostics))(1), 3);
  EXPECT_EQ(to_json(target->arguments).dump(), R"({"lr": 1})");
  EXPECT_EQ(target->arguments.path(), "o");
  const std::optional<Target> bare = split_target(*document.root.find("p"), diagnostics);
  ASSERT_TRUE(bare);
  EXPECT_EQ((*registry.resolve_maker(*bare, diagnostics))(1), 2);
  EXPECT_FALSE(diagnostics.has_errors());
}

TEST(RegistryErrorTest, UnknownName) {
  EXPECT_EQ(findings_of("o:\n  _target_: torch.optim.AdamX\n"),
            "r.yaml:2:13: error: unknown optimizer 'torch.optim.AdamX'; did you mean "
            "'torch.optim.Adam'? [o._target_]\n"
            "  _target_: torch.optim.AdamX\n"
            "            ^");
}

TEST(RegistryErrorTest, AnotherPathToAKnownName) {
  EXPECT_EQ(findings_of("o: {_target_: apex.optimizers.AdamW}\n"),
            "r.yaml:1:15: error: unknown optimizer 'apex.optimizers.AdamW'; did you mean "
            "'torch.optim.AdamW'? [o._target_]\n"
            "  o: {_target_: apex.optimizers.AdamW}\n"
            "                ^");
}

TEST(RegistryErrorTest, KnownButNotBuiltHere) {
  EXPECT_EQ(findings_of("o: {_target_: dion.Muon}\n"),
            "r.yaml:1:15: unsupported: optimizer 'dion.Muon' is not in this version: use "
            "torch.optim.AdamW [o._target_]\n"
            "  o: {_target_: dion.Muon}\n"
            "                ^");
}

struct MuonOptions {
  double lr = 1;

  static constexpr auto fields() { return std::tuple{field("lr", &MuonOptions::lr, "").above(0)}; }
};

TEST(RegistryErrorTest, MistakesInOptionsOfWhatIsNotBuiltAreTold) {
  TargetNames names("optimizer");
  names.add_unsupported("dion.Muon", "use torch.optim.AdamW", {}, check_options<MuonOptions>());
  const auto findings = [&](const std::string& text) {
    const Document document = load_text(text, "r.yaml");
    Diagnostics diagnostics(document.sources);
    names.resolve(*split_target(*document.root.find("o"), diagnostics), diagnostics);
    return std::pair{diagnostics.count(Severity::kError),
                     diagnostics.count(Severity::kUnsupported)};
  };
  EXPECT_EQ(findings("o: {_target_: dion.Muon, lr: 1}\n"), (std::pair<size_t, size_t>{0, 1}));
  EXPECT_EQ(findings("o: {_target_: dion.Muon, lr: -1}\n"), (std::pair<size_t, size_t>{1, 1}));
  EXPECT_EQ(findings("o: {_target_: dion.Muon, rl: 1}\n"), (std::pair<size_t, size_t>{1, 1}));
}

TEST(RegistryErrorTest, UpstreamsNamesThatAreOnlyAlikeAreNoSlips) {
  const auto severity = [](const std::string& name) {
    const std::string found = findings_of(cat("o: {_target_: ", name, "}\n"));
    const size_t begin = found.find(": ") + 2;
    return found.substr(begin, found.find(':', begin) - begin);
  };
  EXPECT_EQ(severity("torch.optim.Adan"), "error");
  EXPECT_EQ(severity("torch.optim.AdamQuick"), "unsupported");
  EXPECT_EQ(severity("torch.optim.Adam8"), "unsupported");
  EXPECT_EQ(severity("torch.optim.Another"), "unsupported");
  EXPECT_EQ(severity("nonsense.foo.Bar"), "error");
}

TEST(RegistryErrorTest, UnsupportedAloneHasItsOwnExitCode) {
  const Document document = load_text("o: {_target_: dion.Muon}\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  optimizers().resolve_maker(*split_target(*document.root.find("o"), diagnostics), diagnostics);
  EXPECT_THROW(diagnostics.throw_if_errors(), UnsupportedError);
  diagnostics.error(document.root, "and wrong");
  try {
    diagnostics.throw_if_errors();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kRecipe);
  }
}

TEST(RegistryErrorTest, PythonFiles) {
  EXPECT_EQ(
      findings_of("o: {_target_: 'my/file.py:build'}\n"),
      "r.yaml:1:15: error: 'my/file.py:build' would load Python code; a recipe is data here, so "
      "a target is one of the names this program knows [o._target_]\n"
      "  o: {_target_: 'my/file.py:build'}\n"
      "                ^");
}

TEST(RegistryErrorTest, NoTarget) {
  EXPECT_EQ(findings_of("o: {lr: 1}\n"),
            "r.yaml:1:1: error: No _target_ found to instantiate [o._target_]\n"
            "  o: {lr: 1}\n"
            "  ^");
}

TEST(RegistryErrorTest, AKnownSectionWithoutATargetIsTold) {
  const Document document = load_text("optimizer: {lr: 1}\n", "r.yaml");
  Diagnostics diagnostics(document.sources);
  EXPECT_FALSE(split_target(*document.root.find("optimizer"), diagnostics));
  EXPECT_THAT(join(diagnostics.render_all(Severity::kError), "\n"),
              testing::HasSubstr("No _target_ found to instantiate; write one, e.g. _target_: "
                                 "torch.optim.AdamW [optimizer._target_]"));
}

TEST(RegistryErrorTest, AMisspeltTargetIsNamed) {
  EXPECT_EQ(findings_of("o: {_targe_t: torch.optim.AdamW, lr: 1}\n"),
            "r.yaml:1:5: error: unknown key '_targe_t'; did you mean '_target_'? [o._targe_t]\n"
            "  o: {_targe_t: torch.optim.AdamW, lr: 1}\n"
            "      ^");
}

TEST(RegistryErrorTest, ATargetThatIsNoName) {
  EXPECT_EQ(findings_of("o: {_target_: 5}\n"),
            "r.yaml:1:15: error: expected the dotted name of a target, found the integer 5 "
            "[o._target_]\n"
            "  o: {_target_: 5}\n"
            "                ^");
}

}  // namespace
}  // namespace automodel::config
