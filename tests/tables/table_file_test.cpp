#include "tables/table_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::tables {
namespace {

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string data(const std::string& name) {
  return test::source_file("tests/tables/data/" + name);
}

std::vector<Json> golden(const std::string& name) {
  std::vector<Json> rows;
  for (const std::string& line : split(read_file(data(name)), '\n')) {
    if (!line.empty()) rows.push_back(Json::parse(line, name));
  }
  return rows;
}

class TableFileTest : public testing::Test {
 protected:
  TableFile open(const std::string& path) const { return TableFile(path, copies_.path()); }

  /// Every row of a table of tests/tables/data, with the columns in `like`.
  void expect_rows(const std::string& name, const std::vector<Json>& like) const {
    const TableFile file = open(data(name));
    ASSERT_GE(file.size(), static_cast<int64_t>(like.size())) << name;
    for (size_t i = 0; i < like.size(); ++i) {
      Json expected = Json::object();
      for (const std::string& column : file.columns()) expected[column] = like[i].at(column);
      EXPECT_EQ(file.row(static_cast<int64_t>(i)).dump(), expected.dump()) << name;
    }
    EXPECT_EQ(read_first_row(data(name)), file.row(0));
  }

  test::TemporaryDirectory copies_;
};

TEST_F(TableFileTest, RowsAreWhatPyarrowReads) {
  expect_rows("squad.parquet", golden("squad_first.jsonl"));
  expect_rows("hellaswag.parquet", golden("hellaswag.jsonl"));
  for (const char* name : {"types.parquet", "types.arrow", "types.feather"}) {
    expect_rows(name, golden("types.jsonl"));
    const TableFile file = open(data(name));
    EXPECT_THAT(file.left_out(),
                ElementsAre("bytes (binary)", "picture (struct<bytes: binary, path: string>)"));
  }
}

std::string num_threads() {
  for (const std::string& line : split(read_file("/proc/self/status"), '\n')) {
    if (line.starts_with("Threads:")) return line;
  }
  return "";
}

/// A process with other threads cannot be forked into ranks. Each kind of file is read in a process
/// of its own, for threads that one kind leaves would hide another's.
TEST_F(TableFileTest, NoThreadsAreLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* name : {"rows.csv", "squad.parquet", "types.arrow", "types.feather"}) {
    EXPECT_EXIT(
        {
          const std::string before = num_threads();
          read_first_row(data(name));
          open(data(name)).row(0);
          // A thread that was joined may be listed a moment longer.
          for (int i = 0; i < 1000 && num_threads() != before; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          std::fprintf(stderr, "%s, then %s\n", before.c_str(), num_threads().c_str());
          std::_Exit(num_threads() == before ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << name;
  }
}

TEST_F(TableFileTest, RowsAreReadInAnyOrderByAnyThread) {
  const TableFile file = open(data("squad.parquet"));
  ASSERT_EQ(file.size(), 2500);  // three groups of rows
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 2499 - t; i >= 0; i -= 7) {
        EXPECT_EQ(file.row(i).at("question").as_string(), cat("What is ", i, " times ", i, "?"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TableFileTest, CsvHasTypesAndQuotes) {
  const TableFile file = open(data("rows.csv"));
  EXPECT_EQ(file.row(0).dump(),
            R"({"question": "one, two", "answer": "say \"three\"", "number": 4})");
  EXPECT_EQ(file.row(1).at("question").as_string(), "two\nlines");
}

TEST_F(TableFileTest, TimesInCsvStayAsTheyAreWritten) {
  const std::string row =
      "2024-01-01T10:00:00+02:00,10:30,2024-05-01 08:30,10:00:00.5,2024-05-01,7";
  const TableFile file = open(copies_.write("times.csv", cat("a,b,c,d,e,f\n", row, "\n")));
  std::vector<std::string> values;
  for (const char* column : {"a", "b", "c", "d", "e"}) {
    values.push_back(file.row(0).at(column).as_string());
  }
  EXPECT_EQ(cat(join(values, ","), ",7"), row);
  EXPECT_EQ(file.row(0).at("f").as_int(), 7);
  EXPECT_EQ(read_first_row(copies_.file("times.csv")), file.row(0));
}

/// A stream of two batches, each with a dictionary of its own.
TEST_F(TableFileTest, ColumnsOfDictionariesAreTheirValues) {
  const TableFile file = open(data("dictionaries.arrow"));
  std::vector<std::string> rows;
  for (int64_t i = 0; i < file.size(); ++i) rows.push_back(file.row(i).dump());
  EXPECT_THAT(
      rows,
      ElementsAre("{\"text\": \"a\", \"source\": \"x\"}", "{\"text\": \"b\", \"source\": \"y\"}",
                  "{\"text\": \"c\", \"source\": \"z\"}", "{\"text\": \"d\", \"source\": null}",
                  "{\"text\": \"e\", \"source\": \"x\"}"));
}

TEST_F(TableFileTest, DictionariesInsideListsStructsAndMapsAreTheirValues) {
  const TableFile file = open(data("nested_dictionaries.arrow"));
  std::vector<std::string> rows;
  for (int64_t i = 0; i < file.size(); ++i) rows.push_back(file.row(i).dump());
  const auto row = [](const char* lists, const char* record, const char* map) {
    return cat(R"({"lists": )", lists, R"(, "struct": )", record, R"(, "map": [)", map, "]}");
  };
  EXPECT_THAT(
      rows, ElementsAre(
                row(R"(["x", "y"])", R"({"name": "x"})", R"({"key": "key 0", "value": "y"})"),
                row("null", R"({"name": "y"})", ""),
                row(R"(["x"])", "null", R"({"key": "key 1", "value": "x"})"),
                row(R"(["z", null, "x"])", R"({"name": "z"})", R"({"key": "key 0", "value": "x"})"),
                row("null", R"({"name": null})", ""),
                row(R"(["z"])", R"({"name": "x"})",
                    R"({"key": "key 1", "value": null}, {"key": "key 2", "value": "z"})")));
}

/// Numbers and texts that come late, and a row that is longer than Arrow's usual block.
TEST_F(TableFileTest, TypesOfCsvAreThoseOfManyRows) {
  std::string text = "a,b,c\n";
  while (text.size() < (3u << 20)) text += cat("1,,", std::string(1000, 'x'), "\n");
  const TableFile file =
      open(copies_.write("late.csv", cat(text, "0.5,b,", std::string(3u << 20, 'y'), "\n")));
  EXPECT_EQ(file.row(0).at("a").dump(), "1.0");
  EXPECT_EQ(file.row(file.size() - 1).at("a").as_double(), 0.5);
  EXPECT_TRUE(file.row(0).at("b").is_null());
  EXPECT_EQ(file.row(file.size() - 1).at("b").as_string(), "b");
}

TEST_F(TableFileTest, CsvHasPandassNulls) {
  const TableFile file = open(copies_.write("nulls.csv", "a,b\nx,None\n<NA>,y\n"));
  EXPECT_EQ(file.row(0).dump(), R"({"a": "x", "b": null})");
  EXPECT_EQ(file.row(1).dump(), R"({"a": null, "b": "y"})");
}

TEST_F(TableFileTest, ColumnsOfCsvThatAreTextsStandAsTheyAre) {
  const std::string path = copies_.write("texts.csv", "a,b,c\n007,NA,1\n1.50,,2\ntrue,null,NA\n");
  const TableFile plain = open(path);
  EXPECT_EQ(plain.row(0).dump(), R"({"a": "007", "b": null, "c": 1})");
  const TableFile file(path, copies_.file("copies"), {"a", "b", "no such"});
  EXPECT_EQ(file.row(0).dump(), R"({"a": "007", "b": "NA", "c": "1"})");
  EXPECT_EQ(file.row(1).dump(), R"({"a": "1.50", "b": null, "c": "2"})");
  EXPECT_EQ(file.row(2).dump(), R"({"a": "true", "b": "null", "c": "NA"})");
  EXPECT_EQ(read_first_row(path, {"b", "c"}).dump(), R"({"a": "007", "b": "NA", "c": "1"})");
  // Numbers alone are numbers, unless the column is text.
  const std::string numbers = copies_.write("numbers.csv", "a,b\n007,1\n8,2\n");
  EXPECT_EQ(open(numbers).row(0).dump(), R"({"a": 7, "b": 1})");
  EXPECT_EQ(TableFile(numbers, copies_.file("copies"), {"a"}).row(0).dump(),
            R"({"a": "007", "b": 1})");
  EXPECT_EQ(open(numbers).row(0).dump(), R"({"a": 7, "b": 1})");  // its copy is its own
}

TEST_F(TableFileTest, CsvThatEndsInAQuotedFieldIsCut) {
  const auto rows_of = [&](const std::string& text, const char* name = "x.csv") -> std::string {
    const std::string path = copies_.write(name, text);
    try {
      return cat(open(path).size());
    } catch (const InputError& error) {
      return replace_all(error.what(), path, name);
    }
  };
  EXPECT_EQ(rows_of("a,b\n1,\"two\nlines\"\n"), "1");
  EXPECT_EQ(rows_of("a,b\n1,\"she said \"\"no\"\"\""), "1");
  EXPECT_EQ(rows_of("a,b\n1,5\" pipe\n2,x\n"), "2");
  EXPECT_EQ(rows_of("a,b\n1,x\n2,\"cut\nhere"),
            "x.csv:3: the file ends in the quoted field that begins here");
  EXPECT_EQ(rows_of("\xEF\xBB\xBF\"a ,\",b\nx,y\n"), "1");
  EXPECT_EQ(rows_of("a,b\r1,x\r2,\"y", "x.csv"),
            "x.csv:1: the file ends in the quoted field that begins here");
  EXPECT_EQ(rows_of("a\tb\n1,\"\t\"x", "x.tsv"),
            "x.tsv:2: the file ends in the quoted field that begins here");
  const std::string far(1 << 20, 'z');
  EXPECT_EQ(rows_of(cat("a,b\n", far.substr(6), ",\"x\"\"y\"\n")), "1");
  EXPECT_EQ(rows_of(cat("a,b\n", far.substr(6), ",\"x\"\"y\n")),
            "x.csv:2: the file ends in the quoted field that begins here");
}

TEST_F(TableFileTest, ACopyIsMadeOnceAndAnewForOtherBytes) {
  const std::string path = copies_.write("in/x.csv", "a\n1\n");
  const uint64_t first = open(path).checksum();
  EXPECT_EQ(first, checksum_of_file(path));
  const auto num_copies = [&] {
    int64_t count = 0;
    for (const std::string& name : list_directory(copies_.path())) {
      count += name.ends_with(".arrow");
    }
    return count;
  };
  EXPECT_EQ(open(path).row(0).at("a").as_int(), 1);
  EXPECT_EQ(num_copies(), 1);
  copies_.write("in/x.csv", "a\n22\n");
  EXPECT_EQ(open(path).row(0).at("a").as_int(), 22);
  EXPECT_NE(open(path).checksum(), first);
  EXPECT_EQ(num_copies(), 2);
}

TEST_F(TableFileTest, FilesThatAreCutAreNamed) {
  const std::string whole = read_file(data("squad.parquet"));
  for (const size_t size : {whole.size() - 5, whole.size() / 2, size_t{20}, size_t{4}, size_t{0}}) {
    const std::string path = copies_.write("cut.parquet", whole.substr(0, size));
    EXPECT_THAT(error_of<InputError>([&] { open(path); }), StartsWith(path + ": ")) << size;
    EXPECT_THAT(error_of<InputError>([&] { read_first_row(path); }), StartsWith(path + ": "));
  }
  for (const char* name : {"types.arrow", "types.feather"}) {
    const std::string arrow = read_file(data(name));
    const std::string path = copies_.write(name, arrow.substr(0, arrow.size() / 2));
    EXPECT_THAT(error_of<InputError>([&] { open(path); }), StartsWith(path + ": "));
  }
}

/// checked.parquet: 20 texts in one page, uncompressed, with its checksum.
TEST_F(TableFileTest, AChangedPageIsFoundByItsChecksum) {
  std::string bytes = read_file(data("checked.parquet"));
  EXPECT_EQ(open(copies_.write("whole.parquet", bytes)).size(), 20);
  bytes[bytes.find("number 7")] ^= 1;
  const std::string path = copies_.write("changed.parquet", bytes);
  EXPECT_THAT(error_of<InputError>([&] { open(path); }), testing::HasSubstr("CRC"));
}

TEST_F(TableFileTest, DamagedFilesAreErrorsOrOtherRowsButNothingElse) {
  for (const char* name :
       {"squad.parquet", "hellaswag.parquet", "types.parquet", "types.arrow", "types.feather"}) {
    const std::string whole = read_file(data(name));
    int64_t num_errors = 0;
    for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 60) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x5a);
      const std::string path = copies_.write(cat("damaged-", name), bytes);
      try {
        const TableFile file = open(path);
        for (int64_t i = 0; i < file.size(); ++i) file.row(i);
      } catch (const InputError& error) {
        ++num_errors;
        EXPECT_THAT(error.what(), StartsWith(path + ": ")) << name << " at " << at;
      }
      remove_tree(copies_.file(cat("damaged-", name)));
    }
    EXPECT_GT(num_errors, 8) << name;
  }
}

TEST_F(TableFileTest, OffsetsBeyondTheFileAndTextThatIsNoneAreErrors) {
  const std::string whole = read_file(data("types.arrow"));
  const int64_t offsets[] = {0, 1, 2};  // of large_string's "a" and "b"
  const std::string pattern(reinterpret_cast<const char*>(offsets), sizeof(offsets));
  const size_t at = whole.find(pattern);
  ASSERT_NE(at, std::string::npos);
  std::string far = whole;
  far[at + 16 + 4] = 1;  // 2 + 2^32
  const std::string path = copies_.write("far.arrow", far);
  EXPECT_THAT(error_of<InputError>([&] { open(path); }),
              StartsWith(path + ": rows from 0 on: column 'large_string': "));
  std::string text = whole;
  text[text.find("na\xc3\xafve") + 3] = 'i';  // a letter of two bytes has one left
  const std::string other = copies_.write("text.arrow", text);
  EXPECT_THAT(error_of<InputError>([&] { read_first_row(other); }),
              StartsWith(other + ": rows from 0 on: column 'string': "));
}

TEST_F(TableFileTest, DamageInTheMiddleSaysWhichRows) {
  std::string bytes = read_file(data("squad.parquet"));
  const size_t third_group = bytes.size() * 4 / 5;
  for (size_t i = 0; i < 200; ++i) bytes[third_group + i] = static_cast<char>(i);
  const std::string path = copies_.write("middle.parquet", bytes);
  EXPECT_THAT(error_of<InputError>([&] { open(path); }), StartsWith(path + ": rows from "));
  EXPECT_EQ(read_first_row(path), golden("squad_first.jsonl").front());
}

TEST_F(TableFileTest, PackedFilesAreUnpacked) {
  std::string expected;
  for (const Json& row : golden("hellaswag.jsonl")) expected += row.dump() + "\n";
  for (const char* name : {"rows.jsonl.gz", "rows.jsonl.zst"}) {
    const UnpackedFile file = unpack_file(data(name), copies_.path());
    EXPECT_EQ(read_file(file.path), expected);
    EXPECT_EQ(file.checksum, checksum_of_file(data(name)));
    EXPECT_EQ(read_packed_start(data(name), 10), expected.substr(0, 10));
    const std::string whole = read_file(data(name));
    const std::string cut = copies_.write(name, whole.substr(0, whole.size() / 2));
    EXPECT_THAT(error_of<InputError>([&] { unpack_file(cut, copies_.path()); }),
                StartsWith(cut + ": "));
    const std::string other = copies_.write(cat("other-", name), "no such thing");
    EXPECT_THAT(error_of<InputError>([&] { unpack_file(other, copies_.path()); }),
                StartsWith(other + ": "));
  }
}

/// A process that is killed while it makes a copy leaves a part of it.
TEST_F(TableFileTest, WhatAKilledProcessLeftIsRemoved) {
  const std::string path = copies_.write("in/x.csv", "a\n1\n");
  open(path);
  std::string copy;
  for (const std::string& name : list_directory(copies_.path())) {
    if (name.ends_with(".arrow")) copy = copies_.file(name);
  }
  ASSERT_FALSE(copy.empty());
  std::filesystem::rename(copy, cat(copy, kTemporaryEnding, "killed"));
  open(path);
  EXPECT_TRUE(path_exists(copy));
  EXPECT_FALSE(path_exists(cat(copy, kTemporaryEnding, "killed")));
}

TEST_F(TableFileTest, NothingHalfMadeStaysBehind) {
  const std::string path = copies_.write("bad/x.parquet", "PAR1 no table PAR1");
  EXPECT_THROW(open(path), InputError);
  for (const std::string& name : list_directory(copies_.path())) {
    EXPECT_THAT(name, testing::Not(HasSubstr(".tmp-")));
    EXPECT_FALSE(name.ends_with(".arrow"));
  }
}

}  // namespace
}  // namespace automodel::tables
