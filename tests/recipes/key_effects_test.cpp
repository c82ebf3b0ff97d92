#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/bind.h"
#include "config/load.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "datasets/agent_chat.h"
#include "datasets/chat_dataset.h"
#include "datasets/column_mapped.h"
#include "datasets/hellaswag.h"
#include "datasets/mock_iterable.h"
#include "datasets/nanogpt.h"
#include "datasets/squad.h"
#include "datasets/text_file.h"
#include "datasets/xlam.h"
#include "optim/options.h"
#include "recipes/check/check_run.h"
#include "recipes/read/backend_section.h"
#include "recipes/read/gpt2_builder.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/megatron_section.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "recipes/read/recipe_schema.h"
#include "recipes/run/run_recipe.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

/// A key of a section as its options struct lists it.
struct ListedKey {
  std::string path;
  bool has_no_effect = false;  ///< setting it gets a warning
};

template <typename T>
struct Inner {
  using Type = T;
};
template <typename T>
struct Inner<std::optional<T>> : Inner<T> {};
template <typename T>
struct Inner<std::vector<T>> : Inner<T> {};

template <HasFields T>
void list_keys(const std::string& section, std::vector<ListedKey>& keys) {
  for_each_field<T>([&](const auto& field) {
    using Value = typename Inner<typename std::remove_cvref_t<decltype(field)>::Value>::Type;
    const std::string path = cat(section, ".", field.name);
    if constexpr (HasFields<Value>) {
      list_keys<Value>(path, keys);
    } else {
      keys.push_back({path, field.no_effect != nullptr});
    }
  });
}

/// Every key that acts, or might.
std::vector<ListedKey> active_keys() {
  std::vector<ListedKey> keys = {{"recipe"}, {"seed"}, {"stop_on_non_finite"}};
  list_keys<training::StepSchedulerConfig>("step_scheduler", keys);
  list_keys<DistEnvSection>("dist_env", keys);
  keys.push_back({"distributed.strategy"});
  list_keys<distributed::ParallelismSizes>("distributed", keys);
  list_keys<distributed::ContextParallelConfig>("distributed", keys);
  list_keys<distributed::FSDP2Config>("distributed(fsdp2)", keys);
  list_keys<distributed::MegatronFSDPConfig>("distributed(megatron_fsdp)", keys);
  keys.push_back({"distributed(megatron_fsdp).tp_plan"});  // an argument of its own, no field
  list_keys<distributed::DDPConfig>("distributed(ddp)", keys);
  list_keys<distributed::PipelineConfig>("distributed.pipeline", keys);
  list_keys<distributed::MoEParallelizerConfig>("distributed.moe", keys);
  keys.push_back({"model.config"});
  list_keys<ModelSection>("model", keys);
  list_keys<Gpt2BuilderSection>("model(gpt2)", keys);
  list_keys<BackendSection>("model.backend", keys);
  using namespace datasets;
  list_keys<ColumnMappedTextInstructionDatasetConfig>("dataset(column_mapped)", keys);
  list_keys<ChatDatasetConfig>("dataset(chat)", keys);
  list_keys<AgentChatConfig>("dataset(agent)", keys);
  list_keys<XlamConfig>("dataset(xlam)", keys);
  list_keys<MegatronSection>("dataset(megatron)", keys);
  list_keys<NanogptDatasetConfig>("dataset(nanogpt)", keys);
  list_keys<SquadConfig>("dataset(squad)", keys);
  list_keys<HellaSwagConfig>("dataset(hellaswag)", keys);
  list_keys<MockIterableDatasetConfig>("dataset(mock)", keys);
  list_keys<TextFileDatasetConfig>("dataset(text_file)", keys);
  list_keys<TokenizerSection>("dataset.tokenizer", keys);
  keys.push_back({"validation_dataset"});
  list_keys<DataloaderConfig>("dataloader", keys);
  keys.push_back({"validation_dataloader"});
  list_keys<CollaterConfig>("dataloader.collate_fn", keys);
  list_keys<PackedSequenceSection>("packed_sequence", keys);
  list_keys<MaskedCrossEntropyConfig>("loss_fn(masked)", keys);
  list_keys<FusedLinearCrossEntropyConfig>("loss_fn(fused)", keys);
  list_keys<ChunkedCrossEntropyConfig>("loss_fn(chunked)", keys);
  list_keys<TEParallelCrossEntropyConfig>("loss_fn(te)", keys);
  list_keys<optim::AdamConfig>("optimizer(adam)", keys);
  list_keys<optim::FusedAdamConfig>("optimizer(fused_adam)", keys);
  list_keys<optim::Adam8bitConfig>("optimizer(adam_8bit)", keys);
  list_keys<optim::SgdConfig>("optimizer(sgd)", keys);
  list_keys<optim::LrSchedulerConfig>("lr_scheduler", keys);
  list_keys<ClipSection>("clip_grad_norm", keys);
  list_keys<CheckpointSection>("checkpoint", keys);
  list_keys<peft::PeftConfig>("peft", keys);
  list_keys<QuantizationSection>("quantization", keys);
  list_keys<EmbeddingRowRepairSection>("embedding_row_repair", keys);
  list_keys<MfuSection>("mfu", keys);
  list_keys<MoeMetricsSection>("moe_metrics", keys);
  list_keys<trackers::TensorBoardConfig>("tensorboard", keys);
  list_keys<trackers::MlflowConfig>("mlflow", keys);
  list_keys<DllmSection>("dllm", keys);
  list_keys<BenchmarkSection>("benchmark", keys);
  keys.push_back({"teacher_model"});
  keys.push_back({"teacher_distributed"});
  for_each_field<DistillationKeys>([&](const auto& field) { keys.push_back({field.name}); });
  list_keys<KDLossConfig>("kd_loss_fn", keys);
  return keys;
}

/// A line of key_effects.txt: a key, what shows its effect, and where.
struct Entry {
  std::string kind;  ///< warns, changes, told, mistake or test
  std::string rest;
};

std::map<std::string, Entry> read_entries() {
  std::map<std::string, Entry> entries;
  std::vector<std::pair<std::string, std::string>> names;
  for (std::string line :
       split(read_file(test::source_file("tests/recipes/key_effects.txt")), '\n')) {
    if (trim(line).empty() || line.starts_with("#")) continue;
    for (const auto& [name, meaning] : names) line = replace_all(line, name, meaning);
    const std::vector<std::string> words = split(line, ' ');
    if (words[0] == "let") {
      names.emplace_back(words.at(1), line.substr(words[0].size() + words[1].size() + 2));
      continue;
    }
    AM_CHECK(words.size() >= 2, line);
    const size_t begin = words[0].size() + 1 + words[1].size();
    const std::string rest(trim(std::string_view(line).substr(begin)));
    const bool is_new = entries.emplace(words[0], Entry{words[1], rest}).second;
    AM_CHECK(is_new, words[0], " is listed twice");
  }
  return entries;
}

/// "room Suite.Name" of every test in the sources.
std::set<std::string> all_tests() {
  std::set<std::string> names;
  const std::filesystem::path root = test::source_file("tests");
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    if (!file.path().string().ends_with("_test.cpp")) continue;
    const std::string room = *file.path().lexically_relative(root).begin();
    const std::string text = read_file(file.path());
    for (const char* macro : {"\nTEST(", "\nTEST_F(", "\nTEST_P(", "\nTYPED_TEST("}) {
      for (size_t at = text.find(macro); at != std::string::npos; at = text.find(macro, at + 1)) {
        const size_t begin = text.find('(', at) + 1;
        const size_t end = text.find(')', begin);
        const auto parts = split(replace_all(text.substr(begin, end - begin), "\n", " "), ',');
        if (parts.size() != 2) continue;
        names.insert(cat(room, " ", trim(parts[0]), ".", trim(parts[1])));
      }
    }
  }
  return names;
}

TEST(KeyEffectsTest, EveryKeyHasAnEntryAndEveryEntryAKey) {
  const std::map<std::string, Entry> entries = read_entries();
  std::set<std::string> listed;
  for (const ListedKey& key : active_keys()) {
    listed.insert(key.path);
    const auto entry = entries.find(key.path);
    if (entry == entries.end()) {
      ADD_FAILURE() << key.path << ": say in key_effects.txt what shows its effect";
      continue;
    }
    EXPECT_EQ(entry->second.kind == "warns", key.has_no_effect) << key.path;
  }
  for (const auto& [path, entry] : entries) {
    EXPECT_TRUE(listed.contains(path)) << path << " is no key";
  }
}

TEST(KeyEffectsTest, NamedTestsAndMistakesExist) {
  const std::set<std::string> tests = all_tests();
  const std::string mistakes = read_file(test::source_file("tests/recipes/mistakes.txt"));
  for (const auto& [path, entry] : read_entries()) {
    if (entry.kind == "test") {
      EXPECT_TRUE(tests.contains(entry.rest)) << path << ": no test '" << entry.rest << "'";
    } else if (entry.kind == "mistake") {
      EXPECT_NE(mistakes.find(cat("=== ", entry.rest, "\n")), std::string::npos)
          << path << ": no mistake '" << entry.rest << "'";
    } else {
      EXPECT_THAT(entry.kind, testing::AnyOf("warns", "changes", "told")) << path;
    }
  }
}

/// Sections of the schema are those whose keys are listed above, or have no effect as a whole.
TEST(KeyEffectsTest, EverySectionOfTheSchemaIsListed) {
  std::set<std::string> sections;
  for (const ListedKey& key : active_keys()) {
    sections.insert(key.path.substr(0, key.path.find_first_of(".(")));
  }
  for (const std::string& name : inactive_section_names()) sections.insert(name);
  const Json schema = recipe_schema();
  for (const auto& [name, section] : schema.at("properties").as_object()) {
    EXPECT_TRUE(sections.contains(name)) << name;
  }
}

template <typename T>
void expect_warnings(const std::string& section, const std::vector<std::string>& values) {
  for_each_field<T>([&](const auto& field) {
    if (field.no_effect == nullptr) return;
    bool is_warned = false;
    for (const std::string& value : values) {
      const config::Document document =
          config::load_text(cat("s:\n  ", field.name, ": ", value, "\n"), "r.yaml");
      config::Diagnostics diagnostics(document.sources);
      config::bind<T>(*document.root.find("s"), diagnostics);
      const auto warnings = diagnostics.render_all(config::Severity::kWarning);
      is_warned |= !warnings.empty() && warnings[0].find(field.no_effect) != std::string::npos;
    }
    EXPECT_TRUE(is_warned) << section << "." << field.name;
  });
}

TEST(KeyEffectsTest, KeysWithoutEffectAreToldSo) {
  const std::vector<std::string> values = {"1", "true", "[a]", "full"};
  expect_warnings<training::StepSchedulerConfig>("step_scheduler", values);
  expect_warnings<distributed::FSDP2Config>("fsdp2", values);
  expect_warnings<distributed::MegatronFSDPConfig>("megatron_fsdp", values);
  expect_warnings<distributed::DDPConfig>("ddp", values);
  expect_warnings<distributed::PipelineConfig>("pipeline", values);
  expect_warnings<distributed::MoEParallelizerConfig>("moe", values);
  expect_warnings<ModelSection>("model", values);
  expect_warnings<Gpt2BuilderSection>("gpt2", values);
  expect_warnings<datasets::ChatDatasetConfig>("chat", values);
  expect_warnings<datasets::XlamConfig>("xlam", values);
  expect_warnings<MegatronSection>("megatron", values);
  expect_warnings<datasets::SquadConfig>("squad", values);
  expect_warnings<TokenizerSection>("tokenizer", values);
  expect_warnings<datasets::DataloaderConfig>("dataloader", values);
  expect_warnings<PackedSequenceSection>("packed_sequence", values);
  expect_warnings<MaskedCrossEntropyConfig>("masked", values);
  expect_warnings<FusedLinearCrossEntropyConfig>("fused", values);
  expect_warnings<ChunkedCrossEntropyConfig>("chunked", values);
  expect_warnings<optim::AdamConfig>("adam", values);
  expect_warnings<optim::SgdConfig>("sgd", values);
  expect_warnings<ClipSection>("clip_grad_norm", values);
  expect_warnings<CheckpointSection>("checkpoint", values);
  expect_warnings<DllmSection>("dllm", values);
  expect_warnings<BenchmarkSection>("benchmark", values);
  expect_warnings<peft::PeftConfig>("peft", values);
  expect_warnings<QuantizationSection>("quantization", values);
  expect_warnings<KDLossConfig>("kd_loss_fn", values);
}

/// The base recipe with the repository's place filled in.
std::string write_base(const test::TemporaryDirectory& folder) {
  const std::string text = read_file(test::source_file("tests/recipes/key_effects.yaml"));
  return folder.write("recipe.yaml", replace_all(text, "ROOT/", test::source_file("")));
}

/// What a short run of the base recipe with some changes leaves: its records without times, or the
/// reason why it stopped.
std::string outcome_of(const std::vector<std::string>& changes) {
  const test::TemporaryDirectory folder;
  RunOptions options;
  options.recipe_path = write_base(folder);
  options.overrides = {cat("--checkpoint.checkpoint_dir=", folder.file("run"))};
  for (const std::string& change : changes) {
    options.overrides.push_back(replace_all(change, "ROOT/", test::source_file("")));
  }
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int status = 1;
  std::string text;
  try {
    status = run_recipe(options);
  } catch (const UserError& error) {
    text = error.what();
  }
  testing::internal::GetCapturedStdout();
  text += testing::internal::GetCapturedStderr();
  if (status != 0) return cat("status ", status, ": ", text);
  for (const char* file : {"training.jsonl", "validation.jsonl"}) {
    const std::string path = path_join(folder.file("run"), file);
    if (!path_exists(path)) continue;
    for (const std::string& line : split(read_file(path), '\n')) {
      if (line.empty()) continue;
      const Json record = Json::parse(line, "record");
      for (const auto& [key, value] : record.as_object()) {
        const bool is_time = key == "timestamp" || key == "tps" || key == "tps_per_gpu" ||
                             key == "mem" || key == "mfu" || key.ends_with("_seconds");
        if (!is_time) text += cat(key, "=", value.dump(), " ");
      }
      text += "\n";
    }
  }
  return text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

/// `changes A | B`: a run with A and B differs from one with A alone.
TEST(KeyEffectsTest, ValuesChangeTheRun) {
  std::map<std::string, std::string> without;
  for (const auto& [path, entry] : read_entries()) {
    if (entry.kind != "changes") continue;
    const size_t bar = entry.rest.find('|');
    const std::string common(bar == std::string::npos ? "" : trim(entry.rest.substr(0, bar)));
    const std::string own(bar == std::string::npos ? entry.rest : trim(entry.rest.substr(bar + 1)));
    if (!without.contains(common)) without[common] = outcome_of(words_of(common));
    const std::string& before = without[common];
    ASSERT_THAT(before, testing::Not(testing::HasSubstr("status"))) << path;
    const std::string after = outcome_of(words_of(cat(common, " ", own)));
    EXPECT_THAT(after, testing::Not(testing::HasSubstr("status"))) << path;
    EXPECT_NE(before, after) << path << ": " << own;
  }
}

/// `told TEXT | CHANGES`: a recipe with the changes is refused or warned of with the text.
TEST(KeyEffectsTest, ValuesAreToldOf) {
  for (const auto& [path, entry] : read_entries()) {
    if (entry.kind != "told") continue;
    const size_t bar = entry.rest.find('|');
    const std::string expected(trim(entry.rest.substr(0, bar)));
    const std::string rest =
        replace_all(entry.rest.substr(bar + 1), "ROOT/", test::source_file(""));
    const std::vector<std::string> changes = words_of(rest);
    std::string all;
    try {
      const test::TemporaryDirectory folder;
      const config::Document document = config::load_recipe(write_base(folder), changes);
      config::Diagnostics diagnostics(document.sources);
      const Recipe recipe = read_recipe(document.root, diagnostics);
      check_run(recipe, {.world_size = 1}, diagnostics);
      for (const auto& finding : diagnostics.findings()) all += diagnostics.render(finding) + "\n";
    } catch (const UserError& error) {
      all = error.what();
    }
    EXPECT_THAT(all, testing::HasSubstr(expected)) << path;
  }
}

}  // namespace
}  // namespace automodel::recipes
