#include "launcher/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/text.h"
#include "launcher/local_ranks.h"

namespace automodel::launcher {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

/// `base` with other or further variables; those set to "unset" are left out.
Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "unset") {
      base.erase(name);
    } else {
      base[name] = value;
    }
  }
  return base;
}

RankPlace place_of(const Variables& variables) {
  const auto place = find_place(of(variables));
  if (!place) throw UserError("no place");
  return *place;
}

std::string error_of(const Variables& variables) {
  try {
    find_place(of(variables));
    return "no error";
  } catch (const UserError& error) {
    return error.what();
  }
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "1234"},
                             {"TORCHELASTIC_RUN_ID", "job7"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Variables kByHand = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}};

const Variables kSlurm = {{"SLURM_JOB_ID", "815"},
                          {"SLURM_STEP_ID", "3"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_JOB_NODELIST", "gpu[05-09]"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "prterun-host-4711@1"}};

const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

TEST(EnvironmentTest, NothingSetMeansStartedByHand) {
  EXPECT_FALSE(find_place(of({})));
}

TEST(TorchrunTest, GivesPlaceAndStore) {
  const RankPlace place = place_of(kTorchrun);
  EXPECT_EQ(place.source, "torchrun");
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.host, "node1");
  EXPECT_EQ(place.port, 1234);
  EXPECT_TRUE(place.store_is_served);
  EXPECT_EQ(place.network_interface, "");
}

TEST(TorchrunTest, RankZeroServesTheStoreUnlessTheAgentDoes) {
  EXPECT_FALSE(
      place_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).store_is_served);
  EXPECT_FALSE(place_of(kByHand).store_is_served);
}

TEST(TorchrunTest, TheRunIdChangesWithEveryRestart) {
  EXPECT_EQ(place_of(kTorchrun).run_id, "job7.2");
  EXPECT_EQ(place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).run_id, "job7.3");
  EXPECT_EQ(place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "unset"}})).run_id, "job7.0");
}

TEST(TorchrunTest, RanksOnTheLoopbackShareTheHost) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const RankPlace place = place_of(with(kByHand, {{"MASTER_ADDR", host}}));
    EXPECT_EQ(place.local_world_size, 2) << host;
    EXPECT_EQ(place.local_rank, 1) << host;
  }
  EXPECT_EQ(place_of(with(kByHand, {{"MASTER_ADDR", "node1"}})).local_world_size, 1);
}

TEST(TorchrunTest, AWorldOfOneCountsOnlyUnderTorchrun) {
  const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_FALSE(find_place(of(one)));
  const RankPlace place = place_of(with(one, {{"TORCHELASTIC_RUN_ID", "x"}}));
  EXPECT_EQ(place.world_size, 1);
}

TEST(TorchrunTest, NamesTheMissingVariable) {
  const auto without = [](const char* name) {
    return error_of(with(kTorchrun, {{name, "unset"}}));
  };
  EXPECT_EQ(without("RANK"), "the environment is torchrun's but RANK is not set");
  EXPECT_EQ(without("WORLD_SIZE"), "the environment is torchrun's but WORLD_SIZE is not set");
  EXPECT_EQ(without("MASTER_ADDR"), "the environment is torchrun's but MASTER_ADDR is not set");
  EXPECT_EQ(without("MASTER_PORT"), "the environment is torchrun's but MASTER_PORT is not set");
  EXPECT_EQ(error_of(with(kTorchrun, {{"MASTER_ADDR", ""}})),
            "the environment is torchrun's but MASTER_ADDR is not set");
}

TEST(TorchrunTest, RefusesWhatIsNoNumber) {
  EXPECT_EQ(error_of(with(kTorchrun, {{"RANK", "one"}})),
            "RANK must be a whole number from 0, found 'one'");
  EXPECT_EQ(error_of(with(kTorchrun, {{"WORLD_SIZE", "4294967300"}})),
            "WORLD_SIZE must be a whole number from 0, found '4294967300'");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_RANK", "-1"}})),
            "LOCAL_RANK must be a whole number from 0, found '-1'");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}})),
            "LOCAL_WORLD_SIZE must be a whole number from 0, found ''");
  for (const char* port : {"0", "65536", "http", ""}) {
    EXPECT_EQ(error_of(with(kByHand, {{"MASTER_PORT", port}})),
              std::string(port).empty()
                  ? "the environment is torchrun's but MASTER_PORT is not set"
                  : cat("MASTER_PORT must be a port from 1 to 65535, found '", port, "'"));
  }
}

TEST(TorchrunTest, NamesContradictions) {
  EXPECT_EQ(error_of(with(kTorchrun, {{"RANK", "4"}})), "RANK 4 is not below WORLD_SIZE 4");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
            "LOCAL_RANK 2 is not below LOCAL_WORLD_SIZE 2");
  EXPECT_EQ(error_of(with(kByHand, {{"LOCAL_RANK", "2"}})),
            "LOCAL_RANK 2 is not below WORLD_SIZE 2");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}})),
            "LOCAL_WORLD_SIZE 8 does not fit WORLD_SIZE 4");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "0"}})),
            "LOCAL_WORLD_SIZE 0 does not fit WORLD_SIZE 4");
}

TEST(TorchrunTest, NamesTheNetworkInterface) {
  EXPECT_EQ(place_of(with(kTorchrun, {{"GLOO_SOCKET_IFNAME", "eth1"}})).network_interface, "eth1");
}

TEST(TorchrunTest, GoesBeforeTheSchedulerItRunsUnder) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(place_of(both).source, "torchrun");
}

TEST(SlurmTest, GivesPlaceHostAndRunId) {
  const RankPlace place = place_of(kSlurm);
  EXPECT_EQ(place.source, "SLURM");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world_size, 7);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 3);
  EXPECT_EQ(place.host, "gpu07");
  EXPECT_EQ(place.run_id, "815.3");
  EXPECT_FALSE(place.store_is_served);
}

TEST(SlurmTest, TakesTheJobsNodesWithoutTheSteps) {
  EXPECT_EQ(place_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "unset"}})).host, "gpu05");
  EXPECT_EQ(
      error_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "unset"}, {"SLURM_JOB_NODELIST", "unset"}})),
      "started by srun but SLURM_JOB_NODELIST is not set");
}

TEST(SlurmTest, ThePortFollowsFromTheStep) {
  const int port = place_of(kSlurm).port;
  EXPECT_EQ(place_of(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).port, port);
  EXPECT_NE(place_of(with(kSlurm, {{"SLURM_STEP_ID", "4"}})).port, port);
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 30000);
}

TEST(SlurmTest, MasterVariablesGoFirst) {
  const RankPlace place =
      place_of(with(kSlurm, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4242"}}));
  EXPECT_EQ(place.host, "10.0.0.7");
  EXPECT_EQ(place.port, 4242);
  EXPECT_EQ(error_of(with(kSlurm, {{"MASTER_PORT", "x"}})),
            "MASTER_PORT must be a port from 1 to 65535, found 'x'");
}

TEST(SlurmTest, ASmallerStepIgnoresTheBatchScriptsTasksPerNode) {
  const RankPlace place = place_of(
      with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "unset"}, {"SLURM_NTASKS_PER_NODE", "8"}}));
  EXPECT_EQ(place.world_size, 7);
  EXPECT_EQ(place.local_world_size, 7);
}

TEST(SlurmTest, AShellInAnAllocationIsNoTask) {
  EXPECT_FALSE(find_place(of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "2"}})));
  // sbatch's script, which has a rank but no step
  EXPECT_FALSE(find_place(of(with(kSlurm, {{"SLURM_STEP_ID", "unset"}, {"SLURM_PROCID", "0"}}))));
  // salloc's interactive step
  EXPECT_FALSE(find_place(of(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}}))));
  // srun --pty bash inside an allocation of seven tasks
  EXPECT_FALSE(find_place(of(with(
      kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}))));
}

TEST(SlurmTest, VariablesThatAreNoNumbersAreNamed) {
  EXPECT_EQ(error_of(with(kSlurm, {{"SLURM_STEP_ID", "abc"}})),
            "SLURM_STEP_ID must be a whole number from 0, found 'abc'");
  for (const char* text : {"2(x", "-7", "2(x0)", "many"}) {
    EXPECT_EQ(
        error_of(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", text}, {"SLURM_NODEID", "0"}})),
        cat("SLURM_STEP_TASKS_PER_NODE must be numbers of tasks such as 2(x3),1, with one for "
            "node 0, found '",
            text, "'"));
  }
}

TEST(SlurmTest, NamesMissingAndContradictingVariables) {
  EXPECT_EQ(error_of(with(kSlurm, {{"SLURM_NTASKS", "unset"}})),
            "the environment is SLURM's but SLURM_NTASKS is not set");
  EXPECT_EQ(error_of(with(kSlurm, {{"SLURM_PROCID", "7"}})),
            "SLURM_PROCID 7 is not below SLURM_NTASKS 7");
}

TEST(OpenMpiTest, RanksOfOneHostNeedNoMaster) {
  const RankPlace place = place_of(kOpenMpi);
  EXPECT_EQ(place.source, "MPI");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 2);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.host, "127.0.0.1");
  EXPECT_EQ(place.run_id, "prterun-host-4711@1");
  EXPECT_NE(place_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "another"}})).port, place.port);
}

TEST(OpenMpiTest, SeveralHostsNeedMasterAddr) {
  const Variables two_hosts =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(error_of(two_hosts),
            "started by mpirun on several hosts: set MASTER_ADDR to rank 0's host");
  EXPECT_EQ(place_of(with(two_hosts, {{"MASTER_ADDR", "node1"}})).host, "node1");
}

TEST(OpenMpiTest, NamesMissingAndContradictingVariables) {
  EXPECT_EQ(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "unset"}})),
            "the environment is MPI's but OMPI_COMM_WORLD_SIZE is not set");
  EXPECT_EQ(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}})),
            "OMPI_COMM_WORLD_LOCAL_SIZE 3 does not fit OMPI_COMM_WORLD_SIZE 2");
}

TEST(MpichTest, GivesPlace) {
  const RankPlace place = place_of(kMpich);
  EXPECT_EQ(place.source, "MPI");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.local_world_size, 2);
  EXPECT_EQ(place.host, "127.0.0.1");
}

TEST(MpichTest, TheRunIdIsNotTheRanksOwn) {
  // Hydra's PMI_ID is the rank.
  EXPECT_EQ(place_of(with(kMpich, {{"PMI_ID", "1"}})).run_id, "");
}

TEST(MpichTest, SrunsPmiGivesWayToSlurm) {
  EXPECT_EQ(place_of(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}})).source, "SLURM");
}

TEST(MpichTest, MpirunInsideAnAllocationGoesBeforeItsDaemonsTask) {
  Variables both = with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}});
  both.insert(kMpich.begin(), kMpich.end());
  EXPECT_EQ(place_of(both).source, "MPI");
}

TEST(FirstHostTest, ReadsSlurmsNodeLists) {
  const Variables hosts = {{"", ""},
                           {"single", "single"},
                           {"a[12]", "a12"},
                           {"node[003-006,9],login1", "node003"},
                           {"login1,node[1-2]", "login1"},
                           {"node[7,9]", "node7"},
                           {"node[1-2]-ib,login", "node1-ib"},
                           {"node[1-2],rack[3-4]", "node1"},
                           {"rack[1-2]n[3-4]", "rack1n3"},
                           {"broken[1", "broken1"}};
  for (const auto& [list, host] : hosts) EXPECT_EQ(first_host(list), host) << list;
}

TEST(TasksOnNodeTest, ReadsSlurmsCounts) {
  EXPECT_EQ(tasks_on_node("4", 0), 4);
  EXPECT_EQ(tasks_on_node("4(x2),3", 0), 4);
  EXPECT_EQ(tasks_on_node("4(x2),3", 1), 4);
  EXPECT_EQ(tasks_on_node("4(x2),3", 2), 3);
  EXPECT_EQ(tasks_on_node("4,3,2(x2)", 3), 2);
}

TEST(TasksOnNodeTest, RefusesWhatIsNoListOrTooShort) {
  for (const char* text : {"", "x", "4(x", "4(x)", "4(xa)", "4,,3"}) {
    EXPECT_EQ(tasks_on_node(text, 1), std::nullopt) << text;
  }
  EXPECT_EQ(tasks_on_node("4(x2)", 2), std::nullopt);
}

TEST(ThreadsPerRankTest, IsOmpNumThreads) {
  EXPECT_EQ(threads_per_rank(of({{"OMP_NUM_THREADS", "3"}}), 1), 3);
  EXPECT_EQ(threads_per_rank(of({{"OMP_NUM_THREADS", "3"}}), 64), 3);
}

TEST(ThreadsPerRankTest, DividesTheCores) {
  const int cores = num_usable_cores();
  EXPECT_EQ(threads_per_rank(of({}), 1), cores);
  EXPECT_EQ(threads_per_rank(of({}), 2), std::max(1, cores / 2));
  EXPECT_EQ(threads_per_rank(of({}), 100000), 1);
  for (const char* text : {"0", "-2", "many", ""}) {
    EXPECT_EQ(threads_per_rank(of({{"OMP_NUM_THREADS", text}}), 1), cores) << text;
  }
}

TEST(RunSecretTest, IsWhatTheEnvironmentSaysOrWhatARunsRanksHaveInCommon) {
  const std::string own = place_of(kTorchrun).secret;
  EXPECT_EQ(own, "torchrun job7.2 node1:1234");
  EXPECT_EQ(place_of(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).secret, own);
  EXPECT_NE(place_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "job8"}})).secret, own);
  EXPECT_NE(place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).secret, own);
  EXPECT_EQ(place_of(with(kTorchrun, {{"AUTOMODEL_RUN_SECRET", "s3cret"}})).secret, "s3cret");
}

TEST(RunSecretTest, OfARunThatIsStartedHereCannotBeGuessed) {
  const std::string secret = make_run_secret();
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_NE(secret, make_run_secret());
}

}  // namespace
}  // namespace automodel::launcher
