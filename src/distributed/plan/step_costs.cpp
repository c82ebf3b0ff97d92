#include "distributed/plan/step_costs.h"

#include <array>

namespace automodel::distributed {

namespace {

using C = StepCollectives;
constexpr std::array kFields = {
    &C::num_gathers,          &C::gathered_bytes,         &C::num_reductions,
    &C::reduced_bytes,        &C::num_replica_reductions, &C::replica_reduced_bytes,
    &C::num_expert_gathers,   &C::expert_gathered_bytes,  &C::num_expert_reductions,
    &C::expert_reduced_bytes, &C::num_exchanges,          &C::exchanged_bytes,
};
static_assert(sizeof(C) == kFields.size() * sizeof(int64_t), "a field is missing above");

}  // namespace

StepCollectives& StepCollectives::operator+=(const StepCollectives& other) {
  for (const auto field : kFields) this->*field += other.*field;
  return *this;
}

StepCollectives& StepCollectives::operator*=(int64_t times) {
  for (const auto field : kFields) this->*field *= times;
  return *this;
}

}  // namespace automodel::distributed
