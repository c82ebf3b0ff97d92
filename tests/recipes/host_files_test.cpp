// Files that must be the same on all hosts.
#include "recipes/run/host_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "comm/ranks.h"
#include "core/error.h"
#include "core/file.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

using Texts = std::vector<std::string>;

Texts errors_where(const std::function<std::vector<SharedFile>(int rank)>& files_of) {
  return comm::run_ranks(2,
                         [&](comm::World& world) {
                           check_same_files(world.group(), files_of(world.group().rank()));
                         })
      .errors;
}

TEST(HostFilesTest, TheFirstFileThatDiffersIsNamedOnEveryRank) {
  const SharedFile a{"data file a.jsonl", 10, "0a"};
  const SharedFile b{"data file b.jsonl", 20, "0b"};
  const SharedFile other{"data file b.jsonl", 20, "0c"};
  EXPECT_EQ(errors_where([&](int) { return std::vector{a, b}; }), Texts(2));
  EXPECT_EQ(errors_where([&](int rank) {
              return std::vector{a, rank == 0 ? b : other};
            }),
            Texts(2,
                  "rank 1 has data file b.jsonl, 20 bytes, 0c, and rank 0 has data file b.jsonl, "
                  "20 bytes, 0b: every host needs the same files"));
  EXPECT_EQ(errors_where([&](int rank) {
              return rank == 0 ? std::vector{a, b} : std::vector{a};
            }),
            Texts(2,
                  "rank 1 has no further file, and rank 0 has data file b.jsonl, 20 bytes, 0b: "
                  "every host needs the same files"));
}

TEST(HostFilesTest, WeightsAreComparedByTheirBytes) {
  const test::TemporaryDirectory folder;
  const std::string copy = folder.file("copy");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), copy);
  const auto before = weight_files(copy);
  ASSERT_EQ(before.size(), 1);
  EXPECT_EQ(before[0].name, "weight file model.safetensors");
  EXPECT_EQ(before[0].num_bytes, std::filesystem::file_size(copy + "/model.safetensors"));
  std::string bytes = read_file(copy + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(copy + "/model.safetensors", bytes);
  EXPECT_NE(weight_files(copy)[0].checksum, before[0].checksum);
}

TEST(HostFilesTest, ADatasetsFilesAreThoseOfItsPosition) {
  const Json state = Json::parse(
      R"({"files": [{"path": "/a/b.jsonl", "bytes": 7, "modified_ns": 1, "xxh3": "0f"}]})", "");
  const auto files = data_files(state);
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(files[0].name, "data file b.jsonl");
  EXPECT_EQ(files[0].num_bytes, 7);
  EXPECT_EQ(files[0].checksum, "0f");
  EXPECT_TRUE(data_files(Json::object()).empty());
}

}  // namespace
}  // namespace automodel::recipes
