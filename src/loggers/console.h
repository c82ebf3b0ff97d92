#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/reporter.h"

namespace automodel::loggers {

/// Python's numbers; LOGGING_LEVEL holds one, or its name.
inline constexpr int kInfoLevel = 20;
inline constexpr int kWarningLevel = 30;
inline constexpr int kErrorLevel = 40;

struct ConsoleOptions {
  int rank = 0;
  int world_size = 1;
  int level = kInfoLevel;  ///< lines below it are not printed
  bool has_color = false;
  bool has_progress = false;  ///< stderr is a terminal, whose last line shows progress
  int columns = 0;            ///< of that terminal; 0: asked for
  std::string file = "";      ///< that lines are appended to, without colors; "": none

  /// From the terminal, NO_COLOR, FORCE_COLOR and LOGGING_LEVEL.
  static ConsoleOptions from_environment(int rank, int world_size);
};

/// Lines on the terminal: `2026-08-01 12:00:00 | INFO | automodel | text`. Rank 0 prints
/// everything; the others print errors only, with their rank. Warnings and errors go to stderr.
/// With a file, each line is at its end too.
class ConsoleReporter final : public Reporter {
 public:
  ConsoleReporter(int rank, int world_size);
  /// Throws InputError when the file cannot be opened.
  explicit ConsoleReporter(const ConsoleOptions& options);
  ~ConsoleReporter() override;
  ConsoleReporter(const ConsoleReporter&) = delete;
  ConsoleReporter& operator=(const ConsoleReporter&) = delete;

  void info(std::string_view text) override;
  void warning(std::string_view text) override;
  void error(std::string_view text) override;

  /// The terminal's last line, below the lines printed; nothing where there is no terminal, or on
  /// other ranks than 0.
  void progress(std::string_view text) override;
  bool shows_progress() const override { return options_.has_progress && options_.rank == 0; }

 private:
  struct Sinks;
  void print(int level, std::string_view text);

  ConsoleOptions options_;
  std::unique_ptr<Sinks> sinks_;
  std::mutex mutex_;      // lines come from the loader's thread too
  std::string progress_;  // shown now
};

}  // namespace automodel::loggers
