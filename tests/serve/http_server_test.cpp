// A server on loopback, asked over real sockets.
#include "serve/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/clock.h"
#include "report/run_folder.h"
#include "serve/client.h"
#include "serve/serve_command.h"
#include "support/errors.h"

namespace automodel::serve {
namespace {

using test::get;
using test::HttpAnswer;
using test::HttpCall;
using test::step_line;
using test::TemporaryDirectory;
using test::write_run;
using testing::HasSubstr;

/// Sends a byte on each of some connections every twenty milliseconds, while it lives.
class Drip final {
 public:
  explicit Drip(const std::vector<Descriptor>& connections)
      : thread_([&connections](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            for (const Descriptor& one : connections) ::send(one.get(), "G", 1, MSG_NOSIGNAL);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

 private:
  std::jthread thread_;
};

/// A server of one run, "a".
class HttpServerTest : public testing::Test {
 protected:
  void start(const SiteOptions& options = {}, const ServerLimits& limits = {}) {
    write_run(root_, {.name = "a", .training = step_line(0, "7.5") + step_line(1, "6.25")});
    index_ = std::make_unique<RunIndex>(root_.path(),
                                        IndexOptions{.least_seconds = 0, .most_share = 1e9});
    site_ = std::make_unique<Site>(*index_, options);
    const ListenSocket socket = listen_on("127.0.0.1", 0);
    port_ = socket.port;
    server_ = std::make_unique<HttpServer>(socket, *site_, options.cookie_name, limits);
  }
  std::string url(const std::string& path) const { return cat("http://127.0.0.1:", port_, path); }

  Descriptor connect() const {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  /// Sends bytes as they are, and reads until the server closes the connection.
  static std::string exchange(const Descriptor& socket, const std::string& bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    std::string answer, piece(1 << 16, '\0');
    while (true) {
      const ssize_t count = ::recv(socket.get(), piece.data(), piece.size(), 0);
      if (count <= 0) return answer;
      answer.append(piece, 0, static_cast<size_t>(count));
    }
  }

  TemporaryDirectory root_;
  int port_ = 0;
  std::unique_ptr<RunIndex> index_;
  std::unique_ptr<Site> site_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PagesComeWithTheirFields) {
  start();
  const HttpAnswer list = get(url("/"));
  EXPECT_EQ(list.status, 200);
  EXPECT_EQ(list.fields.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(list.fields.at("x-content-type-options"), "nosniff");
  EXPECT_THAT(list.fields.at("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(list.body, HasSubstr("runs/a"));
  const HttpAnswer run = get(url("/runs/a"));
  EXPECT_THAT(run.body, HasSubstr("<h1>a</h1>"));
  EXPECT_EQ(get(url("/runs/a"), {cat("If-None-Match: ", run.fields.at("etag"))}).status, 304);
  EXPECT_EQ(get(url("/health")).body, "ok\n");
  EXPECT_THAT(get(url("/metrics")).body, HasSubstr("trainer_loss{run=\"a\"} 6.25"));
  EXPECT_EQ(get(url("/api/runs")).fields.at("content-type"), "application/json");
}

TEST_F(HttpServerTest, HeadIsGetWithoutABody) {
  start();
  const HttpAnswer head = HttpCall(url("/runs/a")).method("HEAD").send();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(head.fields.at("content-length"), cat(get(url("/runs/a")).body.size()));
}

TEST_F(HttpServerTest, OtherMethodsAreRefusedBeforeTheirBody) {
  start();
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH"}) {
    const HttpAnswer answer = HttpCall(url("/")).body("x=1").method(method).send();
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.fields.at("allow"), "GET, HEAD");
  }
  // A body of a terabyte is not waited for.
  EXPECT_THAT(
      exchange(connect(),
               "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1099511627776\r\n\r\nx"),
      testing::StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, PathsLeadNowhereButToRuns) {
  start();
  write_file_atomic(root_.file("secret.txt"), "secret");
  for (const char* path :
       {"/../secret.txt", "/runs/../secret.txt", "/runs/%2e%2e/secret.txt", "/secret.txt",
        "/runs/..%2fsecret.txt", "/runs//etc/passwd", "/runs/%2fetc%2fpasswd", "/runs/a%00.html/x",
        "/runs/a/../a/training.jsonl", "/%", "/runs/%zz", "/runs/a%"}) {
    const HttpAnswer answer = get(url(path));
    EXPECT_NE(answer.body.find("secret"), 0U) << path;
    if (std::string(path) != "/runs/a%00.html/x") {
      EXPECT_EQ(answer.status, 404) << path;
    }
  }
}

TEST_F(HttpServerTest, ATokenComesInTheFieldTheQueryOrTheCookie) {
  start({.is_on_loopback = true, .token = "correct horse"});
  EXPECT_EQ(get(url("/metrics")).status, 401);
  EXPECT_EQ(get(url("/metrics"), {"Authorization: Bearer correct hors"}).status, 401);
  EXPECT_EQ(get(url("/metrics?token=wrong")).status, 401);
  EXPECT_EQ(get(url("/metrics"), {"Authorization: Bearer correct horse"}).status, 200);
  EXPECT_EQ(get(url("/metrics?token=correct%20horse")).status, 200);
  const HttpAnswer moved = get(url("/?token=correct+horse"));
  EXPECT_EQ(moved.status, 303);
  const std::string cookie = moved.fields.at("set-cookie");
  EXPECT_EQ(get(url("/"), {cat("Cookie: ", cookie.substr(0, cookie.find(';')))}).status, 200);
  EXPECT_EQ(get(url("/"), {"Cookie: automodel_serve=correct horse"}).status, 401);
}

TEST_F(HttpServerTest, ARequestForAnotherHostIsRefused) {
  start();
  EXPECT_EQ(get(url("/"), {"Host: evil.example"}).status, 403);
  EXPECT_EQ(get(url("/"), {"Host: localhost:9000"}).status, 200);  // by ssh -L 9000:...
  EXPECT_THAT(exchange(connect(), "GET / HTTP/1.0\r\n\r\n"), HasSubstr(" 403 "));
}

TEST_F(HttpServerTest, WhatIsNoRequestEndsTheConnectionAndNothingElse) {
  start({}, {.idle_seconds = 1});
  EXPECT_EQ(get(url("/"), {cat("X-Large: ", std::string(100000, 'x'))}).status, 431);
  EXPECT_EQ(get(url(cat("/", std::string(100000, 'x')))).status, 414);
  std::string fields;
  for (int i = 0; i < 400; ++i) fields += "&a";
  EXPECT_EQ(get(url(cat("/?", fields))).status, 200);
  EXPECT_THAT(exchange(connect(), "no request\r\n\r\n"), testing::Not(HasSubstr(" 200 ")));
  EXPECT_THAT(exchange(connect(), std::string("\0\xFF\x16\x03\x01\r\n\r\n", 9)),
              testing::Not(HasSubstr(" 200 ")));
  EXPECT_EQ(get(url("/health")).status, 200);
}

TEST_F(HttpServerTest, AClientThatSaysNothingIsLetGo) {
  start({}, {.num_connections = 8, .num_threads = 1, .idle_seconds = 1});
  std::vector<Descriptor> slow;
  for (int i = 0; i < 7; ++i) slow.push_back(connect());
  const std::string answer =
      exchange(slow[0], "GET / HTTP/1.1\r\nHost: local");  // until it is closed
  EXPECT_THAT(answer, testing::Not(HasSubstr(" 200 ")));
  EXPECT_EQ(get(url("/health")).status, 200);
}

TEST_F(HttpServerTest, ClientsThatDripTheirRequestsAreLetGo) {
  start({}, {.num_connections = 4, .num_threads = 1, .idle_seconds = 60, .request_seconds = 0.4});
  std::vector<Descriptor> slow;
  while (slow.size() < 4) slow.push_back(connect());
  const Drip drip(slow);
  EXPECT_EQ(get(url("/health")).status, 200);  // waits until one of them is let go
}

TEST_F(HttpServerTest, AClientThatDripsItsSecondRequestIsLetGoToo) {
  start({}, {.idle_seconds = 60, .request_seconds = 0.4});
  std::vector<Descriptor> kept;
  kept.push_back(connect());
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(kept[0].get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string whole = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(kept[0].get(), whole.data(), whole.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(whole.size()));
  std::string answer(1 << 12, '\0');
  ASSERT_GT(::recv(kept[0].get(), answer.data(), answer.size(), 0), 0);
  EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 200"));
  const Drip drip(kept);
  const ssize_t count = ::recv(kept[0].get(), answer.data(), answer.size(), 0);
  EXPECT_TRUE(count == 0 || (count < 0 && errno == ECONNRESET)) << std::strerror(errno);
}

TEST_F(HttpServerTest, OneAddressCannotTakeEveryConnection) {
  start({}, {.num_connections = 8, .num_connections_of_address = 2, .idle_seconds = 60});
  std::vector<Descriptor> held;
  for (int i = 0; i < 2; ++i) held.push_back(connect());
  EXPECT_EQ(exchange(connect(), "GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"), "");
}

TEST_F(HttpServerTest, AHundredConnectionsOfOneAddressAreServed) {
  start({}, {.num_connections_of_address = ServerLimits{}.num_connections});
  std::vector<Descriptor> held;
  for (int i = 0; i < 100; ++i) held.push_back(connect());
  const std::string request = "GET /runs/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (const Descriptor& one : held) {
    ASSERT_EQ(::send(one.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  for (const Descriptor& one : held) {
    std::string answer(15, '\0');
    ASSERT_EQ(::recv(one.get(), answer.data(), answer.size(), MSG_WAITALL), 15);
    EXPECT_EQ(answer, "HTTP/1.1 200 OK");
  }
}

TEST_F(HttpServerTest, RunsOfTheQueryAreComparedWhateverTheirNames) {
  start();
  write_run(root_, {.name = "x/b c", .training = step_line(0, "1")});
  EXPECT_THAT(get(url("/compare?run=a&other=1&run=x%2Fb+c")).body, HasSubstr("<h1>a, x/b c</h1>"));
  EXPECT_EQ(get(url("/compare?run=a&run=x/b%20c")).status, 200);
  EXPECT_EQ(get(url("/compare?run=a&run=..%2fa")).status, 404);
  EXPECT_EQ(get(url("/compare?run")).status, 400);
  std::string many = "/compare?run=a";
  for (int i = 0; i < 200; ++i) many += cat("&run=", i);
  EXPECT_EQ(get(url(many)).status, 400);
}

TEST_F(HttpServerTest, WithoutADescriptorThereIsNoServer) {
  start();
  const ListenSocket socket = listen_on("127.0.0.1", 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string text =
      test::error_of<InputError>([&] { const HttpServer other(socket, *site_, "c"); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(text, testing::StartsWith("no server could be started: "));
}

TEST_F(HttpServerTest, MoreConnectionsThanAllowedWait) {
  start({}, {.num_connections = 2, .num_threads = 1, .idle_seconds = 1});
  std::vector<Descriptor> held;
  for (int i = 0; i < 3; ++i) held.push_back(connect());
  EXPECT_EQ(get(url("/health")).status, 200);  // once the others have been let go
}

TEST_F(HttpServerTest, ARunThatIsWrittenIsSeenToGrow) {
  start();
  const std::string file = root_.file("a/training.jsonl");
  for (int64_t step = 2; step < 20; ++step) {
    std::ofstream(file, std::ios::app) << step_line(step, cat(step)) << "{\"half";
    EXPECT_THAT(get(url("/runs/a")).body, HasSubstr(cat("from 7.5 to ", step)));
    EXPECT_THAT(get(url("/metrics")).body, HasSubstr(cat("trainer_step{run=\"a\"} ", step, "\n")));
    std::ofstream(file, std::ios::app) << "\n";
  }
}

TEST_F(HttpServerTest, ItEndsWhileClientsAreConnected) {
  start();
  const Descriptor idle = connect();
  const Descriptor half = connect();
  EXPECT_EQ(::send(half.get(), "GET /", 5, MSG_NOSIGNAL), 5);
  const double begin = monotonic_seconds();
  server_ = nullptr;
  EXPECT_LT(monotonic_seconds() - begin, 5);
}

TEST(ListenSocketTest, APortThatIsTakenIsToldWithOneThatIsFree) {
  const ListenSocket taken = listen_on("127.0.0.1", 0);
  const std::string text = test::error_of<UserError>([&] { listen_on("127.0.0.1", taken.port); });
  EXPECT_THAT(text, testing::StartsWith(
                        cat("port ", taken.port, " of 127.0.0.1 is in use by another program; ")));
  EXPECT_THAT(text,
              testing::ContainsRegex("[0-9]+ is free: --port [0-9]+$|--port 0 takes one that"));
}

TEST(ListenSocketTest, AddressesThatAreNoneAreToldApart) {
  const auto error = [](const std::string& host, int port) {
    return test::error_of<UserError>([&] { listen_on(host, port); });
  };
  EXPECT_EQ(error("example.org", 0),
            "--host takes an address such as 127.0.0.1, ::1 or 0.0.0.0, found 'example.org'");
  EXPECT_EQ(error("192.0.2.1", 0), "192.0.2.1 is not an address of this machine [--host]");
  EXPECT_EQ(error("127.0.0.1", 65536), "--port must be from 0 to 65535, found 65536");
  EXPECT_EQ(error("127.0.0.1", -1), "--port must be from 0 to 65535, found -1");
}

TEST(ServeCommandTest, AnAddressOfOthersNeedsAToken) {
  const TemporaryDirectory root;
  std::ostringstream out;
  const auto error = [&](const ServeOptions& options) {
    return test::error_of<UserError>([&] { serve_runs(options, out); });
  };
  EXPECT_THAT(
      error({.folder = root.path(), .host = "0.0.0.0", .port = 0}),
      testing::StartsWith("0.0.0.0 can be reached from other machines: give a token, best in "
                          "the environment as AUTOMODEL_SERVE_TOKEN; or keep to loopback"));
  EXPECT_EQ(error({.folder = root.path(), .port = 0, .token = "short"}),
            "a token is 8 characters of ASCII or more, without spaces [--token or "
            "AUTOMODEL_SERVE_TOKEN]");
  EXPECT_EQ(error({.folder = root.path(), .port = 0, .token = "with a space"}),
            "a token is 8 characters of ASCII or more, without spaces [--token or "
            "AUTOMODEL_SERVE_TOKEN]");
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace automodel::serve
