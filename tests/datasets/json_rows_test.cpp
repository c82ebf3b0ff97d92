#include "datasets/rows/json_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;

std::vector<int64_t> values(const RowIndex& rows) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < rows.size(); ++i) out.push_back(rows.row(i).at("a").as_int());
  return out;
}

TEST(JsonRowsTest, ReadsLinesWithBlankLinesByteOrderMarkAndCarriageReturns) {
  const RowIndex rows("\xEF\xBB\xBF{\"a\": 1}\r\n\r\n   \n{\"a\": 2}\n{\"a\": 3}", "x.jsonl");
  EXPECT_THAT(values(rows), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(rows.origin(2), "x.jsonl:5");
}

/// A text that counts what is read of it.
class CountedText final : public RowText {
 public:
  explicit CountedText(std::string text) : text_(std::move(text)) {}
  uint64_t size() const override { return text_.size(); }
  std::string read(uint64_t offset, uint64_t size) const override {
    num_read += size;
    return text_.substr(offset, size);
  }

  mutable uint64_t num_read = 0;

 private:
  std::string text_;
};

TEST(JsonRowsTest, NamesThePlacesOfAllRowsByReadingTheTextOnce) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += cat("{\"a\": ", i, "}\n", i % 10 == 0 ? "\n" : "");
  const auto text = std::make_shared<CountedText>(lines);
  const RowIndex rows(text, "x.jsonl");
  text->num_read = 0;
  for (const int64_t row : {999, 0, 1, 500}) {
    EXPECT_EQ(rows.origin(row), cat("x.jsonl:", row + 1 + (row + 9) / 10));
  }
  EXPECT_EQ(text->num_read, 0);
  std::string array = "[";
  for (int i = 0; i < 1000; ++i) array += cat(i == 0 ? "\n" : ",\n", "{\"a\": ", i, "}");
  const auto array_text = std::make_shared<CountedText>(array + "]");
  const RowIndex array_rows(array_text, "x.json");
  array_text->num_read = 0;
  for (const int64_t row : {999, 0, 1, 500}) {
    EXPECT_EQ(array_rows.origin(row), cat("x.json:", row + 2));
  }
  EXPECT_LE(array_text->num_read, array.size());
}

TEST(JsonRowsTest, ReadsAnArrayOfObjects) {
  const RowIndex rows("[\n {\"a\": 1, \"b\": \"]},\\\"{\"},\n{\"a\": 2}\n]\n", "x.json");
  EXPECT_THAT(values(rows), testing::ElementsAre(1, 2));
  EXPECT_EQ(rows.row(0).at("b").as_string(), "]},\"{");
  EXPECT_EQ(rows.origin(1), "x.json:3");
}

TEST(JsonRowsTest, ReadsColumns) {
  const RowIndex rows("{\"a\": [1, 2],\n \"b\": [\"x\", null]}", "x.json");
  EXPECT_THAT(values(rows), testing::ElementsAre(1, 2));
  EXPECT_TRUE(rows.row(1).at("b").is_null());
  EXPECT_EQ(rows.origin(1), "x.json row 1");
}

TEST(JsonRowsTest, OneObjectIsARow) {
  const RowIndex line("{\"a\": 1, \"b\": [1, 2]}\n", "x.json");
  EXPECT_THAT(values(line), testing::ElementsAre(1));
  const RowIndex lists("{\"messages\": [{\"role\": \"user\"}, {}]}", "x.json");
  EXPECT_EQ(lists.size(), 1);
  EXPECT_EQ(lists.row(0).at("messages").size(), 2u);
  const RowIndex lines("\n{\n \"a\": 1,\n \"b\": [1, 2]\n}\n", "x.json");
  EXPECT_THAT(values(lines), testing::ElementsAre(1));
  EXPECT_EQ(lines.origin(0), "x.json:2");
}

TEST(JsonRowsTest, ReadsLinesInAFileCalledJson) {
  EXPECT_THAT(values(RowIndex("{\"a\": 1}\n{\"a\": 2}\n", "x.json")), testing::ElementsAre(1, 2));
  EXPECT_EQ(RowIndex("{\"a\": [1, 2]}", "x.jsonl").size(), 1);
}

TEST(JsonRowsTest, HasNoRowsInAnEmptyText) {
  for (const char* text : {"", "\n\n", "\xEF\xBB\xBF", "[]", " [ ] "}) {
    EXPECT_EQ(RowIndex(text, "x.jsonl").size(), 0) << text;
  }
}

TEST(JsonRowsTest, NamesTheLineThatIsNotJson) {
  const RowIndex rows("{\"a\": 1}\n\n{\"a\": }\n", "x.jsonl");
  EXPECT_EQ(rows.size(), 2);
  EXPECT_THAT(error_of<InputError>([&] { rows.row(1); }),
              testing::StartsWith("x.jsonl:3: not valid JSON at byte"));
}

TEST(JsonRowsTest, RefusesRowsThatAreNoObjects) {
  EXPECT_EQ(error_of<InputError>([] { RowIndex("17\n", "x.jsonl").row(0); }),
            "x.jsonl:1: a row must be a JSON object, this is an integer");
  EXPECT_EQ(error_of<InputError>([] { RowIndex("[1, \"b\"]", "x.json").row(1); }),
            "x.json:1: a row must be a JSON object, this is a string");
}

TEST(JsonRowsTest, RefusesDamagedArrays) {
  const auto error = [](const char* text) {
    return error_of<InputError>([&] { RowIndex(text, "x.json"); });
  };
  EXPECT_EQ(error("[{\"a\": 1},\n"), "x.json:2: the array of rows is not closed");
  EXPECT_EQ(error("[{\"a\": 1"), "x.json:1: the array of rows is not closed");
  EXPECT_EQ(error("[{\"a\": \"x"), "x.json:1: the array of rows is not closed");
  EXPECT_EQ(error("[{}\n{}]"), "x.json:2: ',' or ']' was expected after a row");
  EXPECT_EQ(error("[,{}]"), "x.json:1: a row was expected here");
  EXPECT_EQ(error("[{}] {}"), "x.json:1: text follows the array of rows");
  EXPECT_EQ(error("{\"a\": [1],\n\"b\": []}"), "x.json: column 'b' has 0 values, column 'a' has 1");
}

TEST(JsonRowsTest, SurvivesHostileLines) {
  const std::string text =
      "{\"a\": \"\\ud800\"}\n" + std::string(1000, '[') + "\n{\"a\": \"\xff\"}\n\"\\";
  const RowIndex rows(text, "x.jsonl");
  for (int64_t i = 0; i < rows.size(); ++i) EXPECT_THROW(rows.row(i), InputError) << i;
}

TEST(JsonRowsTest, LooksForNoMoreRowsThanAsked) {
  EXPECT_EQ(RowIndex("{\"a\": 1}\n{\"a\": 2}\n", "x.jsonl", 1).size(), 1);
  EXPECT_EQ(RowIndex("[{\"a\": 1}, {\"a\": 2}", "x.json", 1).size(), 1);
}

TEST(JsonRowsTest, FindsRowsWhereverTheWindowsOfALargeFileEnd) {
  const automodel::test::TemporaryDirectory directory;
  std::string lines;
  std::string array = "[";
  for (int i = 0; i < 3000; ++i) {
    const std::string row =
        cat("{\"a\": ", i, ", \"b\": \"", std::string(static_cast<size_t>(i % 1400), 'x'), "\"}");
    lines += row + "\n";
    array += row + (i == 2999 ? "]" : ",\n");
  }
  for (const auto& [name, text] : {std::pair("x.jsonl", lines), std::pair("x.json", array)}) {
    const JsonFile file(directory.write(name, text));
    ASSERT_EQ(file.rows().size(), 3000);
    for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(file.rows().row(i).at("a").as_int(), i);
    EXPECT_EQ(file.rows().origin(2999), cat(directory.file(name), ":3000"));
    EXPECT_EQ(file.fingerprint().checksum, checksum_of(text));
  }
}

TEST(JsonRowsTest, AFileThatChangesIsAnErrorThatNamesIt) {
  const automodel::test::TemporaryDirectory directory;
  const std::string rows = "{\"a\": 1}\n{\"a\": 2}\n";
  const std::string path = directory.write("x.jsonl", rows);
  const auto error_after = [&](const std::function<void()>& change) {
    directory.write("x.jsonl", rows);
    const JsonFile file(path);
    EXPECT_EQ(file.rows().row(1).at("a").as_int(), 2);
    change();
    return error_of<InputError>([&] { file.rows().row(1); });
  };
  const std::string changed = path + " changed while it was in use: ";
  EXPECT_EQ(error_after([&] { std::filesystem::resize_file(path, 12); }),
            changed + "it had 18 bytes, it has 12");
  EXPECT_EQ(error_after([&] { std::filesystem::resize_file(path, 0); }),
            changed + "it had 18 bytes, it has 0");
  EXPECT_EQ(error_after([&] { std::filesystem::resize_file(path, 20); }),
            changed + "it had 18 bytes, it has 20");
  EXPECT_EQ(error_after([&] {
              directory.write("x.jsonl", "{\"a\": 1}\n{\"a\": 3}\n");
              const auto time = std::filesystem::last_write_time(path);
              std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
            }),
            changed + "it was written to");
  // Another file in its place is another file: the one that is open stays as it was.
  EXPECT_EQ(error_after([&] {
              const std::string other = directory.write("other.jsonl", "{}\n");
              std::filesystem::rename(other, path);
            }),
            "no error");
}

int64_t num_reads_of_this_process() {
  const std::string text = read_file("/proc/self/io");
  return std::stoll(text.substr(text.find("syscr: ") + 7));
}

TEST(JsonRowsTest, RowsInOrderAreReadManyAtOnceAndOthersAreTheSame) {
  const automodel::test::TemporaryDirectory directory;
  // Rows of two files at the same places, some longer than what is read at once.
  const auto length = [](int64_t row) { return row % 500 == 499 ? 70000 : 20 + row % 90; };
  const auto text = [&](char filling) {
    std::string lines;
    for (int64_t row = 0; row < 2000; ++row) {
      lines += cat("{\"a\": ", row, ", \"t\": \"", std::string(length(row), filling), "\"}\n");
    }
    return lines;
  };
  const JsonFile files[] = {JsonFile(directory.write("x.jsonl", text('x'))),
                            JsonFile(directory.write("y.jsonl", text('y')))};
  const auto expect_row = [&](size_t file, int64_t row) {
    const Json json = files[file].rows().row(row);
    EXPECT_EQ(json.at("a").as_int(), row);
    EXPECT_EQ(json.at("t").as_string(), std::string(length(row), file == 0 ? 'x' : 'y'));
  };
  const int64_t reads_before = num_reads_of_this_process();
  for (int64_t row = 0; row < 2000; ++row) expect_row(0, row);
  EXPECT_LT(num_reads_of_this_process() - reads_before, 20);
  for (int64_t row = 1999; row >= 0; --row) expect_row(0, row);
  for (int64_t i = 0; i < 2000; ++i) expect_row(0, i * 1367 % 2000);
  for (int64_t row = 0; row < 2000; row += 10) {
    for (int64_t i = row; i < row + 10; ++i) expect_row(0, i);
    for (int64_t i = row; i < row + 10; ++i) expect_row(1, i);
  }
}

TEST(JsonRowsTest, ReadsFiles) {
  const automodel::test::TemporaryDirectory directory;
  const std::string path = directory.write("x.jsonl", "{\"a\": 5}\n");
  EXPECT_THAT(values(JsonFile(path).rows()), testing::ElementsAre(5));
  EXPECT_EQ(JsonFile(directory.write("empty.jsonl", "")).rows().size(), 0);
}

}  // namespace
}  // namespace automodel::datasets
