#include "datasets/rows/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kNoon = 1769860800LL * 1'000'000'000;

std::string error(const std::vector<DataFingerprint>& saved,
                  const std::vector<DataFingerprint>& now) {
  const Json json = Json::parse(fingerprints_to_json(saved).dump(), "saved");
  return error_of<InputError>([&] { check_fingerprints(json, now, false, nullptr); });
}

TEST(FingerprintTest, TheSameBytesAreTheSameDataWhereverTheyLie) {
  EXPECT_EQ(error({{"a.jsonl", {7, kNoon}, 17}}, {{"/b/c.jsonl", {7, 1}, 17}}), "no error");
}

TEST(FingerprintTest, OtherBytesAreAnErrorThatNamesTheFile) {
  EXPECT_EQ(
      error({{"a", {7, 1}, 17}, {"b", {7, kNoon}, 18}}, {{"a", {7, 1}, 17}, {"b", {9, 0}, 19}}),
      "b is not the data file that the checkpoint was made with: it has 9 bytes, written "
      "1970-01-01 00:00:00 UTC; the checkpoint's b had 7 bytes, written 2026-01-31 12:00:00 "
      "UTC; continue with the data that the checkpoint was made with, allow these "
      "(checkpoint.allow_changed_data: true), or begin anew in another "
      "checkpoint.checkpoint_dir");
}

TEST(FingerprintTest, AnotherSizeIsOtherDataWhateverTheSampledBlocksAre) {
  EXPECT_THAT(error({{"a.bin", {7, 1}, 17, true}}, {{"a.bin", {8, 1}, 17, true}}),
              StartsWith("a.bin is not the data file"));
}

/// What is said of a file whose blocks agree.
std::string warnings(const DataFingerprint& saved, const DataFingerprint& now) {
  class Warnings final : public Reporter {
   public:
    void info(std::string_view) override {}
    void warning(std::string_view text) override { all += text; }
    void error(std::string_view) override {}
    std::string all;
  } heard;
  check_fingerprints(Json::parse(fingerprints_to_json({saved}).dump(), "saved"), {now}, false,
                     &heard);
  return heard.all;
}

TEST(FingerprintTest, ASampledFileThatWasWrittenSinceIsTold) {
  EXPECT_EQ(warnings({"a.bin", {7, kNoon}, 17, true}, {"b.bin", {7, kNoon}, 17, true}), "");
  EXPECT_EQ(warnings({"a.bin", {7, 1}, 17}, {"a.bin", {7, kNoon}, 17}), "");
  EXPECT_THAT(
      warnings({"a.bin", {7, 1}, 17, true}, {"b.bin", {7, kNoon}, 17, true}),
      StartsWith("b.bin has been written since the checkpoint was made (it has 7 bytes, "
                 "written 2026-01-31 12:00:00 UTC; then it had 7 bytes, written 1970-01-01"));
}

TEST(FingerprintTest, FilesTooManyOrTooFewAreAnError) {
  EXPECT_THAT(error({{"a", {7, 1}, 17}}, {{"a", {7, 1}, 17}, {"b", {9, 0}, 19}}),
              StartsWith("the dataset has 2 data files, that of the checkpoint has 1; the first "
                         "that only one of them has is b; "));
  EXPECT_THAT(error({{"a", {7, 1}, 17}, {"b", {9, 0}, 19}}, {{"a", {7, 1}, 17}}),
              HasSubstr("has is b; "));
}

TEST(FingerprintTest, ADamagedRecordIsNoMatch) {
  EXPECT_THAT(error_of<InputError>([] {
                check_fingerprints(Json::parse("[{\"xxh3\": \"x\"}]", "x"), {{"a", {7, 1}, 17}},
                                   false, nullptr);
              }),
              StartsWith("a is not the data file"));
  EXPECT_EQ(
      error_of<InputError>([] { check_fingerprints(Json::parse("3", "x"), {}, false, nullptr); }),
      "the saved data position is damaged: files is no list");
}

}  // namespace
}  // namespace automodel::datasets
