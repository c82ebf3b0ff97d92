#include "datasets/rows/hub_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "datasets/conversations/agent_chat.h"
#include "datasets/texts/hellaswag.h"
#include "datasets/texts/squad.h"
#include "support/errors.h"
#include "support/hub_server.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::string table(const std::string& name) {
  return read_file(test::source_file("tests/tables/data/" + name));
}

class HubDataTest : public testing::Test {
 protected:
  HubDataTest() {
    server_.add("datasets/org/squad", "README.md", R"(---
configs:
- config_name: plain_text
  data_files:
  - split: train
    path: plain_text/train-*
  - split: validation
    path: plain_text/validation-*
---
)");
    server_.add("datasets/org/squad", "plain_text/train-00000-of-00001.parquet",
                table("squad.parquet"), true);
    server_.add("datasets/org/squad", "plain_text/validation-00000-of-00001.parquet",
                table("hellaswag.parquet"), true);
    settings_.endpoint = server_.endpoint();
    settings_.cache = home_.file("hub");
    ::setenv("HF_DATASETS_CACHE", home_.file("copies").c_str(), 1);
  }
  ~HubDataTest() override { ::unsetenv("HF_DATASETS_CACHE"); }

  SourceOptions source(const std::string& split) const {
    return {.paths = {"org/squad"}, .split = split, .cache_dir = settings_.cache};
  }
  void fetch(const SourceOptions& options) {
    hub::Hub hub(settings_, silent_);
    fetch_data_files(hub, options);
  }

  test::HubServer server_;
  test::TemporaryDirectory home_;
  SilentReporter silent_;
  hub::Settings settings_;
};

TEST_F(HubDataTest, AListedDataSetIsDescribedBeforeItsRowsAreHere) {
  EXPECT_EQ(describe_source(source("train")).note,
            "dataset 'org/squad' is not a file or folder here and not in the Hugging Face cache; a "
            "run fetches it where the hub can be reached");
  hub::Hub hub(settings_, silent_);
  fetch_data_cards(hub, source("train"));
  EXPECT_EQ(server_.num_requests("/resolve/"), 1u);  // README.md
  EXPECT_EQ(describe_source(source("train")).note,
            "1 file is fetched from the hub when it runs: columns were not looked at");
  EXPECT_EQ(error_of<InputError>([&] { describe_source(source("test")); }),
            "dataset 'org/squad' has no split 'test'; by the names of its files it has: train, "
            "validation");
  EXPECT_THAT(error_of<InputError>([&] { RowSource rows(source("train")); }),
              HasSubstr("train-00000-of-00001.parquet is not in the Hugging Face cache"));
}

TEST_F(HubDataTest, ARevisionIsTheDataSetsOwn) {
  server_.add("datasets/org/traces", "train.jsonl", "{\"messages\": \"first\"}\n");
  server_.add_reference("datasets/org/traces", "refs/convert/parquet");
  server_.add("datasets/org/traces", "train.jsonl", "{\"messages\": \"second\"}\n");
  AgentChatConfig config{.dataset_name = "org/traces", .revision = "refs/convert/parquet"};
  SourceOptions options = config.source();
  options.cache_dir = settings_.cache;
  EXPECT_NE(describe_source(options).note, std::nullopt);
  fetch(options);
  EXPECT_EQ(RowSource(options).row(0).at("messages").as_string(), "first");
  options.revision = "main";
  fetch(options);
  EXPECT_EQ(RowSource(options).row(0).at("messages").as_string(), "second");
}

TEST_F(HubDataTest, OnlyTheSplitsThatAreReadAreFetched) {
  fetch(source("train[:10]"));
  EXPECT_EQ(server_.num_requests("/resolve/"), 2u);  // README.md, train
  const RowSource rows(source("train[:10]"));
  EXPECT_EQ(rows.size(), 10);
  EXPECT_EQ(rows.row(3).at("answers").dump(), R"({"text": ["number 9"], "answer_start": [28]})");
  EXPECT_THAT(rows.origin(3), testing::EndsWith("train-00000-of-00001.parquet row 3"));
  EXPECT_THAT(describe_source(source("train[:10]")).columns,
              ElementsAre("id", "title", "context", "question", "answers"));
  fetch(source("train[:10]+validation[-5:]"));
  EXPECT_EQ(RowSource(source("train[:10]+validation[-5:]")).size(), 15);
  EXPECT_EQ(server_.num_requests("/resolve/"), 3u);  // README.md, train, validation
}

TEST_F(HubDataTest, AColumnThatIsMissingIsNamedWithFileAndRow) {
  fetch(source("train"));
  const RowSource rows(source("train"));
  const Json row = rows.row(7);
  EXPECT_EQ(error_of<InputError>([&] { required_column(row, "contxt", rows, 7); }),
            rows.origin(7) +
                ": no column 'contxt'; columns: id, title, context, question, "
                "answers; did you mean 'context'?");
  const std::string types = test::source_file("tests/tables/data/types.parquet");
  const RowSource typed({.paths = {types}});
  const Json first = typed.row(0);
  EXPECT_THAT(error_of<InputError>([&] { required_column(first, "bytes", typed, 0); }),
              testing::EndsWith("; the file has bytes (binary), which rows cannot hold"));
}

TEST_F(HubDataTest, PackedJsonIsReadAsJson) {
  const std::string plain = test::source_file("tests/tables/data/hellaswag.jsonl");
  for (const char* name : {"rows.jsonl.gz", "rows.jsonl.zst"}) {
    const std::string path = test::source_file(std::string("tests/tables/data/") + name);
    const RowSource packed({.paths = {path}}), rows({.paths = {plain}});
    ASSERT_EQ(packed.size(), rows.size());
    for (int64_t i = 0; i < rows.size(); ++i) EXPECT_EQ(packed.row(i), rows.row(i));
    EXPECT_EQ(packed.origin(2), path + ":3");
    EXPECT_EQ(describe_source({.paths = {path}}).columns,
              describe_source({.paths = {plain}}).columns);
    EXPECT_EQ(packed.files().front().path, path);
    EXPECT_NE(packed.files().front().checksum, rows.files().front().checksum);
  }
}

TEST_F(HubDataTest, DatasetsOfTablesAreThoseOfJson) {
  const std::string folder = test::source_file("tests/tables/data/");
  const RowSource table({.paths = {folder + "hellaswag.parquet"}});
  const RowSource json({.paths = {folder + "hellaswag.jsonl"}});
  ASSERT_EQ(table.size(), json.size());
  for (int64_t i = 0; i < json.size(); ++i) EXPECT_EQ(table.row(i), json.row(i));
  EXPECT_EQ(check(HellaSwagConfig{.path_or_dataset = folder + "hellaswag.parquet"}).columns.size(),
            10u);
}

}  // namespace
}  // namespace automodel::datasets
