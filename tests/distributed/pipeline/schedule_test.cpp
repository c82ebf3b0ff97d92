#include "distributed/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "distributed/pipeline/schedule_csv.h"
#include "support/errors.h"
#include "support/program.h"

namespace automodel::distributed {
namespace {

using test::error_of;

std::string texts_of(const std::vector<PipelineAction>& actions) {
  std::vector<std::string> texts;
  for (const PipelineAction& action : actions) texts.push_back(action.text());
  return join(texts, " ");
}

TEST(PipelineScheduleTest, ActionsAreTorchsForEveryScheduleAndShape) {
  const std::string file = test::source_file("tests/golden/pipeline/schedules.jsonl");
  int num_rows = 0;
  for (const std::string& line : split(read_file(file), '\n')) {
    if (line.empty()) continue;
    const Json row = Json::parse(line, file);
    const ScheduleKind kind = get_schedule_class(row.at("schedule").as_string());
    const ScheduleShape shape{static_cast<int>(row.at("ranks").as_int()),
                              static_cast<int>(row.at("stages_per_rank").as_int()),
                              static_cast<int>(row.at("microbatches").as_int())};
    ASSERT_EQ(schedule_finding(kind, shape), "") << line;
    const PipelineSchedule schedule = make_schedule(kind, shape);
    const Json::Array& wanted = row.at("actions").as_array();
    ASSERT_EQ(schedule.actions.size(), wanted.size());
    for (size_t rank = 0; rank < wanted.size(); ++rank) {
      EXPECT_EQ(texts_of(schedule.actions[rank]), wanted[rank].as_string())
          << schedule_name(kind) << ", rank " << rank << " of " << shape.num_ranks << ", "
          << shape.stages_per_rank << " stages, " << shape.num_microbatches << " microbatches";
    }
    num_rows += 1;
  }
  EXPECT_EQ(num_rows, 385);
}

TEST(PipelineScheduleTest, NamesAreTorchsWhateverTheirCase) {
  EXPECT_EQ(get_schedule_class("1f1b"), ScheduleKind::k1F1B);
  EXPECT_EQ(get_schedule_class("GPIPE"), ScheduleKind::kGPipe);
  EXPECT_EQ(get_schedule_class("interleaved1f1b"), ScheduleKind::kInterleaved1F1B);
  EXPECT_EQ(get_schedule_class("LoopedBFS"), ScheduleKind::kLoopedBFS);
  EXPECT_EQ(get_schedule_class("interleavedZeroBubble"), ScheduleKind::kInterleavedZeroBubble);
  EXPECT_EQ(get_schedule_class("zbvzerobubble"), ScheduleKind::kZBVZeroBubble);
}

TEST(PipelineScheduleTest, OtherNamesAreRefused) {
  EXPECT_EQ(error_of<UserError>([] { get_schedule_class("interleaved_1f1b"); }),
            "Unknown schedule name 'interleaved_1f1b'. The valid options are 1F1B, "
            "Interleaved1F1B, GPipe, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble; did you mean "
            "'Interleaved1F1B'?");
  EXPECT_EQ(error_of<UserError>([] { get_schedule_class("dfs"); }),
            "Unknown schedule name 'dfs'. The valid options are 1F1B, Interleaved1F1B, GPipe, "
            "LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble");
  EXPECT_EQ(error_of<UserError>([] { get_schedule_class("PipelineScheduleMulti"); }),
            "'PipelineScheduleMulti' is the base of schedules, not one that can run");
  EXPECT_EQ(error_of<UnsupportedError>([] { get_schedule_class("DualPipeV"); }),
            "DualPipeV, which overlaps forwards with backwards, is not in this version; "
            "ZBVZeroBubble places stages in the same way");
}

TEST(PipelineScheduleTest, ShapesThatTorchRefusesAreRefusedInItsWords) {
  EXPECT_EQ(
      schedule_finding(ScheduleKind::k1F1B, {4, 1, 3}),
      "Number of microbatches (3) must be greater than or equal to the number of stages (4).");
  EXPECT_EQ(schedule_finding(ScheduleKind::kInterleaved1F1B, {4, 2, 9}),
            "Interleaved 1F1B requires the number of microbatches to be a multiple of the number "
            "of rounds (2), but got 9.");
  EXPECT_EQ(schedule_finding(ScheduleKind::kInterleavedZeroBubble, {4, 2, 9}),
            "Zero bubble requires the number of microbatches to be a multiple of the number of "
            "rounds (2), but got 9.");
  EXPECT_EQ(schedule_finding(ScheduleKind::kZBVZeroBubble, {4, 3, 8}),
            "ZBV requires exactly 2 stages per rank, but got 3.");
  EXPECT_EQ(schedule_finding(ScheduleKind::kInterleaved1F1B, {4, 2, 3}), "");
}

TEST(PipelineScheduleTest, StagesLieInALoopOrAV) {
  EXPECT_EQ(place_stages(ScheduleKind::kInterleaved1F1B, {2, 3, 1}),
            (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(place_stages(ScheduleKind::kZBVZeroBubble, {3, 2, 1}),
            (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

constexpr const char* kTwoRanks =
    "0F0,0F1,,0B0,0B1\n"
    ",1F0,1I0,1F1,1B1,1W0\n";

TEST(ScheduleCsvTest, ATextIsReadInTorchsForm) {
  const PipelineSchedule schedule = parse_schedule_csv(kTwoRanks, "a.csv", {2, 1, 2});
  EXPECT_EQ(texts_of(schedule.actions[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(texts_of(schedule.actions[1]), "1F0 1I0 1F1 1B1 1W0");
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(count_csv_stages(kTwoRanks), 2);
}

TEST(ScheduleCsvTest, AFileMayEndItsLinesAsPythonDoes) {
  const std::string text = replace_all(kTwoRanks, "\n", "\r\n");
  const PipelineSchedule schedule = parse_schedule_csv(text, "a.csv", {2, 1, 2});
  EXPECT_EQ(texts_of(schedule.actions[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(texts_of(schedule.actions[1]), "1F0 1I0 1F1 1B1 1W0");
}

std::string csv_error(const std::string& text, const ScheduleShape& shape) {
  return error_of<UserError>([&] { parse_schedule_csv(text, "a.csv", shape); });
}

TEST(ScheduleCsvTest, ACellThatIsNoComputationIsNamed) {
  const std::string form =
      "' is no action of the compute-only form: stage, then F, B, I or W, then micro-batch, as in "
      "2F0";
  EXPECT_EQ(csv_error("0F0,0SEND_F0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: row 1, cell 2: '0SEND_F0" + form);
  EXPECT_EQ(csv_error("0F0,0B0\n1F0,1B\n", {2, 1, 1}), "a.csv: row 2, cell 2: '1B" + form);
  EXPECT_EQ(csv_error("0F99999999999999999999\n", {1, 1, 1}),
            "a.csv: row 1, cell 1: '0F99999999999999999999" + form);
}

TEST(ScheduleCsvTest, AnIncompleteScheduleIsRefusedInTorchsWords) {
  EXPECT_EQ(csv_error("0F0,0B0\n", {2, 1, 1}),
            "a.csv: Schedule has incorrect number of ranks - expected 2, actual 1");
  EXPECT_EQ(csv_error("0B0,0F0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: Rank 0, step 0: Running Full Backward for stage 0, microbatch 0 without first "
            "running Forward");
  EXPECT_EQ(
      csv_error("0F0,0I0,0W0\n1F0,1W0\n", {2, 1, 1}),
      "a.csv: Rank 1, step 1: Running Backward Weight for stage 1, microbatch 0 without first "
      "running Backward Input");
  EXPECT_EQ(csv_error("\n0F0,1F0,1B0,0B0\n", {2, 1, 1}), "a.csv: Rank 0: it has no stage");
  EXPECT_EQ(csv_error("0F0,0B0\n1F0,1B0,0F1\n", {2, 1, 2}),
            "a.csv: Rank 1, step 2: Stage 0 is assigned to both rank 1 and rank 0");
  EXPECT_EQ(csv_error("0F0,0B0\n1F0,1B0\n", {2, 1, 2}),
            "a.csv: Got 1 F microbatches for stage 0, expected 2");
  EXPECT_EQ(csv_error("0F0,0I0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: Invalid backward microbatches for stage 0: I and W must have equal counts, but "
            "got B=0, I=1, W=0");
  EXPECT_EQ(csv_error("0F0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: Invalid backward microbatches for stage 0: expected 1 total backwards, but got "
            "B=0, I=0, W=0");
  EXPECT_EQ(csv_error("0F0,0F0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: Rank 0, step 1: 0F0 is there twice");
  EXPECT_EQ(csv_error("0F0,2B0\n1F0,1B0\n", {2, 1, 1}),
            "a.csv: Rank 0, step 1: 2B0 is of a stage that there is not: the stages are 0 to 1");
}

}  // namespace
}  // namespace automodel::distributed
