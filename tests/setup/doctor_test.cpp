#include "setup/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "support/hub_server.h"
#include "support/temporary_directory.h"

namespace automodel::setup {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

/// Folders of a machine with 8 GiB free and the control groups of a container.
SystemFolders machine(const TemporaryDirectory& folder) {
  folder.write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  folder.write("proc/self/cgroup", "0::/job/step\n");
  folder.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  return {.proc = folder.file("proc"), .sys = folder.file("sys")};
}

TEST(DoctorTest, TheSmallestLimitOfAllGroupsCounts) {
  const TemporaryDirectory folder;
  const SystemFolders folders = machine(folder);
  EXPECT_EQ(memory_limit(folders), std::nullopt);
  EXPECT_EQ(core_limit(folders), std::nullopt);
  folder.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  folder.write("sys/fs/cgroup/job/memory.max", "3221225472\n");
  folder.write("sys/fs/cgroup/memory.max", "6442450944\n");
  folder.write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  folder.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(memory_limit(folders), 3221225472u);
  EXPECT_EQ(core_limit(folders), 1.5);
}

TEST(DoctorTest, GroupsOfVersion1AreReadToo) {
  const TemporaryDirectory folder;
  const SystemFolders folders = machine(folder);
  folder.write("proc/self/cgroup",
               "7:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  // In a container the group's own path is not there.
  folder.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  folder.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  folder.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(memory_limit(folders), 1073741824u);
  EXPECT_EQ(core_limit(folders), 4.0);
  folder.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(folders), std::nullopt);
}

/// containerd's groups have colons in their names.
TEST(DoctorTest, AGroupsPathMayHaveColons) {
  const TemporaryDirectory folder;
  const SystemFolders folders = machine(folder);
  folder.write("proc/self/cgroup", "0::/kube.slice:cri:1f\n");
  folder.write("sys/fs/cgroup/kube.slice:cri:1f/memory.max", "3221225472\n");
  EXPECT_EQ(memory_limit(folders), 3221225472u);
}

TEST(DoctorTest, MemoryIsWhatIsFreeWithinTheLimit) {
  const TemporaryDirectory folder;
  const SystemFolders folders = machine(folder);
  EXPECT_EQ(examine_memory(folders).verdict, Verdict::kOk);
  EXPECT_EQ(examine_memory(folders).fact, "8 GiB available of 16 GiB");
  folder.write("sys/fs/cgroup/memory.max", "1073741824\n");
  const Diagnosis small = examine_memory(folders);
  EXPECT_EQ(small.verdict, Verdict::kNote);
  EXPECT_EQ(small.fact, "8 GiB available of 16 GiB, limited to 1 GiB by the control group");
  EXPECT_THAT(small.advice, HasSubstr("--device-memory 1024MiB"));
  EXPECT_FALSE(small.forbids_training);
  folder.write("sys/fs/cgroup/memory.max", "104857600\n");
  const Diagnosis tiny = examine_memory(folders);
  EXPECT_EQ(tiny.verdict, Verdict::kProblem);
  EXPECT_TRUE(tiny.forbids_training);
}

TEST(DoctorTest, HugePagesThatAreOffAreANote) {
  const TemporaryDirectory folder;
  const SystemFolders folders = machine(folder);
  EXPECT_EQ(examine_huge_pages(folders).verdict, Verdict::kOk);
  folder.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(examine_huge_pages(folders).verdict, Verdict::kNote);
  EXPECT_EQ(examine_huge_pages(folders).fact, "transparent_hugepage is never");
}

TEST(DoctorTest, AKindThatTheCpuIsNotForbidsTraining) {
  EXPECT_EQ(examine_cpu("").fact.find("kernels for "), 0u);
  EXPECT_FALSE(examine_cpu("").forbids_training);
  EXPECT_EQ(examine_cpu("baseline").verdict, Verdict::kNote);
  const Diagnosis wrong = examine_cpu("avx9");
  EXPECT_TRUE(wrong.forbids_training);
  EXPECT_THAT(wrong.fact, HasSubstr("AUTOMODEL_CPU is 'avx9'; this CPU can be: baseline"));
}

TEST(DoctorTest, FewOpenFilesAreANoteAndVeryFewAProblem) {
  EXPECT_EQ(examine_open_files(1024, 4096).verdict, Verdict::kOk);
  EXPECT_THAT(examine_open_files(256, 4096).advice, HasSubstr("ulimit -n 4096"));
  EXPECT_EQ(examine_open_files(256, 512).verdict, Verdict::kNote);
  EXPECT_TRUE(examine_open_files(32, 32).forbids_training);
}

TEST(DoctorTest, ADiskIsThatOfTheNearestFolderThatExists) {
  const TemporaryDirectory folder;
  const Diagnosis there = examine_disk("disk", folder.path());
  const Diagnosis below = examine_disk("disk", folder.file("not/yet/there"));
  EXPECT_EQ(below.verdict, there.verdict);
  EXPECT_THAT(below.fact, HasSubstr(cat("free for ", folder.file("not/yet/there"))));
  EXPECT_EQ(examine_disk("disk", "/proc/none").verdict, Verdict::kProblem);
}

TEST(DoctorTest, AnInterfaceThatIsNotThereIsAProblemOfRunsOverMachines) {
  const Diagnosis wrong = examine_network("no_such0");
  EXPECT_EQ(wrong.verdict, Verdict::kProblem);
  EXPECT_FALSE(wrong.forbids_training);
  EXPECT_THAT(wrong.advice, HasSubstr("GLOO_SOCKET_IFNAME names 'no_such0'"));
  EXPECT_THAT(examine_network("lo").advice, testing::Not(HasSubstr("cannot meet")));
}

hub::Settings settings_for(const std::string& endpoint, const std::string& token) {
  hub::Settings settings;
  settings.endpoint = endpoint;
  settings.token = token;
  return settings;
}

TEST(DoctorTest, AHubThatIsDownIsANoteAndNobodyIsAskedWhenOffline) {
  const Diagnosis down = examine_hub(settings_for("http://127.0.0.1:1", ""), 5);
  EXPECT_EQ(down.verdict, Verdict::kNote);
  EXPECT_THAT(down.fact, HasSubstr("http://127.0.0.1:1 is out of reach: "));
  hub::Settings offline = settings_for("http://127.0.0.1:1", "");
  offline.is_offline = true;
  EXPECT_EQ(examine_hub(offline, 5).verdict, Verdict::kOk);
}

TEST(DoctorTest, AHubThatHangsIsNotWaitedForLongerThanAsked) {
  // Connections are made by the kernel; nobody answers on them.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 8), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string endpoint = cat("http://127.0.0.1:", ntohs(address.sin_port));
  const double begin = monotonic_seconds();
  const Diagnosis found = examine_hub(settings_for(endpoint, ""), 1);
  EXPECT_LT(monotonic_seconds() - begin, 10) << found.fact;
  EXPECT_EQ(found.verdict, Verdict::kNote);
  EXPECT_EQ(found.fact.find(cat(endpoint, " is out of reach: ")), 0u) << found.fact;
  ::close(fd);
}

TEST(DoctorTest, ATokenThatIsRefusedIsAProblem) {
  test::HubServer server;
  server.add_faults("/api/whoami-v2", {{.status = 401}, {.status = 503}, {.status = 404}});
  const hub::Settings settings = settings_for(server.endpoint(), "hf_wrong");
  const Diagnosis refused = examine_hub(settings, 5);
  EXPECT_EQ(refused.verdict, Verdict::kProblem);
  EXPECT_FALSE(refused.forbids_training);
  EXPECT_THAT(refused.fact, HasSubstr("refuses the token"));
  ASSERT_EQ(server.num_requests("/api/whoami-v2"), 1u);
  EXPECT_EQ(server.requests()[0].authorization, "Bearer hf_wrong");
  EXPECT_THAT(examine_hub(settings, 5).fact, HasSubstr("is out of reach: it answered 503"));
  EXPECT_THAT(examine_hub(settings, 5).fact, HasSubstr("answers /api/whoami-v2 with status 404"));
}

TEST(DoctorTest, LinesAndJsonSayTheSame) {
  const std::vector<Diagnosis> found = {
      {.part = "memory", .fact = "8 GiB"},
      {.part = "hub", .verdict = Verdict::kNote, .fact = "down", .advice = "wait"}};
  EXPECT_EQ(diagnoses_text(found),
            "ok       memory  8 GiB\n"
            "note     hub     down\n"
            "                 wait\n");
  const Json json = diagnoses_json(found);
  EXPECT_EQ(json.as_array()[1].at("verdict").as_string(), "note");
  EXPECT_EQ(json.as_array()[1].at("advice").as_string(), "wait");
}

}  // namespace
}  // namespace automodel::setup
