#include "loggers/progress.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace automodel::loggers {

namespace {

constexpr int kBarWidth = 24;

std::string bar(double fraction) {
  const int full = static_cast<int>(fraction * kBarWidth);
  std::string text;
  for (int i = 0; i < kBarWidth; ++i) text += i < full ? "█" : " ";
  return text;
}

std::string two_digits(int64_t value) {
  return cat(value < 10 ? "0" : "", value);
}

}  // namespace

ProgressBar::ProgressBar(int64_t first_step, int64_t num_steps)
    : first_step_(first_step), num_steps_(num_steps) {}

std::string ProgressBar::line(int64_t num_done, double seconds, double loss) const {
  const auto done_here = static_cast<double>(num_done - first_step_);
  const double rate = seconds > 0 ? done_here / seconds : 0;
  const std::string speed = cat(format_fixed(rate, 2), " step/s] loss ", format_fixed(loss, 4));
  if (num_steps_ <= 0) {
    return cat("Training ", num_done, " [", clock_text(seconds), ", ", speed);
  }
  const double fraction =
      std::clamp(static_cast<double>(num_done) / static_cast<double>(num_steps_), 0.0, 1.0);
  const std::string left =
      rate > 0 ? clock_text(static_cast<double>(num_steps_ - num_done) / rate) : "?";
  return cat("Training ", static_cast<int64_t>(fraction * 100), "% |", bar(fraction), "| ",
             num_done, "/", num_steps_, " [", clock_text(seconds), "<", left, ", ", speed);
}

std::string clock_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = total / 3600;
  const std::string minutes = cat(two_digits(total / 60 % 60), ":", two_digits(total % 60));
  return hours > 0 ? cat(hours, ":", minutes) : minutes;
}

}  // namespace automodel::loggers
