// What a rank learns of ranks on other hosts.
#include <gtest/gtest.h>

#include <thread>

#include "comm/network/gloo_backend.h"
#include "comm/network/local_address.h"
#include "comm/ranks.h"
#include "comm/store/tcp_store.h"
#include "comm/watch/failure_watch.h"
#include "core/process.h"
#include "support/errors.h"

namespace automodel::comm {
namespace {

TEST(LocalAddressTest, IsThatOfTheWay) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
}

TEST(GlooDevicesTest, SaysWhichInterfacesThereAre) {
  const std::string text =
      test::error_of<UserError>([] { open_gloo_devices({.interfaces = "lo,no_such0"}); });
  EXPECT_TRUE(text.starts_with(cat("GLOO_SOCKET_IFNAME names 'no_such0', and ", host_name(),
                                   " has no such network interface with an address; it has ")))
      << text;
  EXPECT_EQ(open_gloo_devices({.interfaces = "lo"}).size(), 1);
}

TEST(RankProcessTest, MachinesOfOneNameAreToldApart) {
  const RankProcess here = RankProcess::current();
  const std::string boot = std::string(trim(read_file("/proc/sys/kernel/random/boot_id")));
  EXPECT_TRUE(here.host.ends_with(boot)) << here.host;
  const RankProcess read = RankProcess::parse(here.text());
  EXPECT_EQ(read.host, here.host);
  EXPECT_EQ(read.pid, here.pid);
}

/// A rank of a host that is cut off: its beats end, and its process cannot be looked at.
TEST(NeighbourTest, IsLostWhenItsBeatsEnd) {
  WorldOptions place{.size = 2, .port = free_port(), .hosts_store = true, .secret = "a"};
  TcpStore store(place);
  const std::string other_beat = "beat/1";
  store.set(other_beat, "first");
  WatchOptions options;
  options.beat_seconds = 0.05;
  options.lost_seconds = 0.5;
  const std::vector<RankProcess> processes = {RankProcess::current(), {"elsewhere", 17}};
  FailureWatch watch(store.connect_again(), processes, options);
  const WatchedGroup group{"world", {0, 1}, 60};
  const double begin = monotonic_seconds();
  for (int i = 0; monotonic_seconds() < begin + 1.0; ++i) {
    store.set(other_beat, cat("beat ", i));
    EXPECT_FALSE(watch.has_lost_peer(group));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const double last = monotonic_seconds();
  while (!watch.has_lost_peer(group) && monotonic_seconds() < last + 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(monotonic_seconds(), last + options.lost_seconds - 0.1);
  EXPECT_EQ(watch.failure(), "rank 1 vanished (no sign of life for 0.5 s)");
}

}  // namespace
}  // namespace automodel::comm
