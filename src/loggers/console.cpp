#include "loggers/console.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/clock.h"
#include "core/text.h"

namespace automodel::loggers {

namespace {

constexpr std::string_view kEraseLine = "\r\033[K";

bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return std::getenv("FORCE_COLOR") != nullptr || ::isatty(STDOUT_FILENO) == 1;
}

/// A number as Python's, or a name of Python's; what is neither counts as not set.
int level_from_environment() {
  const char* text = std::getenv("LOGGING_LEVEL");
  if (text == nullptr) return kInfoLevel;
  if (const auto level = parse_int(text)) return static_cast<int>(*level);
  const std::string name = to_lower(text);
  if (name == "warning") return kWarningLevel;
  return name == "error" ? kErrorLevel : kInfoLevel;
}

const char* level_name(int level) {
  if (level >= kErrorLevel) return "ERROR";
  return level >= kWarningLevel ? "WARNING" : "INFO";
}

const char* level_color(int level) {
  if (level >= kErrorLevel) return "\033[31m";
  return level >= kWarningLevel ? "\033[33m" : "\033[32m";
}

void write_all(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

ConsoleOptions ConsoleOptions::from_environment(int rank, int world_size) {
  ConsoleOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.level = level_from_environment();
  options.has_color = wants_color();
  options.has_progress = ::isatty(STDERR_FILENO) == 1;
  return options;
}

ConsoleReporter::ConsoleReporter(int rank, int world_size)
    : ConsoleReporter(ConsoleOptions::from_environment(rank, world_size)) {}

ConsoleReporter::ConsoleReporter(const ConsoleOptions& options) : options_(options) {}

ConsoleReporter::~ConsoleReporter() {
  progress("");
}

void ConsoleReporter::info(std::string_view text) {
  if (options_.rank == 0) print(kInfoLevel, text);
}

void ConsoleReporter::warning(std::string_view text) {
  if (options_.rank == 0) print(kWarningLevel, text);
}

void ConsoleReporter::error(std::string_view text) {
  print(kErrorLevel, text);
}

void ConsoleReporter::progress(std::string_view text) {
  if (!options_.has_progress || options_.rank != 0) return;
  const std::lock_guard lock(mutex_);
  if (text.empty() && progress_.empty()) return;
  progress_ = text;
  write_all(stderr, cat(kEraseLine, progress_));
}

void ConsoleReporter::print(int level, std::string_view text) {
  if (level < options_.level) return;
  const std::string name = options_.has_color
                               ? cat(level_color(level), level_name(level), "\033[0m")
                               : level_name(level);
  const std::string rank = level >= kErrorLevel && options_.world_size > 1
                               ? cat("rank ", options_.rank, ": ")
                               : std::string();
  const std::lock_guard lock(mutex_);
  if (!progress_.empty()) write_all(stderr, kEraseLine);
  write_all(level >= kWarningLevel ? stderr : stdout,
            cat(local_timestamp(), " | ", name, " | automodel | ", rank, text, "\n"));
  if (!progress_.empty()) write_all(stderr, progress_);
}

}  // namespace automodel::loggers
