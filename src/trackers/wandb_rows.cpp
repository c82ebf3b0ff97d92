#include "trackers/wandb_rows.h"

#include <algorithm>
#include <utility>

namespace automodel::trackers {

void WandbRows::go_on_behind(int64_t last_step, double runtime) {
  last_step_ = last_step;
  runtime_before_ = runtime_ = runtime;
}

std::optional<WandbRow> WandbRows::add(const Record& record) {
  if (record.values.empty()) return std::nullopt;
  const bool has_row = last_step_ && record.step <= *last_step_;
  if (has_row || (open_ && record.step < open_->step)) {
    has_left_out_ = true;
    return std::nullopt;
  }
  std::optional<WandbRow> whole;
  if (open_ && record.step > open_->step) whole = end();
  if (!open_) open_ = WandbRow{record.step, Json::object()};
  ++num_held_;
  Json& values = open_->values;
  for (const auto& [name, value] : record.values) values[metric_name(record, name)] = value;
  runtime_ = runtime_before_ + std::max(0.0, record.unix_seconds - start_seconds_);
  values["_timestamp"] = record.unix_seconds;
  values["_runtime"] = runtime_;
  values["_step"] = record.step;
  for (const auto& [name, value] : values.as_object()) summary_[name] = value;
  return whole;
}

std::optional<WandbRow> WandbRows::end() {
  if (open_) last_step_ = open_->step;
  num_held_ = 0;
  return std::exchange(open_, std::nullopt);
}

}  // namespace automodel::trackers
