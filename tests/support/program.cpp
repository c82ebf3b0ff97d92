#include "support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"

extern char** environ;  // the C library declares no header for it in C++

namespace automodel::test {

namespace {

void redirect(const std::string& path, int descriptor) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) ::_exit(127);
  ::dup2(file, descriptor);
  ::close(file);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> environment_texts = environment;
  environment_texts.emplace_back("HF_HUB_OFFLINE=1");  // unless `environment` says another value
  for (char** entry = environ; *entry != nullptr; ++entry) environment_texts.emplace_back(*entry);
  std::vector<char*> argv = pointers(argument_texts);
  std::vector<char*> envp = pointers(environment_texts);
  const std::string directory = source_file("");
  const std::string out = folder_.file("out"), err = folder_.file("err");
  begin_seconds_ = monotonic_seconds();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    if (::chdir(directory.c_str()) != 0) ::_exit(127);
    redirect("/dev/null", STDIN_FILENO);
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
}

Program::~Program() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ProgramResult Program::wait(rusage* usage) {
  int status = 0;
  ::wait4(pid_, &status, 0, usage);
  pid_ = 0;
  ProgramResult result;
  result.seconds = monotonic_seconds() - begin_seconds_;
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.out = read_file(folder_.file("out"));
  result.err = read_file(folder_.file("err"));
  return result;
}

ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment) {
  Program program(arguments, environment);
  return program.wait();
}

std::string automodel_binary() {
  const char* path = std::getenv("AUTOMODEL_BINARY");
  if (path == nullptr) throw std::runtime_error("AUTOMODEL_BINARY is not set");
  return path;
}

}  // namespace automodel::test
