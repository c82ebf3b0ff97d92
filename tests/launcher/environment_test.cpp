#include "launcher/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace automodel::launcher {
namespace {

Environment of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

TEST(EnvironmentTest, NothingSetMeansStartedByHand) {
  EXPECT_FALSE(find_place(of({})));
}

TEST(EnvironmentTest, ReadsTorchrun) {
  const auto place = find_place(of({{"RANK", "3"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "node1"},
                                    {"MASTER_PORT", "1234"},
                                    {"TORCHELASTIC_RUN_ID", "x"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->world_size, 4);
  EXPECT_EQ(place->local_world_size, 2);
  EXPECT_EQ(place->host, "node1");
  EXPECT_EQ(place->port, 1234);
  EXPECT_TRUE(place->store_is_served);
}

TEST(EnvironmentTest, ReadsSlurmTasksButNotAShellInAnAllocation) {
  const std::map<std::string, std::string> task = {{"SLURM_PROCID", "1"},
                                                   {"SLURM_STEP_ID", "0"},
                                                   {"SLURM_NTASKS", "2"},
                                                   {"SLURM_LOCALID", "0"},
                                                   {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
  const auto place = find_place(of(task));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->host, "gpu07");
  EXPECT_EQ(place->rank, 1);
  EXPECT_FALSE(find_place(of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "2"}})));
}

TEST(EnvironmentTest, ReadsOpenMpiOnOneHost) {
  const auto place = find_place(of({{"OMPI_COMM_WORLD_RANK", "1"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->host, "127.0.0.1");
}

TEST(EnvironmentTest, NamesWhatIsMissingOrWrong) {
  const auto text = [](std::map<std::string, std::string> variables) -> std::string {
    try {
      find_place(of(std::move(variables)));
      return "";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(text({{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "0"}}),
            "the environment is torchrun's but WORLD_SIZE is not set");
  EXPECT_EQ(text({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}),
            "RANK 4 is not below WORLD_SIZE 4");
  EXPECT_EQ(text({{"RANK", "one"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}),
            "RANK must be a whole number from 0, found 'one'");
}

TEST(EnvironmentTest, FindsTheFirstHostOfANodeList) {
  EXPECT_EQ(first_host("node[003-006,9],login1"), "node003");
  EXPECT_EQ(first_host("login1,node[1-2]"), "login1");
  EXPECT_EQ(first_host("a[12]"), "a12");
  EXPECT_EQ(first_host("single"), "single");
}

}  // namespace
}  // namespace automodel::launcher
