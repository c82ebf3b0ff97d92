#include "core/error.h"
#include "distributed/strategies/nvfsdp.h"
#include "distributed/strategies/nvfsdp_options.h"

namespace automodel::distributed {

// Replaces nvfsdp.cpp in a build without the engine.

const bool HAVE_NVFSDP = false;

namespace {

class AbsentStrategy final : public NvfsdpStrategy {
 public:
  std::unique_ptr<Engine> parallelize(const ParallelModel&, const DeviceMesh&,
                                      const NvfsdpOptions&) const override {
    refuse();
  }
  PlannedUnits planned_units(const ParallelModel&, const NvfsdpOptions&) const override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw UnsupportedError("nvFSDP is not installed: this build leaves the engine out");
  }
};

}  // namespace

std::unique_ptr<NvfsdpStrategy> make_nvfsdp_strategy() {
  return std::make_unique<AbsentStrategy>();
}

}  // namespace automodel::distributed
