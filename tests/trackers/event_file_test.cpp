#include "trackers/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "event_reader.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "trackers/crc32.h"

namespace automodel::trackers {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

/// RFC 3720, appendix B.4, and the check value of the polynomial.
TEST(EventFileTest, ChecksumsAreTheStandards) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);  // of IEEE 802.3
  EXPECT_EQ(crc32(""), 0U);
}

/// The bytes are those that TensorBoard's own writer makes of the text "brain".
TEST(EventFileTest, ARecordIsFramedAsTensorBoardFramesIt) {
  const std::string expected(
      "\x05\x00\x00\x00\x00\x00\x00\x00"
      "\xea\xb2\x04\x3e"
      "brain"
      "\x92\xd2\x79\xcb",
      21);
  EXPECT_EQ(framed_record("brain"), expected);
}

TEST(EventFileTest, RecordsAreReadBack) {
  const TemporaryDirectory folder;
  EventFile file(folder.file("a/b"));
  file.append("one");
  file.append("");
  file.append(std::string(100'000, 'x'));
  EXPECT_THAT(test::read_event_records(file.path()),
              ElementsAre("one", "", std::string(100'000, 'x')));
}

TEST(EventFileTest, AFileComesAfterThoseThatAreThere) {
  const TemporaryDirectory folder;
  folder.write("events.out.tfevents.4000000000.host.1.0", "");  // the clock was set back since
  folder.write("events.out.tfevents.x", "");
  const EventFile first(folder.path());
  const EventFile second(folder.path());
  EXPECT_THAT(first.path(), HasSubstr("/events.out.tfevents.4000000001."));
  EXPECT_THAT(second.path(), HasSubstr("/events.out.tfevents.4000000002."));
}

TEST(EventFileTest, AFolderThatCannotBeWrittenIsAnError) {
  const TemporaryDirectory folder;
  const std::string file = folder.write("file", "");
  EXPECT_THAT(test::error_of<InputError>([&] { EventFile events(file + "/logs"); }),
              HasSubstr(file));
}

/// A record of which only a part fits leaves nothing behind, and what is written later is read.
TEST(EventFileTest, ATornRecordIsCutOff) {
  const TemporaryDirectory folder;
  EventFile file(folder.path());
  file.append("whole");
  const std::string error = test::error_of<InputError>([&] {
    const test::FileSizeLimit limit(4096);
    file.append(std::string(10'000, 'x'));
  });
  EXPECT_EQ(error, cat("cannot write ", file.path(), ": File too large"));
  EXPECT_THAT(test::read_event_records(file.path()), ElementsAre("whole"));
  file.append("later");
  EXPECT_THAT(test::read_event_records(file.path()), ElementsAre("whole", "later"));
}

}  // namespace
}  // namespace automodel::trackers
