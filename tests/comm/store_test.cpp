// The run's store, as its ranks use it, and as strangers who find its port do.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>

#include "comm/ranks.h"
#include "comm/store/store_client.h"
#include "comm/store/store_listener.h"
#include "comm/store/store_server.h"
#include "comm/store/tcp_store.h"
#include "core/clock.h"
#include "core/descriptor.h"
#include "support/errors.h"

namespace automodel::comm {
namespace {

using testing::HasSubstr;

/// A store on a free port of the loopback.
class Served final {
 public:
  explicit Served(const std::string& secret = "the run's")
      : port_(free_port()), server_(listen_for_store("127.0.0.1", port_, true).fd, secret) {}

  int port() const { return port_; }
  WorldOptions options(const std::string& secret = "the run's") const {
    WorldOptions options;
    options.port = port_;
    options.rank = 1;
    options.size = 2;
    options.secret = secret;
    options.timeout_seconds = 20;
    return options;
  }

 private:
  int port_;
  StoreServer server_;
};

TEST(StoreTest, KeepsWhatItIsGiven) {
  const Served served;
  TcpStore store(served.options());
  EXPECT_FALSE(store.has("a"));
  store.set("a", std::string("x\0y", 3));
  EXPECT_EQ(store.get("a", 0), std::string("x\0y", 3));
  store.set("a", "");
  EXPECT_EQ(store.get("a", 0), "");
  EXPECT_EQ(store.set_if_absent("first", "1"), "1");
  EXPECT_EQ(store.set_if_absent("first", "2"), "1");
  EXPECT_EQ(store.get("first", 0), "1");
  EXPECT_EQ(store.add("n", 3), 3);
  EXPECT_EQ(store.add("n", -5), -2);
  EXPECT_EQ(store.get("nothing", 0.01), std::nullopt);
  store.erase("n");
  EXPECT_FALSE(store.has("n"));
  store.erase("n");
  const std::string large(5 << 20, 'z');
  store.set("large", large);
  EXPECT_EQ(store.connect_again()->get("large", 0), large);
}

TEST(StoreTest, GivesWhatC10dsClassesAskFor) {
  const Served served;
  StoreClient store({"127.0.0.1", served.port(), "the run's", 20});
  c10d::Store& as_store = store;
  as_store.set("a", std::string("1"));
  EXPECT_EQ(as_store.get_to_str("a"), "1");
  EXPECT_EQ(as_store.compareSet("a", "2", "3"), "1");
  EXPECT_EQ(as_store.compareSet("a", "1", "3"), "3");
  EXPECT_EQ(as_store.compareSet("b", "", "4"), "4");
  EXPECT_TRUE(store.check({"a", "b"}));
  EXPECT_FALSE(store.check({"a", "c"}));
  EXPECT_EQ(store.getNumKeys(), 2);
  EXPECT_TRUE(store.deleteKey("a"));
  EXPECT_FALSE(store.deleteKey("a"));
  EXPECT_THROW(store.wait({"b", "c"}, std::chrono::milliseconds(20)), c10::DistStoreError);
}

TEST(StoreTest, AWaitEndsWhenTheKeyComes) {
  const Served served;
  TcpStore store(served.options());
  std::optional<std::string> found;
  std::thread waiting([&, mine = store.connect_again()] { found = mine->get("late", 20); });
  store.set("early", "1");
  store.set("late", "2");
  waiting.join();
  EXPECT_EQ(found, "2");
}

TEST(StoreTest, AServerThatEndsIsNoticed) {
  auto served = std::make_unique<Served>();
  TcpStore store(served->options());
  served.reset();
  EXPECT_THROW(store.has("a"), StoreGone);
}

TEST(StoreTest, AfterALostAnswerNothingMoreIsAsked) {
  auto served = std::make_unique<Served>();
  TcpStore store(served->options());
  served.reset();
  const auto error = [&] { return test::error_of<StoreGone>([&] { store.add("a", 1); }); };
  EXPECT_EQ(error(), "the store has hung up");
  EXPECT_EQ(error(), "the store has hung up");
}

/// A listener that takes nobody more in: what is sent to it is dropped, as by a host that is off.
TEST(StoreTest, AHostThatDoesNotAnswerIsGivenAllTheTime) {
  const Descriptor full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(::bind(full.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  std::vector<Descriptor> guests;
  for (int i = 0; i < 4; ++i) {
    guests.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(guests.back().get(), reinterpret_cast<sockaddr*>(&at), size);
  }
  const double begin = monotonic_seconds();
  EXPECT_THROW(StoreClient({"127.0.0.1", ntohs(at.sin_port), "the run's", 2}),
               c10::DistNetworkError);
  const double seconds = monotonic_seconds() - begin;
  EXPECT_GT(seconds, 1.8);
  EXPECT_LT(seconds, 20);
}

TEST(StoreTest, WhoDoesNotKnowTheSecretIsRefused) {
  const Served served;
  EXPECT_THAT(test::error_of<UserError>([&] { TcpStore store(served.options("another")); }),
              HasSubstr("who answers does not know this run's secret: AUTOMODEL_RUN_SECRET is "
                        "another there or, where none is set, MASTER_ADDR is spelled otherwise"));
  TcpStore store(served.options());
  store.set("a", "1");
  EXPECT_EQ(store.get("a", 0), "1");
}

/// A socket that has nothing to do with us.
class Stranger final {
 public:
  explicit Stranger(int port, const char* address = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, address, &to.sin_addr);
    is_connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }

  bool is_connected() const { return is_connected_; }
  void say(const std::string& bytes) const {
    ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Says nothing more.
  void finish() const { ::shutdown(socket_.get(), SHUT_WR); }
  /// What comes until it is hung up on.
  std::string listen() const {
    std::string heard;
    std::array<char, 4096> bytes;
    while (true) {
      const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
      if (size <= 0) return heard;
      heard.append(bytes.data(), static_cast<size_t>(size));
    }
  }
  std::string hear(size_t count) const {
    std::string heard(count, '\0');
    const ssize_t size = ::recv(socket_.get(), heard.data(), count, MSG_WAITALL);
    heard.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return heard;
  }

 private:
  Descriptor socket_;
  bool is_connected_ = false;
};

std::string request(StoreOperation operation, const WireWriter& arguments) {
  return cat(std::string(1, static_cast<char>(operation)), size_bytes(arguments.bytes().size()),
             arguments.bytes());
}

TEST(StoreTest, AStrangerWhoGuessesIsHungUpOnAndChangesNothing) {
  const Served served;
  TcpStore store(served.options());
  store.set("a", "1");
  const std::string nonce(kNonceBytes, 'n');
  const Stranger guesses(served.port());
  guesses.say(cat(kHello, nonce));
  const std::string reply = guesses.hear(kReplyBytes);
  ASSERT_EQ(reply.size(), kReplyBytes);
  // The server's own proof, said back, is no proof of a client's.
  guesses.say(reply.substr(kNonceBytes));
  guesses.say(request(StoreOperation::kSet, WireWriter().text("a").text("stolen")));
  EXPECT_EQ(guesses.listen(), "");
  const Stranger hurries(served.port());
  hurries.say(request(StoreOperation::kSet, WireWriter().text("a").text("stolen")));
  EXPECT_EQ(hurries.listen(), "");
  EXPECT_EQ(store.get("a", 0), "1");
}

TEST(StoreTest, TheSecretNeverTravelsAndProofsServeOnce) {
  const std::string secret = "do not say this";
  const std::string proof = prove(secret, "client", "aaaa", "bbbb");
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_EQ(proof, prove(secret, "client", "aaaa", "bbbb"));
  for (const std::string& other :
       {prove(secret, "server", "aaaa", "bbbb"), prove(secret, "client", "aaaa", "bbbc"),
        prove(secret, "client", "aaac", "bbbb"), prove("do not say that", "client", "aaaa", "bbbb"),
        prove("", "client", "aaaa", "bbbb"),
        prove(std::string(200, 's'), "client", "aaaa", "bbbb")}) {
    EXPECT_NE(proof, other);
  }
  EXPECT_NE(random_bytes(16), random_bytes(16));
  EXPECT_TRUE(is_same_proof(proof, proof));
  EXPECT_FALSE(is_same_proof(proof, proof.substr(1)));
  EXPECT_FALSE(is_same_proof(proof, std::string(kProofBytes, '0')));
}

TEST(StoreTest, HostileBytesEndTheirOwnConnectionOnly) {
  const Served served;
  TcpStore store(served.options());
  store.set("a", "1");
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const Stranger stranger(served.port());
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0) bytes = cat(kHello, bytes);
    stranger.say(bytes);
    stranger.finish();
    if (i % 2 == 0) stranger.listen();
  }
  EXPECT_EQ(store.get("a", 0), "1");
}

/// A rank that has lost its mind: it knows the secret.
TEST(StoreTest, RequestsThatAreNoneEndTheirConnectionOnly) {
  const Served served;
  TcpStore store(served.options());
  store.set("a", "1");
  const WireWriter key = WireWriter().text("a");
  std::vector<std::string> requests = {
      request(static_cast<StoreOperation>(0), key),
      request(static_cast<StoreOperation>(99), key),
      request(StoreOperation::kSet, key),
      request(StoreOperation::kGet, WireWriter()),
      request(StoreOperation::kAdd, WireWriter().text("a").byte(1)),
      request(StoreOperation::kHas, WireWriter().text("a").text("b")),
      request(StoreOperation::kSet, WireWriter().number(-1)),
      cat(std::string(1, '\x01'), size_bytes(kLargestFrame + 1)),
      cat(std::string(1, '\x01'), size_bytes(0xFFFFFFFF), "abc")};
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    requests.push_back(
        request(static_cast<StoreOperation>(random() % 6 + 2), WireWriter().text(bytes)));
    requests.push_back(
        cat(std::string(1, static_cast<char>(random() % 8)), size_bytes(bytes.size()), bytes));
  }
  for (const std::string& bytes : requests) {
    const Stranger rank(served.port());
    const std::string nonce(kNonceBytes, 'n');
    rank.say(cat(kHello, nonce));
    const std::string reply = rank.hear(kReplyBytes);
    ASSERT_EQ(reply.size(), kReplyBytes);
    rank.say(prove("the run's", "client", nonce, reply.substr(0, kNonceBytes)));
    ASSERT_EQ(rank.hear(kWelcome.size()), kWelcome);
    rank.say(bytes);
  }
  EXPECT_EQ(store.get("a", 0), "1");
}

TEST(StoreTest, ManySilentStrangersKeepNoRankOut) {
  const Served served;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(std::make_unique<Stranger>(served.port()));
  TcpStore store(served.options());
  store.set("a", "1");
  EXPECT_EQ(store.get("a", 0), "1");
  EXPECT_EQ(strangers.front()->listen(), "");  // the first were hung up on for the last
}

TEST(StoreTest, ListensOnTheAddressThatIsAskedForOnly) {
  const int port = free_port();
  const StoreListener listener = listen_for_store("127.0.0.1", port, true);
  const Descriptor owned(listener.fd);
  EXPECT_FALSE(listener.is_everywhere);
  EXPECT_TRUE(Stranger(port).is_connected());
  EXPECT_FALSE(Stranger(port, "127.0.0.2").is_connected());
}

TEST(StoreTest, ListensEverywhereWhereTheNameIsTheLoopbacksOrNobodys) {
  for (const auto& [host, is_local] : {std::pair{"127.0.0.1", false}, {"192.0.2.1", true}}) {
    const int port = free_port();
    const StoreListener listener = listen_for_store(host, port, is_local);
    const Descriptor owned(listener.fd);
    EXPECT_TRUE(listener.is_everywhere);
    EXPECT_TRUE(Stranger(port, "127.0.0.2").is_connected());
  }
}

TEST(StoreTest, AStrangerDisturbsNoRun) {
  RanksOptions options;
  options.secret = "nobody knows";
  int port = 0;
  options.adjust = [&port](int, WorldOptions& world) { port = world.port; };
  const RanksResult result = run_ranks(
      2,
      [&port](World& world) {
        const Stranger stranger(port);
        stranger.say("GET / HTTP/1.1\r\n\r\n");
        expect(stranger.listen().empty(), "a stranger got an answer");
        WorldOptions thief;
        thief.rank = 1;
        thief.size = 2;
        thief.port = port;
        thief.timeout_seconds = 5;
        thief.secret = "a guess";
        const std::string text = test::error_of<UserError>([&] { World stolen(thief); });
        expect(text.find("secret") != std::string::npos, text);
        expect(world.group().agree_max(world.group().rank()) == 1, "max");
      },
      options);
  EXPECT_EQ(result.errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace automodel::comm
