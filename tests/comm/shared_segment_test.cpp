// Whom a rank believes that shows it memory.
#include "comm/shared_memory/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::comm {
namespace {

constexpr size_t kBytes = 1 << 16;
constexpr int kAllSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

/// What a rank 1 finds in a store that anybody may have written.
class WrittenStore final : public Store {
 public:
  explicit WrittenStore(const std::string& claim) {
    values_ = {{"k/segment", claim}, {"k/mapped/0", ""}};
  }
  void set(const std::string& key, const std::string& value) override { values_[key] = value; }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    return values_.emplace(key, value).first->second;
  }
  std::optional<std::string> get(const std::string& key, double) override {
    return values_.contains(key) ? std::optional(values_[key]) : std::nullopt;
  }
  bool has(const std::string& key) override { return values_.contains(key); }
  int64_t add(const std::string&, int64_t) override { return 0; }
  void erase(const std::string& key) override { values_.erase(key); }
  std::unique_ptr<Store> connect_again() override { return nullptr; }

 private:
  std::map<std::string, std::string> values_;
};

/// Why rank 1 takes no memory; "" when it does.
std::string why_not(const std::string& claim, int64_t maker_pid = ::getpid()) {
  WrittenStore store(claim);
  const SegmentOutcome outcome = share_segment(store, {"k", 1, 2, 1.0, maker_pid}, kBytes);
  EXPECT_EQ(outcome.segment == nullptr, !outcome.why_not.empty());
  return outcome.why_not;
}

std::string claim_of(int fd) {
  return cat(static_cast<int64_t>(::getpid()), " ", fd);
}

int make_memory(off_t size, int seals) {
  const int fd = ::memfd_create("automodel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, size), 0);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedSegmentTest, SealedMemoryOfItsSizeIsTaken) {
  const Descriptor memory(make_memory(kBytes, kAllSeals));
  EXPECT_EQ(why_not(claim_of(memory.get())), "");
}

TEST(SharedSegmentTest, MemoryThatCouldShrinkIsNotTaken) {
  for (const int seals :
       {0, F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW, kAllSeals | F_SEAL_WRITE}) {
    const Descriptor memory(make_memory(kBytes, seals));
    EXPECT_EQ(why_not(claim_of(memory.get())), "it is no sealed memory") << seals;
  }
}

TEST(SharedSegmentTest, MemoryOfAnotherSizeIsNotTaken) {
  for (const size_t size : {kBytes - 1, kBytes + 1, size_t{0}}) {
    const Descriptor memory(make_memory(static_cast<off_t>(size), kAllSeals));
    EXPECT_EQ(why_not(claim_of(memory.get())), cat("it has ", size, " bytes in place of ", kBytes));
  }
}

TEST(SharedSegmentTest, FilesAndPipesAreNotOpened) {
  const test::TemporaryDirectory folder;
  folder.write("file", std::string(kBytes, 'x'));
  const Descriptor file(::open(folder.file("file").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(why_not(claim_of(file.get())), "it is a file, not memory");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reads(ends[0]), writes(ends[1]);
  EXPECT_EQ(why_not(claim_of(reads.get())), "it is a file, not memory");
  const Descriptor zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(why_not(claim_of(zero.get())), "it is a file, not memory");
  EXPECT_EQ(read_file(folder.file("file")), std::string(kBytes, 'x'));
  // A file whose name looks like memory's.
  ASSERT_EQ(::mkdir(folder.file("memfd:x").c_str(), 0700), 0);
  folder.write("memfd:x/y", std::string(kBytes, 'x'));
  const Descriptor named(::open(folder.file("memfd:x/y").c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(why_not(claim_of(named.get())), "it is a file, not memory");
}

TEST(SharedSegmentTest, AnotherProcesssMemoryIsNotTaken) {
  const Descriptor memory(make_memory(kBytes, kAllSeals));
  EXPECT_EQ(why_not(claim_of(memory.get()), ::getpid() + 1),
            "the store speaks of another process's memory");
}

TEST(SharedSegmentTest, ClaimsThatAreNoneAreSaid) {
  for (const char* claim : {"/dev/zero", "/proc/1/fd/1", "1", "1 2 3", "x y", "-1 -1", " ", "1 ",
                            "99999999999999999999 1", "1 99999999999", "1 -1", "\xFF\xFE \x01"}) {
    EXPECT_EQ(why_not(claim), "the store speaks of no memory") << claim;
  }
  EXPECT_EQ(why_not(claim_of(987654)), "readlink: No such file or directory");
}

}  // namespace
}  // namespace automodel::comm
