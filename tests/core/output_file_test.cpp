#include "core/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <thread>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/text.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

TEST(OutputFileTest, APlainFileIsReplaced) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("page.html", "a longer text");
  write_output_file(path, "new");
  EXPECT_EQ(read_file(path), "new");
  write_output_file(folder.file("other"), "first");
  EXPECT_EQ(read_file(folder.file("other")), "first");
}

TEST(OutputFileTest, ALinkStaysALink) {
  const test::TemporaryDirectory folder;
  const std::string target = folder.write("target", "a longer text");
  std::filesystem::create_symlink("target", folder.file("link"));
  write_output_file(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(target), "new");
}

TEST(OutputFileTest, APipeIsWrittenInto) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string heard;
  std::thread reader([&] {
    const Descriptor pipe(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char bytes[64];
    for (ssize_t size; (size = ::read(pipe.get(), bytes, sizeof(bytes))) > 0;) {
      heard.append(bytes, static_cast<size_t>(size));
    }
  });
  write_output_file(path, "page");
  reader.join();
  EXPECT_EQ(heard, "page");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(
      test::error_of<InputError>([&] { check_output_place(path); }),
      cat("cannot write ", path, ": it is no plain file, and a plain file would take its place"));
}

/// In a process of its own, whose standard output is a file that has something already.
TEST(OutputFileTest, StandardOutputGoesOnWhereItIs) {
  const test::TemporaryDirectory folder;
  const std::string log = folder.write("log", "before\n"), stream = folder.file("stdout");
  std::filesystem::create_symlink("/proc/self/fd/1", stream);  // as /dev/stdout is one
  std::fflush(stdout);  // what the child got a copy of would stand in its file
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(log.c_str(), O_WRONLY | O_APPEND);
    ::dup2(fd, STDOUT_FILENO);
    std::cout << "said\n";
    write_output_file(stream, "page\n");
    std::cout << (is_standard_output(stream) ? "after\n" : "elsewhere\n") << std::flush;
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(read_file(log), "before\nsaid\npage\nafter\n");
  EXPECT_FALSE(is_standard_output(log));
}

/// Through a link, which is all that can be lost.
TEST(OutputFileTest, AFullDeviceIsNamed) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("full");
  std::filesystem::create_symlink("/dev/full", path);
  EXPECT_EQ(test::error_of<InputError>([&] { write_output_file(path, "page"); }),
            cat("cannot write ", path, ": No space left on device"));
}

}  // namespace
}  // namespace automodel
