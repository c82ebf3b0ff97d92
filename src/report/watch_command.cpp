#include "report/watch_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "report/run_facts.h"
#include "report/run_follower.h"
#include "report/watch_picture.h"

namespace automodel::report {

namespace {

// Between pictures; longer where a picture takes long, so that no more than a fiftieth of a core is
// taken.
constexpr double kPauseSeconds = 1, kPauseOfWork = 60;

using Followers = std::vector<std::unique_ptr<RunFollower>>;

int number_of(const char* variable, int other) {
  const char* text = std::getenv(variable);
  const auto number = text == nullptr ? std::nullopt : parse_int(text);
  return number && *number > 0 && *number < 10000 ? static_cast<int>(*number) : other;
}

Terminal terminal_here() {
  constexpr int kLeastWidth = 40, kLeastHeight = 12;
  Terminal terminal{number_of("COLUMNS", 80), number_of("LINES", 24), false};
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    terminal.width = size.ws_col;
    terminal.height = size.ws_row;
  }
  terminal.width = std::max(terminal.width, kLeastWidth);
  terminal.height = std::max(terminal.height, kLeastHeight);
  const char* no_color = std::getenv("NO_COLOR");
  terminal.has_color = ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || no_color[0] == '\0');
  return terminal;
}

void check_output(const std::ostream& out) {
  if (!out) throw InputError("cannot write: is the disk full, or the reader gone?");
}

void print_picture(const Followers& followers, std::ostream& out) {
  std::vector<const RecordedRun*> runs;
  for (const auto& follower : followers) runs.push_back(&follower->run());
  for (const std::string& line : watch_picture(runs, terminal_here())) out << line << "\n";
  out << std::flush;
  check_output(out);
}

bool have_ended(const Followers& followers) {
  return std::ranges::all_of(followers, [](const auto& run) { return run->has_ended(); });
}

/// Prints steps as they come. A step that a resumed run repeats is printed again.
class LinePrinter final {
 public:
  LinePrinter(const Followers& followers, std::ostream& out)
      : followers_(followers), num_printed_(followers.size(), 0), out_(out) {}

  void print() {
    for (size_t i = 0; i < followers_.size(); ++i) {
      const RecordedRun& run = followers_[i]->run();
      num_printed_[i] = std::min(num_printed_[i], run.steps.size());
      for (size_t& row = num_printed_[i]; row < run.steps.size(); ++row) {
        out_ << step_text(run, row) << "\n";
      }
    }
    out_ << std::flush;
    check_output(out_);
  }

  void print_states() {
    for (const auto& follower : followers_) {
      const RecordedRun& run = follower->run();
      const std::string state = run.state() == RunState::kUnknown
                                    ? "ended without saying how: was it killed?"
                                    : state_text(run);
      const std::string text = cat(run.name, " | ", state);
      out_ << fitted(text, static_cast<int>(text.size())) << "\n";
    }
    out_ << std::flush;
  }

 private:
  const Followers& followers_;
  std::vector<size_t> num_printed_;
  std::ostream& out_;
};

}  // namespace

int watch(const WatchOptions& options, std::ostream& out) {
  Followers followers;
  const std::vector<std::string> names = run_names(options.folders);
  for (size_t i = 0; i < names.size(); ++i) {
    followers.push_back(std::make_unique<RunFollower>(options.folders[i], names[i]));
  }
  const bool is_drawn = options.is_once || ::isatty(STDOUT_FILENO) == 1;
  LinePrinter lines(followers, out);
  bool has_changed = true;
  while (true) {
    const double begin = monotonic_seconds();
    // Asked before the files are read, so that an ended run's last lines are seen.
    const bool is_last = options.is_once || have_ended(followers);
    for (const auto& follower : followers) has_changed |= follower->update();
    if (is_drawn && has_changed) {
      if (!options.is_once) out << "\x1b[H\x1b[2J";
      print_picture(followers, out);
    } else if (!is_drawn) {
      lines.print();
    }
    has_changed = false;
    if (is_last) break;
    const double work = monotonic_seconds() - begin;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::max(kPauseSeconds, kPauseOfWork * work)));
  }
  if (!is_drawn) lines.print_states();
  return 0;
}

}  // namespace automodel::report
