// `automodel serve` as a program.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>

#include "core/descriptor.h"
#include "core/text.h"
#include "support/program.h"

namespace automodel {
namespace {

using test::automodel_binary;
using test::ProgramResult;
using test::run_program;
using testing::HasSubstr;

/// A server that says on a pipe where it is.
class Serving final {
 public:
  Serving(const std::vector<std::string>& arguments, const char* token) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const Descriptor out(ends[0]);
    std::vector<std::string> all = {automodel_binary(), "serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> words;
    for (std::string& word : all) words.push_back(word.data());
    words.push_back(nullptr);
    {
      const Descriptor in(ends[1]);
      pid_ = ::fork();
      if (pid_ == 0) {
        if (token != nullptr) ::setenv("AUTOMODEL_SERVE_TOKEN", token, 1);
        ::dup2(in.get(), STDOUT_FILENO);
        ::execv(words[0], words.data());
        ::_exit(127);
      }
    }
    char byte = 0;
    while (::read(out.get(), &byte, 1) == 1 && byte != '\n') line_ += byte;
  }
  ~Serving() {
    if (pid_ > 0) end(SIGKILL);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  const std::string& line() const { return line_; }
  int port() const {
    std::smatch found;
    std::regex_search(line_, found, std::regex(":([0-9]+)/"));
    return std::stoi(found.str(1));
  }
  /// Returns the exit status.
  int end(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// What it answers to the fields of a request for a path.
  std::string ask(const std::string& path, const std::string& fields = "") const {
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request =
        cat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", fields, "\r\n");
    EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer, piece(1 << 16, '\0');
    for (ssize_t count = 1; count > 0;) {
      count = ::recv(socket.get(), piece.data(), piece.size(), 0);
      if (count > 0) answer.append(piece, 0, static_cast<size_t>(count));
    }
    return answer;
  }

 private:
  pid_t pid_ = 0;
  std::string line_;
};

TEST(ServeCommandTest, ItSaysWhereItIsAndEndsAtASignal) {
  const test::TemporaryDirectory folder;
  folder.write("a/run.json", "{}");
  for (const int signal : {SIGINT, SIGTERM}) {
    Serving server({folder.path(), "--port", "0"}, nullptr);
    EXPECT_THAT(server.line(), testing::StartsWith(cat("serving 1 run of ", folder.path(),
                                                       " at http://127.0.0.1:")));
    EXPECT_THAT(server.ask("/"), HasSubstr("<a href=\"runs/a\">a</a>"));
    EXPECT_EQ(server.end(signal), 0);
  }
}

TEST(ServeCommandTest, AFolderWithoutRunsIsToldAsThat) {
  const test::TemporaryDirectory folder;
  folder.write("config.json", "{}");
  Serving server({folder.path(), "--port", "0"}, nullptr);
  EXPECT_THAT(server.line(), testing::StartsWith(cat("serving 0 runs of ", folder.path())));
  EXPECT_THAT(server.line(), HasSubstr("; a run is the checkpoint_dir of a recipe that was run"));
  EXPECT_EQ(server.end(SIGTERM), 0);
}

TEST(ServeCommandTest, ATokenMayComeFromTheEnvironment) {
  const test::TemporaryDirectory folder;
  Serving server({folder.path(), "--port", "0", "--host", "0.0.0.0"}, "correct-horse");
  EXPECT_THAT(server.line(), testing::Not(HasSubstr("correct-horse")));
  EXPECT_THAT(server.ask("/"), testing::StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(server.ask("/", "Authorization: Bearer correct-horse\r\n"),
              testing::StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(server.end(SIGTERM), 0);
}

TEST(ServeCommandTest, WhatCannotBeServedIsAWrongArgument) {
  const test::TemporaryDirectory folder;
  const auto text = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {automodel_binary(), "serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = run_program(all);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(text({folder.file("none")}), cat("no such folder: ", folder.file("none"), "\n"));
  EXPECT_THAT(text({folder.path(), "--host", "0.0.0.0", "--port", "0"}), HasSubstr("give a token"));
  Serving server({folder.path(), "--port", "0"}, nullptr);
  EXPECT_THAT(text({folder.path(), "--port", cat(server.port())}),
              testing::StartsWith(cat("port ", server.port(), " of 127.0.0.1 is in use")));
}

}  // namespace
}  // namespace automodel
