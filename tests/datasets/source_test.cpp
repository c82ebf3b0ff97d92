#include "datasets/rows/row_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "core/error.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;
using testing::ElementsAre;

std::vector<int64_t> values(const RowSource& rows) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < rows.size(); ++i) out.push_back(rows.row(i).at("a").as_int());
  return out;
}

std::pair<int64_t, int64_t> range(std::string_view split, int64_t num_rows) {
  return Split::parse(split).range(num_rows);
}

TEST(SplitTest, SlicesByRows) {
  EXPECT_EQ(range("train", 50), std::make_pair(int64_t{0}, int64_t{50}));
  EXPECT_EQ(range("train[:10]", 50), std::make_pair(int64_t{0}, int64_t{10}));
  EXPECT_EQ(range("train[10:20]", 50), std::make_pair(int64_t{10}, int64_t{20}));
  EXPECT_EQ(range("train[-5:]", 50), std::make_pair(int64_t{45}, int64_t{50}));
  EXPECT_EQ(range("train[40:100]", 50), std::make_pair(int64_t{40}, int64_t{50}));
  EXPECT_EQ(range("train[40:-20]", 50), std::make_pair(int64_t{40}, int64_t{40}));
}

TEST(SplitTest, SlicesByPercentRoundedToTheNearestRow) {
  EXPECT_EQ(range("train[:10%]", 999), std::make_pair(int64_t{0}, int64_t{100}));
  EXPECT_EQ(range("train[95%:]", 30), std::make_pair(int64_t{28}, int64_t{30}));
  EXPECT_EQ(range("train[:50%]", 5), std::make_pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(range("train[-10%:]", 50), std::make_pair(int64_t{45}, int64_t{50}));
}

TEST(SplitTest, RefusesWhatIsNoSplit) {
  EXPECT_EQ(error_of<UserError>([] { Split::parse("train[:10"); }),
            "split 'train[:10' is not of the form NAME or NAME[FROM:TO], such as train[:90%]");
  EXPECT_EQ(error_of<UserError>([] { Split::parse("[:10]"); }),
            "split '[:10]' is not of the form NAME or NAME[FROM:TO], such as train[:90%]");
  EXPECT_EQ(error_of<UserError>([] { Split::parse("train[:x]"); }),
            "split 'train[:x]': 'x' is not a row number or a percentage from -100% to 100%");
  EXPECT_EQ(error_of<UserError>([] { Split::parse("train[:101%]"); }),
            "split 'train[:101%]': '101' is not a row number or a percentage from -100% to 100%");
  for (const char* none : {"train[20:10]", "train[5:5]", "train[:0]", "train[:0%]",
                           "train[60%:40%]", "train[-5:-10]"}) {
    EXPECT_EQ(error_of<UserError>([&] { Split::parse(none); }),
              cat("split '", none, "' takes no rows: it ends where it begins, or before"));
  }
  EXPECT_EQ(error_of<UserError>([] { Split::parse_sum("train+"); }),
            "split '' is not of the form NAME or NAME[FROM:TO], such as train[:90%]");
}

TEST(SourceTest, JoinsFilesAndNamesRowsByFileAndLine) {
  const TemporaryDirectory directory;
  const std::string one = directory.write("one.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  const std::string none = directory.write("none.jsonl", "");
  const std::string two = directory.write("two.json", "[{\"a\": 3}]");
  const RowSource rows({.paths = {one, none, two}});
  EXPECT_THAT(values(rows), ElementsAre(1, 2, 3));
  EXPECT_EQ(rows.origin(1), one + ":2");
  EXPECT_EQ(rows.origin(2), two + ":1");
}

TEST(SourceTest, AppliesSliceThenLimit) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.write("x.jsonl", "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n{\"a\": 4}\n");
  EXPECT_THAT(values(RowSource({.paths = {path}, .split = "train[1:]", .limit = 2})),
              ElementsAre(2, 3));
  EXPECT_THAT(values(RowSource({.paths = {path}, .limit = 100})), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(error_of<UserError>([&] { RowSource({.paths = {path}, .split = "train[4:]"}); }),
            "dataset " + path + ": split 'train[4:]' holds none of its 4 rows");
}

TEST(SourceTest, APercentSignIsForBothBounds) {
  const auto range = [](const char* text, int64_t num_rows) {
    return Split::parse(text).range(num_rows);
  };
  EXPECT_EQ(range("train[3:50%]", 18), (std::pair<int64_t, int64_t>(1, 9)));
  EXPECT_EQ(range("train[10:60%]", 18), range("train[10%:60%]", 18));
  EXPECT_EQ(range("train[10%:60]", 18), range("train[10%:60%]", 18));
  EXPECT_EQ(error_of<UserError>([] { Split::parse("train[10%:5]"); }),
            "split 'train[10%:5]' takes no rows: it ends where it begins, or before");
  EXPECT_EQ(error_of<UserError>([] { Split::parse("train[300:50%]"); }),
            "split 'train[300:50%]': '300' is not a row number or a percentage from -100% to 100%");
}

TEST(SourceTest, AddsSplitsUp) {
  const TemporaryDirectory directory;
  directory.write("train.jsonl", "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n{\"a\": 4}\n");
  directory.write("validation-0.jsonl", "{\"a\": 5}\n");
  directory.write("validation-1.jsonl", "{\"a\": 6}\n{\"a\": 7}\n");
  const auto of = [&](const char* split) {
    return values(RowSource({.paths = {directory.path()}, .split = split}));
  };
  EXPECT_THAT(of("train[:25%]+validation[1:]"), ElementsAre(1, 6, 7));
  EXPECT_THAT(of("validation[:2] + train[-1:] + train[:1]"), ElementsAre(5, 6, 4, 1));
  EXPECT_THAT(of("train[:1]+train[:1]"), ElementsAre(1, 1));
  const RowSource rows({.paths = {directory.path()}, .split = "train[3:]+validation[2:]"});
  EXPECT_EQ(rows.origin(0), directory.file("train.jsonl") + ":4");
  EXPECT_EQ(rows.origin(1), directory.file("validation-1.jsonl") + ":2");
  EXPECT_EQ(rows.files().size(), 3u);
}

TEST(SourceTest, ReadsAFolderInOrderOfNames) {
  const TemporaryDirectory directory;
  directory.write("b.jsonl", "{\"a\": 2}\n");
  directory.write("a.json", "[{\"a\": 1}]");
  directory.write("sub/c.jsonl", "{\"a\": 3}\n");
  directory.write("notes.txt", "no data");
  EXPECT_THAT(values(RowSource({.paths = {directory.path()}})), ElementsAre(1, 2, 3));
}

TEST(SourceTest, LinksToTheFoldersAroundAreNotFollowed) {
  const TemporaryDirectory directory;
  directory.write("data/inner/x.jsonl", "{\"a\": 1}\n");
  for (const char* link : {"data/latest", "data/current", "data/inner/up"}) {
    std::filesystem::create_directory_symlink(directory.file("data"), directory.file(link));
  }
  EXPECT_EQ(RowSource({.paths = {directory.file("data")}}).size(), 1);
}

TEST(SourceTest, TakesTheSplitThatFileNamesSpeakOf) {
  const TemporaryDirectory directory;
  directory.write("train-00000.jsonl", "{\"a\": 1}\n");
  directory.write("dev.jsonl", "{\"a\": 2}\n");
  EXPECT_THAT(values(RowSource({.paths = {directory.path()}})), ElementsAre(1));
  EXPECT_THAT(values(RowSource({.paths = {directory.path()}, .split = "validation"})),
              ElementsAre(2));
  EXPECT_THAT(values(RowSource({.paths = {directory.path()}, .split = std::nullopt})),
              ElementsAre(1, 2));
  EXPECT_EQ(error_of<UserError>([&] { RowSource({.paths = {directory.path()}, .split = "test"}); }),
            "dataset folder " + directory.path() +
                " has no split 'test'; by the names of its files it has: train, validation");
}

TEST(SourceTest, FilesWithoutASplitAreForTraining) {
  const TemporaryDirectory directory;
  directory.write("data.jsonl", "{\"a\": 1}\n");
  EXPECT_THAT(values(RowSource({.paths = {directory.path()}})), ElementsAre(1));
  EXPECT_EQ(
      error_of<UserError>([&] { RowSource({.paths = {directory.path()}, .split = "validation"}); }),
      "dataset folder " + directory.path() +
          " has no split 'validation'; by the names of its files it has: train");
}

TEST(SourceTest, ExplainsWhatCannotBeRead) {
  const TemporaryDirectory directory;
  EXPECT_EQ(error_of<UserError>([&] { RowSource({.paths = {directory.file("none.jsonl")}}); }),
            "dataset file " + directory.file("none.jsonl") + " does not exist");
  EXPECT_EQ(error_of<UserError>([&] { RowSource({.paths = {directory.path()}}); }),
            "dataset folder " + directory.path() +
                " holds no *.jsonl, *.json, *.parquet, *.arrow or *.csv file");
  const std::string empty = directory.write("empty.jsonl", "\n");
  EXPECT_EQ(error_of<UserError>([&] { RowSource({.paths = {empty}}); }),
            "dataset " + empty + " is empty");
  EXPECT_EQ(error_of<UserError>(
                [&] { RowSource({.paths = {"org/name"}, .cache_dir = directory.path()}); }),
            "dataset 'org/name' is not a file or folder here and not in the Hugging Face cache; "
            "a run fetches it where the hub can be reached");
  directory.write("script/squad.py", "");
  EXPECT_EQ(error_of<UnsupportedError>([&] { RowSource({.paths = {directory.file("script")}}); }),
            "dataset folder " + directory.file("script") +
                " is made by a Python script, which is not run here: give a revision with data "
                "files, such as refs/convert/parquet");
}

TEST(SourceTest, DescribesWithoutReadingMoreThanTheFirstRow) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x.jsonl", "{\"q\": 1, \"a\": 2}\nnot json\n");
  const SourceDescription description = describe_source({.paths = {path}});
  EXPECT_THAT(description.files, ElementsAre(path));
  EXPECT_THAT(description.columns, ElementsAre("q", "a"));
  EXPECT_EQ(description.note, std::nullopt);
}

TEST(SourceTest, ReadsADatasetOfTheCache) {
  const TemporaryDirectory cache;
  cache.write("datasets--org--name/refs/main", "abc123\n");
  cache.write("datasets--org--name/snapshots/abc123/train.jsonl", "{\"a\": 1}\n");
  cache.write("datasets--org--name/snapshots/abc123/test.jsonl", "{\"a\": 2}\n");
  EXPECT_THAT(
      values(RowSource({.paths = {"org/name"}, .split = "test", .cache_dir = cache.path()})),
      ElementsAre(2));
}

TEST(SourceTest, NotesAHubIdInsteadOfRefusingIt) {
  const TemporaryDirectory cache;
  const SourceDescription description =
      describe_source({.paths = {"rajpurkar/squad"}, .cache_dir = cache.path()});
  EXPECT_TRUE(description.files.empty());
  EXPECT_THAT(description.note.value_or(""),
              testing::StartsWith("dataset 'rajpurkar/squad' is not a file"));
}

TEST(SourceTest, TellsHubIdsFromPaths) {
  EXPECT_TRUE(is_hub_id("squad"));
  EXPECT_TRUE(is_hub_id("openai/gsm8k"));
  EXPECT_FALSE(is_hub_id("data/train.jsonl"));
  EXPECT_FALSE(is_hub_id("/abs/name"));
  EXPECT_FALSE(is_hub_id("../name"));
  EXPECT_FALSE(is_hub_id("a/b/c"));
}

TEST(SourceTest, NamesTheColumnsThereAre) {
  EXPECT_EQ(missing_column("anser", {"question", "answer"}),
            "no column 'anser'; columns: question, answer; did you mean 'answer'?");
  EXPECT_EQ(missing_column("answer", {"question", "answer"}), std::nullopt);
}

}  // namespace
}  // namespace automodel::datasets
