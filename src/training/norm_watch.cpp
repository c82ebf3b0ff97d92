#include "training/norm_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace automodel::training {

bool NormWatch::is_spike(double norm) const {
  constexpr size_t kLeastNorms = 20;
  return norms_.size() >= kLeastNorms && norm > multiple_ * usual();
}

void NormWatch::add(double norm) {
  constexpr size_t kMostNorms = 64;
  if (!std::isfinite(norm) || norm <= 0) return;
  norms_.push_back(norm);
  if (norms_.size() > kMostNorms) norms_.pop_front();
}

double NormWatch::usual() const {
  if (norms_.empty()) return 0;
  std::vector<double> norms(norms_.begin(), norms_.end());
  const auto middle = norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2);
  std::nth_element(norms.begin(), middle, norms.end());
  return *middle;
}

Json NormWatch::state() const {
  Json state = Json::array();
  for (const double norm : norms_) state.push_back(norm);
  return state;
}

void NormWatch::load_state(const Json& state) {
  norms_.clear();
  for (const Json& norm : state.as_array()) add(norm.as_double());
}

}  // namespace automodel::training
