#pragma once

#include <string>
#include <string_view>

#include "core/reporter.h"

namespace automodel::loggers {

/// Lines on the terminal: `2026-08-01 12:00:00 | INFO | automodel | text`. Rank 0 prints
/// everything; the others print errors only, with their rank. Warnings and errors go to stderr.
/// Colours on a terminal, NO_COLOR and FORCE_COLOR are honoured; LOGGING_LEVEL (20 info, 30
/// warning, 40 error) hides what is below it.
class ConsoleReporter final : public Reporter {
 public:
  ConsoleReporter(int rank, int world_size);

  void info(std::string_view text) override;
  void warning(std::string_view text) override;
  void error(std::string_view text) override;

 private:
  void print(int level, std::string_view text) const;

  int rank_;
  int world_size_;
  int lowest_level_;
  bool has_color_;
};

}  // namespace automodel::loggers
