#include "loggers/console.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/error.h"
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

/// spdlog's level of one of Python's numbers, or the lowest that such a number lets through.
spdlog::level::level_enum level_of(int number) {
  if (number > kErrorLevel) return spdlog::level::critical;
  if (number > kWarningLevel) return spdlog::level::err;
  return number > kInfoLevel ? spdlog::level::warn : spdlog::level::info;
}

/// A line's level in Python's words. Coloured here and not by spdlog's sinks: they write a line in
/// pieces, which those of other ranks would come between.
class LevelName final : public spdlog::custom_flag_formatter {
 public:
  explicit LevelName(bool has_color) : has_color_(has_color) {}

  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const bool is_error = message.level >= spdlog::level::err;
    const bool is_warning = message.level == spdlog::level::warn;
    const char* const name = is_error ? "ERROR" : is_warning ? "WARNING" : "INFO";
    const char* const color = is_error ? "\033[31m" : is_warning ? "\033[33m" : "\033[32m";
    const std::string text = has_color_ ? cat(color, name, "\033[0m") : name;
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LevelName>(has_color_);
  }

 private:
  bool has_color_;
};

std::unique_ptr<spdlog::formatter> line_formatter(bool has_color) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('*', has_color);
  formatter->set_pattern("%Y-%m-%d %H:%M:%S | %* | automodel | %v");
  return formatter;
}

spdlog::sink_ptr open_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_formatter(line_formatter(false));
    return sink;
  } catch (const spdlog::spdlog_ex& error) {
    throw InputError(cat("cannot write the log file ", path, ": ", error.what()));
  }
}

/// Columns of the terminal at stderr, as it is now.
int terminal_columns() {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

/// A text that stays on one line: one that wraps could not be erased.
std::string cut_to_columns(std::string_view text, int columns) {
  size_t end = 0;
  for (int column = 1; end < text.size() && column < columns; ++column) {
    ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
  }
  return std::string(text.substr(0, end));
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

/// Two loggers that share the file: what is said, and what is wrong.
struct ConsoleReporter::Sinks {
  explicit Sinks(const ConsoleOptions& options)
      : out("automodel", std::make_shared<spdlog::sinks::stdout_sink_mt>()),
        err("automodel", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    const spdlog::sink_ptr file = options.file.empty() ? nullptr : open_file(options.file);
    for (spdlog::logger* logger : {&out, &err}) {
      logger->set_formatter(line_formatter(options.has_color));
      if (file != nullptr) logger->sinks().push_back(file);
      logger->set_level(level_of(options.level));
      logger->flush_on(spdlog::level::trace);
      // A full disk ends no run: what is said stays on the terminal.
      logger->set_error_handler([](const std::string& text) {
        write_all(stderr, cat("a line of the log could not be written: ", text, "\n"));
      });
    }
  }

  spdlog::logger out, err;
};

ConsoleReporter::ConsoleReporter(const ConsoleOptions& options)
    : options_(options), sinks_(std::make_unique<Sinks>(options)) {}

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
  if (!shows_progress()) return;
  const std::lock_guard lock(mutex_);
  if (text.empty() && progress_.empty()) return;
  progress_ = cut_to_columns(text, options_.columns > 0 ? options_.columns : terminal_columns());
  write_all(stderr, cat(kEraseLine, progress_));
}

void ConsoleReporter::print(int level, std::string_view text) {
  spdlog::logger& logger = level >= kWarningLevel ? sinks_->err : sinks_->out;
  if (!logger.should_log(level_of(level))) return;
  const bool has_rank = level >= kErrorLevel && options_.world_size > 1;
  const std::string line = cat(has_rank ? cat("rank ", options_.rank, ": ") : "", text);
  const std::lock_guard lock(mutex_);
  if (!progress_.empty()) write_all(stderr, kEraseLine);
  logger.log(level_of(level), line);
  if (!progress_.empty()) write_all(stderr, progress_);
}

}  // namespace automodel::loggers
