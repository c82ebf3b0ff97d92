// The strategy of a build that leaves the engine of megatron_fsdp out: its file, under names that
// do not meet this build's own.

#include <gtest/gtest.h>

#include "core/error.h"
#include "distributed/strategies/parallelizer.h"
#include "distributed/toy_model.h"
#include "support/errors.h"

namespace automodel::distributed {
extern const bool ABSENT_NVFSDP;
std::unique_ptr<NvfsdpStrategy> make_absent_strategy();
}  // namespace automodel::distributed

#define HAVE_NVFSDP ABSENT_NVFSDP
#define make_nvfsdp_strategy make_absent_strategy
#include "distributed/strategies/nvfsdp_absent.cpp"
#undef HAVE_NVFSDP
#undef make_nvfsdp_strategy

namespace automodel::distributed {
namespace {

TEST(HaveNvfsdp, SaysWhetherTheEngineIsInTheBuild) {
  EXPECT_TRUE(HAVE_NVFSDP);
  EXPECT_FALSE(ABSENT_NVFSDP);
}

TEST(HaveNvfsdp, WithoutTheEngineTheCallSaysSo) {
  const auto strategy = make_absent_strategy();
  ToyModel toy;
  const DeviceMesh mesh = data_mesh(comm::ProcessGroup::solo());
  EXPECT_EQ(test::error_of<UnsupportedError>([&] { strategy->parallelize(toy.model(), mesh, {}); }),
            "nvFSDP is not installed: this build leaves the engine out");
}

}  // namespace
}  // namespace automodel::distributed
