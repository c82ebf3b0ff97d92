#include "training/early_stopping.h"

#include <cmath>

#include "core/text.h"

namespace automodel::training {

void EarlyStopping::see(double loss, int64_t step) {
  const bool is_lower = std::isfinite(loss) && (best_step_ < 0 || loss < best_ - config_.threshold);
  if (!is_lower) {
    ++num_without_;
    return;
  }
  best_ = loss;
  best_step_ = step;
  num_without_ = 0;
}

std::string EarlyStopping::text() const {
  const std::string count =
      num_without_ == 1 ? "a validation" : cat(num_without_, " validations in a row");
  if (best_step_ < 0) return cat(count, " had no finite loss");
  return cat(count, " had no loss ", config_.threshold > 0 ? cat(config_.threshold, " ") : "",
             "below ", format_fixed(best_, 4), ", that of step ", best_step_);
}

Json EarlyStopping::state() const {
  Json state = Json::object();
  if (best_step_ >= 0) state["best"] = best_;
  state["best_step"] = best_step_;
  state["num_without"] = num_without_;
  return state;
}

void EarlyStopping::load_state(const Json& state) {
  best_step_ = state.at("best_step").as_int();
  best_ = state.get("best", 0.0);
  num_without_ = state.at("num_without").as_int();
}

}  // namespace automodel::training
