#include "core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/error.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

using test::error_of;
using testing::ElementsAre;

TEST(AtomicFileTest, IsThereWholeOrNotAtAll) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile unfinished(path);
    unfinished.write("new");
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_THAT(list_directory(folder.path()), ElementsAre("a"));
  AtomicFile file(path);
  file.write("?ew ");
  file.write("text");
  file.write_at(0, "n");
  file.write_at(4, "T");
  file.finish();
  EXPECT_EQ(read_file(path), "new Text");
  EXPECT_THAT(list_directory(folder.path()), ElementsAre("a"));
}

TEST(AtomicFileTest, TwoAtOnceDoNotWriteIntoEachOther) {
  const test::TemporaryDirectory folder;
  AtomicFile a(folder.file("x"));
  AtomicFile b(folder.file("x"));
  a.write("from a, long");
  b.write("b");
  a.finish();
  EXPECT_EQ(read_file(folder.file("x")), "from a, long");
  b.finish();
  EXPECT_EQ(read_file(folder.file("x")), "b");
}

TEST(AtomicFileTest, ReplacesALinkAndLeavesWhatItPointsTo) {
  const test::TemporaryDirectory folder;
  const std::string secret = folder.write("secret", "kept");
  std::filesystem::create_symlink(secret, folder.file("x"));
  write_file_atomic(folder.file("x"), "mine");
  EXPECT_EQ(read_file(secret), "kept");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.file("x")));
}

TEST(AtomicFileTest, SaysWhyItCannotBeWritten) {
  EXPECT_EQ(error_of<InputError>([] { AtomicFile("/nowhere/x"); }),
            "cannot write /nowhere/x: No such file or directory");
  const test::TemporaryDirectory folder;
  create_directories(folder.file("x/y"));
  EXPECT_EQ(error_of<InputError>([&] { write_file_atomic(folder.file("x"), "z"); }),
            cat("cannot write ", folder.file("x"), ": Is a directory"));
  EXPECT_THAT(list_directory(folder.path()), ElementsAre("x"));
}

TEST(DataFileTest, ReadsPiecesAndNoMoreThanThereIs) {
  const test::TemporaryDirectory folder;
  const DataFile file(folder.write("x", "0123456789"));
  EXPECT_EQ(file.read(2, 3), "234");
  EXPECT_EQ(file.read(8, 100), "89");
  EXPECT_EQ(file.read(100, 1), "");
  EXPECT_EQ(error_of<InputError>([&] { DataFile directory(folder.path()); }),
            cat("cannot read ", folder.path(), ": Is a directory"));
}

TEST(DataFileTest, APipeIsRefusedWithoutWaitingForItsWriter) {
  const test::TemporaryDirectory folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(test::error_of<InputError>([&] { const DataFile file(pipe); }),
              testing::StartsWith(cat("cannot read ", pipe, ": it is a pipe")));
}

TEST(SimilarPathTest, NamesANeighbourOfASimilarName) {
  const test::TemporaryDirectory folder;
  folder.write("rows.jsonl", "");
  folder.write("other.jsonl", "");
  EXPECT_EQ(similar_path_hint(folder.file("row.jsonl")),
            "; did you mean '" + folder.file("rows.jsonl") + "'?");
  EXPECT_EQ(similar_path_hint(folder.file("row.jsonl/")),
            "; did you mean '" + folder.file("rows.jsonl") + "'?");
  EXPECT_EQ(similar_path_hint(folder.file("validation.csv")), "");
  EXPECT_EQ(similar_path_hint(folder.file("nowhere/rows.jsonl")), "");
  EXPECT_EQ(similar_path_hint(""), "");
}

}  // namespace
}  // namespace automodel
