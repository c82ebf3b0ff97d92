#include "loggers/console.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/clock.h"
#include "core/text.h"

namespace automodel::loggers {

namespace {

constexpr int kInfo = 20;
constexpr int kWarning = 30;
constexpr int kError = 40;

bool wants_color() {
  if (std::getenv("NO_COLOR") != nullptr) return false;
  return std::getenv("FORCE_COLOR") != nullptr || ::isatty(STDOUT_FILENO) == 1;
}

int level_from_environment() {
  const char* text = std::getenv("LOGGING_LEVEL");
  const auto level = text == nullptr ? std::nullopt : parse_int(text);
  return level ? static_cast<int>(*level) : kInfo;
}

const char* level_name(int level) {
  if (level >= kError) return "ERROR";
  return level >= kWarning ? "WARNING" : "INFO";
}

const char* level_color(int level) {
  if (level >= kError) return "\033[31m";
  return level >= kWarning ? "\033[33m" : "\033[32m";
}

}  // namespace

ConsoleReporter::ConsoleReporter(int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      lowest_level_(level_from_environment()),
      has_color_(wants_color()) {}

void ConsoleReporter::info(std::string_view text) {
  if (rank_ == 0) print(kInfo, text);
}

void ConsoleReporter::warning(std::string_view text) {
  if (rank_ == 0) print(kWarning, text);
}

void ConsoleReporter::error(std::string_view text) {
  print(kError, text);
}

void ConsoleReporter::print(int level, std::string_view text) const {
  if (level < lowest_level_) return;
  const std::string name =
      has_color_ ? cat(level_color(level), level_name(level), "\033[0m") : level_name(level);
  const std::string rank =
      level >= kError && world_size_ > 1 ? cat("rank ", rank_, ": ") : std::string();
  const std::string line = cat(local_timestamp(), " | ", name, " | automodel | ", rank, text, "\n");
  std::FILE* out = level >= kWarning ? stderr : stdout;
  std::fwrite(line.data(), 1, line.size(), out);
  std::fflush(out);
}

}  // namespace automodel::loggers
