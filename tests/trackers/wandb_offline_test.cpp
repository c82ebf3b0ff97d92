// Files of runs that are offline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/file.h"
#include "event_reader.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "trackers/record_file.h"
#include "trackers/wandb_file.h"
#include "wandb_fixture.h"

namespace automodel::trackers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Outcome = Delivery::Outcome;

/// A record of a file, as the wandb package's messages number their fields.
struct Offline {
  std::vector<int> kinds;
  std::vector<std::string> rows;  // "STEP {name: value}"
  std::map<std::string, std::string> summary, config;
  std::map<int, std::string> run;
  std::vector<std::string> tags;
  bool resumes = false;
  int64_t exit_code = -1;
};

Offline read_offline(const std::string& path) {
  Offline file;
  int64_t number = 0;
  for (const std::string& bytes : read_wandb_file(path)) {
    const auto record = test::read_fields(bytes);
    EXPECT_EQ(record.find(1)->second.value, static_cast<uint64_t>(++number));
    const auto& [kind, content] = *std::next(record.begin());
    file.kinds.push_back(kind);
    const auto fields = test::read_fields(content.bytes);
    const auto values_at = [&](int field, int name_field) {
      std::map<std::string, std::string> values;
      for (auto [item, end] = fields.equal_range(field); item != end; ++item) {
        const auto parts = test::read_fields(item->second.bytes);
        values[std::string(parts.find(name_field)->second.bytes)] = parts.find(16)->second.bytes;
      }
      return values;
    };
    if (kind == 2) {
      const auto step = test::read_fields(fields.find(2)->second.bytes);
      Json row = Json::object();
      for (const auto& [name, value] : values_at(1, 2)) row[name] = Json::parse(value, name);
      EXPECT_EQ(row.at("_step").as_int(),
                step.empty() ? 0 : static_cast<int64_t>(step.find(1)->second.value));
      file.rows.push_back(text_of_row(row));
    } else if (kind == 3) {
      file.summary = values_at(1, 2);
    } else if (kind == 17) {
      for (const auto& [field, value] : fields) {
        if (field == 10) {
          file.tags.emplace_back(value.bytes);
        } else if (field == 4) {
          const auto items = test::read_fields(value.bytes);
          for (const auto& [one, item] : items) {
            const auto parts = test::read_fields(item.bytes);
            file.config[std::string(parts.find(1)->second.bytes)] = parts.find(16)->second.bytes;
          }
        } else if (field == 24) {
          file.resumes = value.value != 0;
        } else {
          file.run[field] = value.bytes;
        }
      }
    } else if (kind == 18) {
      file.exit_code = 0;
      if (const auto code = fields.find(1); code != fields.end()) {
        file.exit_code = static_cast<int64_t>(code->second.value);
      }
    }
  }
  return file;
}

class OfflineWandbTest : public WandbTest {
 protected:
  /// The files of the starts of runs, in order.
  std::vector<std::string> files() const {
    return matching_paths(folder_.file("wandb/offline-run-*-*/run-*.wandb"));
  }
};

TEST_F(OfflineWandbTest, AFileHoldsTheRun) {
  run_.settings.entity = "a team";
  run_.settings.group = "a group";
  run_.settings.notes = "why";
  run_.settings.job_type = "train";
  run_.settings.tags = {"a", "b"};
  const auto tracker = offline();
  tracker->deliver(
      Records{record(1), record(R"({"step": 1, "val_loss": Infinity})", "default"), record(3)});
  EXPECT_EQ(tracker->finish(RunEnd::kStopped).outcome, Outcome::kDone);
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_THAT(files()[0], testing::MatchesRegex(cat(".*/wandb/offline-run-[0-9]*_[0-9]*-",
                                                    kept_id(), "/run-", kept_id(), ".wandb")));
  const Offline file = read_offline(files()[0]);
  EXPECT_THAT(file.kinds, ElementsAre(21, 17, 2, 3, 2, 3, 23, 18));
  EXPECT_EQ(file.run.at(1), kept_id());
  EXPECT_EQ(file.run.at(2), "a team");
  EXPECT_EQ(file.run.at(3), "a project");
  EXPECT_EQ(file.run.at(6), "a group");
  EXPECT_EQ(file.run.at(7), "train");
  EXPECT_EQ(file.run.at(8), "org_model");
  EXPECT_EQ(file.run.at(9), "why");
  EXPECT_NE(file.run.at(13), "");
  EXPECT_THAT(file.tags, ElementsAre("a", "b"));
  EXPECT_EQ(file.config.at("optimizer"), R"({"lr": 0.001, "eps": "Infinity"})");
  EXPECT_FALSE(file.resumes);
  EXPECT_THAT(file.rows, ElementsAre(R"({"_step": 1, "loss": 1.5, "val_loss": Infinity})",
                                     R"({"_step": 3, "loss": 3.5})"));
  EXPECT_EQ(file.summary.at("loss"), "3.5");
  EXPECT_EQ(file.summary.at("val_loss"), "Infinity");
  EXPECT_EQ(file.exit_code, 75);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(OfflineWandbTest, AContinuedRunGoesOnBehindItsRows) {
  {
    const auto first = offline();
    first->deliver(Records{record(1), record(2), record(3)});  // and is killed: 3 may have had more
  }
  run_.is_resumed = true;
  run_.earlier = [&](int64_t last_step) {
    EXPECT_EQ(last_step, 2);
    return Records{record(R"({"step": 3, "loss": 3.5})")};
  };
  const auto second = offline();
  EXPECT_EQ(second->start().problem, "");
  second->deliver(Records{record(4)});
  second->finish(RunEnd::kFinished);
  ASSERT_THAT(files(), SizeIs(2));
  EXPECT_THAT(read_offline(files()[0]).rows, SizeIs(2));
  const Offline file = read_offline(files()[1]);
  EXPECT_TRUE(file.resumes);
  EXPECT_EQ(file.run.at(1), kept_id());
  EXPECT_THAT(file.rows,
              ElementsAre(R"({"_step": 3, "loss": 3.5})", R"({"_step": 4, "loss": 4.5})"));
  EXPECT_EQ(file.exit_code, 0);
  run_.settings.resume = WandbResume::kNever;
  offline();
  ASSERT_THAT(files(), SizeIs(3));
  const auto of_new_run =
      matching_paths(folder_.file(cat("wandb/*-", kept_id(), "/run-", kept_id(), ".wandb")));
  ASSERT_THAT(of_new_run, SizeIs(1));
  EXPECT_FALSE(read_offline(of_new_run[0]).resumes);
}

TEST_F(OfflineWandbTest, FilesThatCannotBeReadAreTold) {
  run_.settings.run_id = "mine";
  run_.settings.resume = WandbResume::kAllow;
  create_directories(folder_.file("wandb/offline-run-1-mine/run-mine.wandb"));
  const auto tracker = offline();
  tracker->deliver(Records{record(1)});
  EXPECT_EQ(tracker->finish(RunEnd::kFinished).problem, "");
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("run-mine.wandb: Is a directory")));
}

TEST_F(OfflineWandbTest, TheFolderIsTheRecipes) {
  run_.settings.dir = folder_.file("elsewhere");
  offline();
  EXPECT_THAT(matching_paths(folder_.file("elsewhere/wandb/*/*.wandb")), SizeIs(1));
  write_file_atomic(folder_.file("blocked"), "a file");
  run_.settings.dir = folder_.file("blocked");
  EXPECT_THAT(test::error_of<InputError>([&] { offline(); }), HasSubstr("blocked"));
}

TEST_F(OfflineWandbTest, AFullDiskLosesRecordsAndNoMore) {
  const auto tracker = offline();
  tracker->deliver(Records{record(1), record(2)});
  const uint64_t size = file_size(files()[0]);
  {
    const test::FileSizeLimit limit(size + 10);
    const Delivery refused = tracker->deliver(Records{record(3), record(4)});
    EXPECT_EQ(refused.outcome, Outcome::kRefused);
    EXPECT_EQ(refused.num_records, 2U);
    EXPECT_THAT(refused.problem, HasSubstr("cannot write " + files()[0]));
  }
  EXPECT_EQ(file_size(files()[0]), size);
  tracker->deliver(Records{record(5)});
  tracker->finish(RunEnd::kFinished);
  EXPECT_THAT(read_offline(files()[0]).rows,
              ElementsAre(R"({"_step": 1, "loss": 1.5})", R"({"_step": 4, "loss": 4.5})",
                          R"({"_step": 5, "loss": 5.5})"));
}

/// Checksums bit by bit, from their definition.
uint32_t slow_crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xEDB88320U : crc >> 1;
  }
  return ~crc;
}

TEST(WandbFileTest, RecordsAreFramedAsTheWandbPackageFramesThem) {
  const test::TemporaryDirectory folder;
  WandbFile file(folder.file("f"));
  file.append({"brain", ""});
  std::string expected(":W&B\xe1\xbe\x00", 7);
  for (const std::string_view record : {"brain", ""}) {
    const std::string checked = cat('\x01', record);
    expected += little_endian(slow_crc32(checked));
    expected += std::string({static_cast<char>(record.size()), '\0'}) + checked;
  }
  EXPECT_EQ(read_file(folder.file("f")), expected);
  EXPECT_THAT(test::error_of<InputError>([&] { WandbFile again(folder.file("f")); }),
              HasSubstr("it is there already"));
}

/// Where a block has no room for a piece's head the next record begins in the next block.
TEST(WandbFileTest, RecordsBeginAnywhereInABlock) {
  constexpr size_t kBlock = 32768, kHead = 7, kPieceHead = 7;
  const test::TemporaryDirectory folder;
  for (size_t left = 0; left <= 2 * kPieceHead; ++left) {
    const std::vector<std::string> records = {std::string(kBlock - kHead - kPieceHead - left, 'a'),
                                              "brain", std::string(40'000, 'b')};
    const std::string path = folder.file(cat(left));
    WandbFile file(path);
    file.append(records);
    EXPECT_EQ(read_wandb_file(path), records) << left;
    const size_t gap = left < kPieceHead ? left : 0;
    EXPECT_EQ(read_file(path).substr(kBlock - left, gap), std::string(gap, '\0')) << left;
  }
}

/// A record goes over the edges of blocks in pieces.
TEST(WandbFileTest, RecordsOfAllSizesComeBack) {
  const test::TemporaryDirectory folder;
  std::vector<std::string> records;
  for (const size_t size :
       {32768 - 7 - 7, 5, 32768 - 7 - 12 - 7, 100'000, 0, 32768 - 7, 65522, 1}) {
    records.emplace_back(size, static_cast<char>('a' + records.size()));
  }
  for (size_t size = 32720; size < 32775; ++size) records.emplace_back(size, 'z');
  WandbFile file(folder.file("f"));
  for (const std::string& record : records) file.append({record});
  EXPECT_EQ(read_wandb_file(folder.file("f")), records);
  // At once, and cut anywhere: whole records only.
  WandbFile other(folder.file("g"));
  other.append(records);
  const std::string bytes = read_file(folder.file("g"));
  EXPECT_EQ(bytes, read_file(folder.file("f")));
  for (const size_t size : {size_t{0}, size_t{6}, size_t{7}, size_t{12}, size_t{32767},
                            size_t{32768}, bytes.size() / 2, bytes.size() - 1}) {
    write_file_atomic(folder.file("cut"), bytes.substr(0, size));
    const auto read = read_wandb_file(folder.file("cut"));
    ASSERT_LT(read.size(), records.size());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), records.begin()));
  }
  std::string broken = bytes;
  broken[200'000] ^= 1;
  write_file_atomic(folder.file("broken"), broken);
  const auto read = read_wandb_file(folder.file("broken"));
  EXPECT_FALSE(read.empty());
  EXPECT_LT(read.size(), records.size());
}

}  // namespace
}  // namespace automodel::trackers
