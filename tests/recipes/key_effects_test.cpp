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
#include "datasets/conversations/agent_chat.h"
#include "datasets/conversations/chat_dataset.h"
#include "datasets/conversations/xlam.h"
#include "datasets/pretraining/mock_classified.h"
#include "datasets/pretraining/mock_iterable.h"
#include "datasets/pretraining/mock_unpacked.h"
#include "datasets/pretraining/nanogpt.h"
#include "datasets/texts/classified_texts.h"
#include "datasets/texts/column_mapped.h"
#include "datasets/texts/hellaswag.h"
#include "datasets/texts/seq2seq.h"
#include "datasets/texts/squad.h"
#include "datasets/texts/text_file.h"
#include "optim/options.h"
#include "recipes/check/check_run.h"
#include "recipes/read/backend_section.h"
#include "recipes/read/gpt2_builder.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/megatron_section.h"
#include "recipes/read/mixture_section.h"
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

/// Shows `visit` every options struct of `distributed` and `model`.
template <typename Visit>
void for_each_model_section(const Visit& visit) {
  visit.template operator()<training::StepSchedulerConfig>("step_scheduler");
  visit.template operator()<DistEnvSection>("dist_env");
  visit.template operator()<distributed::ParallelismSizes>("distributed");
  visit.template operator()<distributed::ContextParallelConfig>("distributed");
  visit.template operator()<distributed::FSDP2Config>("distributed(fsdp2)");
  visit.template operator()<distributed::MegatronFSDPConfig>("distributed(megatron_fsdp)");
  visit.template operator()<distributed::DDPConfig>("distributed(ddp)");
  visit.template operator()<distributed::PipelineConfig>("distributed.pipeline");
  visit.template operator()<distributed::MoEParallelizerConfig>("distributed.moe");
  visit.template operator()<ModelSection>("model");
  visit.template operator()<BiEncoderSection>("model(embeddings)");
  visit.template operator()<Gpt2BuilderSection>("model(gpt2)");
  visit.template operator()<BackendSection>("model.backend");
}

/// Shows `visit` every other options struct.
template <typename Visit>
void for_each_other_section(const Visit& visit) {
  using namespace datasets;
  visit.template operator()<ColumnMappedTextInstructionDatasetConfig>("dataset(column_mapped)");
  visit.template operator()<ChatDatasetConfig>("dataset(chat)");
  visit.template operator()<AgentChatConfig>("dataset(agent)");
  visit.template operator()<XlamConfig>("dataset(xlam)");
  visit.template operator()<MegatronSection>("dataset(megatron)");
  visit.template operator()<NanogptDatasetConfig>("dataset(nanogpt)");
  visit.template operator()<SquadConfig>("dataset(squad)");
  visit.template operator()<Seq2SeqConfig>("dataset(seq2seq)");
  visit.template operator()<HellaSwagConfig>("dataset(hellaswag)");
  visit.template operator()<MockIterableDatasetConfig>("dataset(mock)");
  visit.template operator()<MockUnpackedDatasetConfig>("dataset(sentences)");
  visit.template operator()<SequenceClassificationDatasetConfig>("dataset(classes)");
  visit.template operator()<GlueMrpcConfig>("dataset(mrpc)");
  visit.template operator()<MockSequenceClassificationDatasetConfig>("dataset(drawn_classes)");
  visit.template operator()<TextFileDatasetConfig>("dataset(text_file)");
  visit.template operator()<RetrievalDatasetSection>("dataset(retrieval)");
  visit.template operator()<ConcatDatasetSection>("dataset(concat)");
  visit.template operator()<InterleaveDatasetsSection>("dataset(interleave)");
  visit.template operator()<TokenizerSection>("dataset.tokenizer");
  visit.template operator()<DataloaderConfig>("dataloader");
  visit.template operator()<CollaterConfig>("dataloader.collate_fn");
  visit.template operator()<BiEncoderCollatorConfig>("dataloader.collate_fn(texts)");
  visit.template operator()<PackedSequenceSection>("packed_sequence");
  visit.template operator()<MaskedCrossEntropyConfig>("loss_fn(masked)");
  visit.template operator()<FusedLinearCrossEntropyConfig>("loss_fn(fused)");
  visit.template operator()<ChunkedCrossEntropyConfig>("loss_fn(chunked)");
  visit.template operator()<TEParallelCrossEntropyConfig>("loss_fn(te)");
  visit.template operator()<optim::AdamConfig>("optimizer(adam)");
  visit.template operator()<optim::FusedAdamConfig>("optimizer(fused_adam)");
  visit.template operator()<optim::Adam8bitConfig>("optimizer(adam_8bit)");
  visit.template operator()<optim::FlashAdamWConfig>("optimizer(flash_adamw)");
  visit.template operator()<optim::MuonConfig>("optimizer(muon)");
  visit.template operator()<optim::TorchMuonConfig>("optimizer(torch_muon)");
  visit.template operator()<optim::SgdConfig>("optimizer(sgd)");
  visit.template operator()<optim::LrSchedulerConfig>("lr_scheduler");
  visit.template operator()<ClipSection>("clip_grad_norm");
  visit.template operator()<CheckpointSection>("checkpoint");
  visit.template operator()<peft::PeftConfig>("peft");
  visit.template operator()<QuantizationSection>("quantization");
  visit.template operator()<QatSection>("qat");
  visit.template operator()<QatConfig>("qat.qat_config");
  visit.template operator()<FreezeSection>("freeze_config");
  visit.template operator()<EmbeddingRowRepairSection>("embedding_row_repair");
  visit.template operator()<NeftuneSection>("neftune");
  visit.template operator()<ToolCallEvalSection>("tool_call_eval");
  visit.template operator()<training::EarlyStoppingConfig>("early_stopping");
  visit.template operator()<MfuSection>("mfu");
  visit.template operator()<MoeMetricsSection>("moe_metrics");
  visit.template operator()<trackers::TensorBoardConfig>("tensorboard");
  visit.template operator()<trackers::MlflowConfig>("mlflow");
  visit.template operator()<trackers::WandbConfig>("wandb");
  visit.template operator()<DllmSection>("dllm");
  visit.template operator()<BenchmarkSection>("benchmark");
  visit.template operator()<KDLossConfig>("kd_loss_fn");
}

template <typename Visit>
void for_each_section(const Visit& visit) {
  for_each_model_section(visit);
  for_each_other_section(visit);
}

/// Every key that acts, or might.
std::vector<ListedKey> active_keys() {
  std::vector<ListedKey> keys;
  for (const char* key : {"recipe", "seed", "stop_on_non_finite", "float32_matmul_precision",
                          "distributed.strategy", "model.config",
                          "distributed(megatron_fsdp).tp_plan",  // an argument of its own, no field
                          "validation_dataset", "validation_dataloader", "teacher_model",
                          "teacher_distributed", "tokenizer"}) {
    keys.push_back({key});
  }
  for_each_section([&]<HasFields T>(const char* section) { list_keys<T>(section, keys); });
  for_each_field<DistillationKeys>([&](const auto& field) { keys.push_back({field.name}); });
  for_each_field<EmbeddingKeys>([&](const auto& field) { keys.push_back({field.name}); });
  return keys;
}

/// A line of key_effects.txt: a key, what shows its effect, and where.
struct Entry {
  std::string key;
  std::string kind;  ///< warns, changes, told, mistake, refused or test
  std::string rest;
};

std::vector<Entry> read_entries() {
  std::vector<Entry> entries;
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
    entries.push_back(
        {words[0], words[1], std::string(trim(std::string_view(line).substr(begin)))});
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

/// The tests of a file below tests/, without their room.
std::set<std::string> tests_of(const std::string& path) {
  std::set<std::string> names;
  const std::string text = read_file(test::source_file(path));
  for (size_t at = text.find("\nTEST("); at != std::string::npos;
       at = text.find("\nTEST(", at + 1)) {
    const size_t begin = at + std::string_view("\nTEST(").size();
    names.insert(replace_all(text.substr(begin, text.find(')', begin) - begin), ", ", "."));
  }
  return names;
}

TEST(KeyEffectsTest, EveryKeyHasAnEntryAndEveryEntryAKey) {
  std::map<std::string, std::set<std::string>> kinds;
  for (const Entry& entry : read_entries()) kinds[entry.key].insert(entry.kind);
  std::set<std::string> listed;
  for (const ListedKey& key : active_keys()) {
    listed.insert(key.path);
    if (!kinds.contains(key.path)) {
      ADD_FAILURE() << key.path << ": say in key_effects.txt what shows its effect";
      continue;
    }
    EXPECT_EQ(kinds[key.path].contains("warns"), key.has_no_effect) << key.path;
    EXPECT_NE(kinds[key.path], std::set<std::string>{"mistake"})
        << key.path << ": that a value is refused does not show what the others do";
  }
  for (const auto& [key, kinds_of_key] : kinds) {
    EXPECT_TRUE(listed.contains(key)) << key << " is no key";
  }
}

TEST(KeyEffectsTest, NamedTestsAndMistakesExist) {
  const std::set<std::string> tests = all_tests();
  // They say what is read of a key, and nothing of what it does.
  const std::set<std::string> tests_of_values = tests_of("tests/distributed/config_rows_test.cpp");
  EXPECT_TRUE(tests_of_values.contains("FSDP2Config.mp_policy"));
  const std::string mistakes = read_file(test::source_file("tests/recipes/mistakes.txt"));
  for (const auto& [key, kind, rest] : read_entries()) {
    if (kind == "test") {
      EXPECT_TRUE(tests.contains(rest)) << key << ": no test '" << rest << "'";
      EXPECT_FALSE(tests_of_values.contains(rest.substr(rest.find(' ') + 1)))
          << key << ": " << rest << " shows no effect";
    } else if (kind == "mistake" || kind == "refused") {
      EXPECT_NE(mistakes.find(cat("=== ", rest, "\n")), std::string::npos)
          << key << ": no mistake '" << rest << "'";
    } else {
      EXPECT_THAT(kind, testing::AnyOf("warns", "changes", "told")) << key;
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
  for_each_section([&]<HasFields T>(const char* section) { expect_warnings<T>(section, values); });
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
  for (const Entry& entry : read_entries()) {
    if (entry.kind != "changes") continue;
    const size_t bar = entry.rest.find('|');
    const std::string common(bar == std::string::npos ? "" : trim(entry.rest.substr(0, bar)));
    const std::string own(bar == std::string::npos ? entry.rest : trim(entry.rest.substr(bar + 1)));
    if (!without.contains(common)) without[common] = outcome_of(words_of(common));
    const std::string& before = without[common];
    ASSERT_THAT(before, testing::Not(testing::HasSubstr("status"))) << entry.key;
    const std::string after = outcome_of(words_of(cat(common, " ", own)));
    EXPECT_THAT(after, testing::Not(testing::HasSubstr("status"))) << entry.key;
    EXPECT_NE(before, after) << entry.key << ": " << own;
  }
}

/// Everything that is said of the base recipe with some changes.
std::string findings_with(const std::vector<std::string>& changes, const CheckOptions& options) {
  std::string all;
  try {
    const test::TemporaryDirectory folder;
    const config::Document document = config::load_recipe(write_base(folder), changes);
    config::Diagnostics diagnostics(document.sources);
    const Recipe recipe = read_recipe(document.root, diagnostics);
    check_run(recipe, options, diagnostics);
    for (const auto& finding : diagnostics.findings()) all += diagnostics.render(finding) + "\n";
  } catch (const UserError& error) {
    all = error.what();
  }
  return all;
}

/// `told TEXT | CHANGES`: a recipe with the changes is refused or warned of with the text.
TEST(KeyEffectsTest, ValuesAreToldOf) {
  for (const Entry& entry : read_entries()) {
    if (entry.kind != "told") continue;
    const size_t bar = entry.rest.find('|');
    const std::string expected(trim(entry.rest.substr(0, bar)));
    const std::string changes =
        replace_all(entry.rest.substr(bar + 1), "ROOT/", test::source_file(""));
    EXPECT_THAT(findings_with(words_of(changes), {}), testing::HasSubstr(expected)) << entry.key;
  }
}

TEST(KeyEffectsTest, ValuesThatChangeNothingAnywhereAreNotToldOf) {
  for (const char* changes :
       {"fsdp2", "fsdp2 tp_plan=none sequence_parallel=false",
        "fsdp2 fsdp2_forward_prefetch_depth=1 fsdp2_backward_prefetch_depth=2",
        "fsdp2 fsdp2_forward_prefetch_depth=0 fsdp2_backward_prefetch_depth=0",
        "fsdp2 activation_checkpointing_scope=all", "ddp activation_checkpointing_scope=['all']",
        "fsdp2 mp_policy.param_dtype=float32 mp_policy.reduce_dtype=float32 "
        "mp_policy.output_dtype=float32",
        "megatron_fsdp preserve_fp32_weights=true grad_reduce_in_fp32=true",
        "megatron_fsdp average_in_collective=true overlap_grad_reduce=false"}) {
    std::vector<std::string> all = words_of(cat("strategy=", changes));
    for (std::string& change : all) change = "--distributed." + change;
    EXPECT_EQ(findings_with(all, {}), "") << changes;
  }
}

TEST(KeyEffectsTest, ChangesThatAModelDoesNotReadAreToldOf) {
  const auto told = [](const char* change) { return findings_with({cat("--model.", change)}, {}); };
  for (const char* key : {"resid_pdrop", "sliding_window", "num_experts", "logits_scaling"}) {
    EXPECT_THAT(
        told(cat(key, "=2").c_str()),
        testing::HasSubstr(
            cat("warning: '", key, "' has no effect on training: this llama does not read it")));
  }
  EXPECT_THAT(told("rezid_pdrop=2"), testing::Not(testing::HasSubstr("no effect")));  // refused
  EXPECT_THAT(told("rope_theta=7.0"), testing::HasSubstr("rope_parameters has one, which counts"));
  for (const char* change :
       {"attention_dropout=0.1", "hidden_act=gelu", "initializer_range=0.1", "rms_norm_eps=1e-3",
        "tie_word_embeddings=false", "rope_parameters={'rope_type':'default','rope_theta':7.0}",
        "eos_token_id=3"}) {
    EXPECT_EQ(told(change), "") << change;
  }
}

TEST(KeyEffectsTest, AWildNumberHidesNoOtherKeyWithoutEffect) {
  EXPECT_THAT(
      findings_with({"--model.num_experts=2", "--model.max_position_embeddings=50000000"}, {}),
      testing::HasSubstr("warning: 'num_experts' has no effect on training"));
}

TEST(KeyEffectsTest, AnEpsThatFloat16DoesNotHoldIsToldOf) {
  const auto told = [](std::vector<std::string> changes) {
    changes.push_back("--model.torch_dtype=float16");
    return findings_with(changes, {});
  };
  const auto is_warned = testing::HasSubstr("warning: Adam's averages are float16 as its weights");
  EXPECT_THAT(told({}), is_warned);
  EXPECT_THAT(told({"--optimizer.eps=1e-6"}), is_warned);
  EXPECT_EQ(told({"--optimizer.eps=1e-4"}), "");
  EXPECT_THAT(findings_with({}, {}), testing::Not(is_warned));
}

/// What one rank leaves without effect is nobody's mistake until somebody says that there is one.
TEST(KeyEffectsTest, OneRankThatNobodyNamedIsNotToldOf) {
  const std::vector<std::string> changes = {"--distributed.strategy=fsdp2",
                                            "--distributed.mp_policy.param_dtype=bfloat16"};
  EXPECT_EQ(findings_with(changes, {.is_world_size_given = false}), "");
  EXPECT_EQ(findings_with(changes, {.world_size = 2}), "");
  EXPECT_THAT(
      findings_with(changes, {}),
      testing::HasSubstr("warning: mp_policy.param_dtype has no effect on one "
                         "data-parallel rank, where nothing is sharded: parameters are used "
                         "in float32, as they are stored"));
}

/// Keys of a schedule that another of its keys leaves unread.
TEST(KeyEffectsTest, ASchedulesUnreadKeysAreWarnedOf) {
  EXPECT_EQ(findings_with({"--lr_scheduler.lr_decay_style=linear", "--lr_scheduler.min_lr=0"}, {}),
            "");
  const std::string found =
      findings_with({"--lr_scheduler.lr_decay_style=constant", "--lr_scheduler.min_lr=0",
                     "--lr_scheduler.wsd_decay_steps=3"},
                    {});
  EXPECT_THAT(found, testing::HasSubstr("warning: min_lr has no effect: a constant rate"));
  EXPECT_THAT(found, testing::HasSubstr("warning: wsd_decay_steps has no effect: it is for"));
}

}  // namespace
}  // namespace automodel::recipes
