#include "loggers/progress.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace automodel::loggers {

namespace {

constexpr int kBarWidth = 10;
constexpr double kShortSteps = 10;
constexpr double kLongSteps = 50;
constexpr double kLevelShare = 0.002;  // means that are as near as this show no direction

std::string bar(double fraction) {
  const int full = static_cast<int>(fraction * kBarWidth);
  std::string text;
  for (int i = 0; i < kBarWidth; ++i) text += i < full ? "█" : " ";
  return text;
}

/// " 5065 tok/s 0.2/0.3 GiB MFU 12%", of what is known.
std::string rates_text(const StepNumbers& numbers) {
  std::string text;
  if (numbers.tokens_per_second) {
    text += cat(" ", format_fixed(*numbers.tokens_per_second, 0), " tok/s");
  }
  if (numbers.memory_gib) {
    const std::string planned =
        numbers.planned_gib ? cat("/", format_fixed(*numbers.planned_gib, 1)) : "";
    text += cat(" ", format_fixed(*numbers.memory_gib, 1), planned, " GiB");
  }
  if (numbers.mfu_percent) text += cat(" MFU ", format_fixed(*numbers.mfu_percent, 0), "%");
  return text;
}

std::string two_digits(int64_t value) {
  return cat(value < 10 ? "0" : "", value);
}

}  // namespace

ProgressBar::ProgressBar(int64_t first_step, int64_t num_steps)
    : first_step_(first_step), num_steps_(num_steps) {}

std::string ProgressBar::trend(double loss) {
  if (!std::isfinite(loss)) return "";
  ++num_losses_;
  const auto known = static_cast<double>(num_losses_);
  short_mean_ += (loss - short_mean_) / std::min(known, kShortSteps);
  long_mean_ += (loss - long_mean_) / std::min(known, kLongSteps);
  if (known <= kShortSteps) return "";
  const double change = short_mean_ - long_mean_;
  if (std::abs(change) < kLevelShare * std::abs(long_mean_)) return " →";
  return change < 0 ? " ↓" : " ↑";
}

std::string ProgressBar::line(int64_t num_done, double seconds, const StepNumbers& numbers) {
  const auto done_here = static_cast<double>(num_done - first_step_);
  const double rate = seconds > 0 ? done_here / seconds : 0;
  const std::string end =
      cat(format_fixed(rate, 2), " step/s] loss ", format_fixed(numbers.loss, 4),
          trend(numbers.loss), rates_text(numbers));
  if (num_steps_ <= 0) {
    return cat("Training ", num_done, " [", clock_text(seconds), ", ", end);
  }
  const double fraction =
      std::clamp(static_cast<double>(num_done) / static_cast<double>(num_steps_), 0.0, 1.0);
  const std::string left =
      rate > 0 ? clock_text(static_cast<double>(num_steps_ - num_done) / rate) : "?";
  return cat("Training ", static_cast<int64_t>(fraction * 100), "% |", bar(fraction), "| ",
             num_done, "/", num_steps_, " [", clock_text(seconds), "<", left, ", ", end);
}

std::string clock_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = total / 3600;
  const std::string minutes = cat(two_digits(total / 60 % 60), ":", two_digits(total % 60));
  return hours > 0 ? cat(hours, ":", minutes) : minutes;
}

}  // namespace automodel::loggers
