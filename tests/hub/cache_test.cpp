#include "hub/cache.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::hub {
namespace {

using test::error_of;

class CacheTest : public testing::Test {
 protected:
  Lookup find(const std::string& revision) {
    return find_model("org/name", cache_.path(), revision);
  }

  test::TemporaryDirectory cache_;
  std::string model_ = cache_.file("models--org--name");
};

TEST_F(CacheTest, RevisionsAreBranchesWithSlashesTagsAndCommits) {
  cache_.write("models--org--name/refs/main", "abc\n");
  cache_.write("models--org--name/refs/refs/pr/1", "def\n");
  cache_.write("models--org--name/snapshots/abc/config.json", "{}");
  cache_.write("models--org--name/snapshots/def/config.json", "{}");
  EXPECT_EQ(find("main").folder, model_ + "/snapshots/abc");
  EXPECT_EQ(find("refs/pr/1").folder, model_ + "/snapshots/def");
  EXPECT_EQ(find("abc").folder, model_ + "/snapshots/abc");
  EXPECT_EQ(find("none").folder, "");
}

TEST_F(CacheTest, ARevisionThatLeadsOutOfTheCacheIsRefused) {
  cache_.write("secret/config.json", "{}");
  cache_.write("models--org--name/snapshots/abc/config.json", "{}");
  for (const char* revision : {"../../secret", "a/../../../secret", "/etc", "a//b", ".."}) {
    EXPECT_EQ(error_of<UserError>([&] { find(revision); }),
              std::string("revision '") + revision +
                  "' is no branch, tag or commit: it must be a name without '..', such as main, "
                  "refs/pr/1 or a commit's hash");
  }
  cache_.write("models--org--name/refs/main", "../../secret\n");
  EXPECT_EQ(error_of<InputError>([&] { find("main"); }),
            model_ + "/refs/main: holds no commit: '../../secret'");
}

}  // namespace
}  // namespace automodel::hub
