#include "report/watch/watch_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "report/facts/run_facts.h"
#include "report/records/run_follower.h"
#include "report/watch/resize_signal.h"
#include "report/watch/watch_picture.h"

namespace automodel::report {

namespace {

// Between pictures; longer where a picture takes long, so that no more than a fiftieth of a core is
// taken.
constexpr double kPauseSeconds = 1, kPauseOfWork = 60;

using Followers = std::vector<std::unique_ptr<RunFollower>>;

/// Whether standard output is a terminal that knows colours and how to move the cursor.
bool takes_pictures() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

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
  terminal.has_color = takes_pictures() && (no_color == nullptr || no_color[0] == '\0');
  return terminal;
}

void check_output(const std::ostream& out) {
  if (!out) throw InputError("cannot write: is the disk full, or the reader gone?");
}

/// Over the picture before, where there is one: each line replaces one, and what is left is
/// cleared.
void print_picture(const Followers& followers, bool is_over, std::ostream& out) {
  std::vector<const RecordedRun*> runs;
  for (const auto& follower : followers) runs.push_back(&follower->run());
  if (is_over) out << "\x1b[H";
  for (const std::string& line : watch_picture(runs, terminal_here())) {
    // Cleared before: behind a line that fills the terminal the cursor stands on its last
    // character.
    out << (is_over ? "\x1b[K" : "") << line << "\n";
  }
  if (is_over) out << "\x1b[J";
  out << std::flush;
  check_output(out);
}

bool have_ended(const Followers& followers) {
  return std::ranges::all_of(followers, [](const auto& run) { return run->has_ended(); });
}

/// Prints steps and events as they come. A step that a resumed run repeats is printed again.
class LinePrinter final {
 public:
  LinePrinter(const Followers& followers, std::ostream& out)
      : followers_(followers), printed_(followers.size()), out_(out) {}

  void print() {
    for (size_t i = 0; i < followers_.size(); ++i) print_run(followers_[i]->run(), printed_[i]);
    out_ << std::flush;
    check_output(out_);
  }

  void print_states() {
    for (const auto& follower : followers_) {
      // Why it failed has been said by its event.
      const RecordedRun& run = follower->run();
      print_line(run, run.state() == RunState::kFailed ? "failed" : state_text(run));
    }
    out_ << std::flush;
  }

 private:
  /// What of a run is printed.
  struct Printed {
    size_t num_steps = 0;
    std::vector<double> seconds;  ///< when the steps that are printed were done
    int64_t num_step_rewrites = 0;
    int64_t num_events = 0;
    std::string note;
  };

  void print_line(const RecordedRun& run, const std::string& what) {
    const std::string text = cat(run.name, " | ", what);
    out_ << fitted(text, static_cast<int>(text.size())) << "\n";
  }

  /// Events come between the steps by their times.
  void print_run(const RecordedRun& run, Printed& printed) {
    const std::string note = format_note(run.description);
    if (std::exchange(printed.note, note) != note && !note.empty()) print_line(run, note);
    if (std::exchange(printed.num_step_rewrites, run.num_step_rewrites) != run.num_step_rewrites) {
      const auto same = std::ranges::mismatch(printed.seconds, run.steps.seconds).in1;
      printed.num_steps = static_cast<size_t>(same - printed.seconds.begin());
      printed.seconds.resize(printed.num_steps);
    }
    if (printed.num_events > run.events.count()) printed.num_events = 0;
    std::vector<const RunEvent*> events;
    for (const RunEvent& event : run.events) {
      if (event.number >= printed.num_events && is_notable(event.name)) events.push_back(&event);
    }
    printed.num_events = run.events.count();
    size_t next = 0;
    for (size_t& row = printed.num_steps; row < run.steps.size(); ++row) {
      while (next < events.size() && !(events[next]->seconds > run.steps.seconds[row])) {
        out_ << event_text(run, *events[next++]) << "\n";
      }
      out_ << step_text(run, row) << "\n";
      printed.seconds.push_back(run.steps.seconds[row]);
    }
    for (; next < events.size(); ++next) out_ << event_text(run, *events[next]) << "\n";
  }

  const Followers& followers_;
  std::vector<Printed> printed_;
  std::ostream& out_;
};

}  // namespace

int watch(const WatchOptions& options, std::ostream& out) {
  constexpr size_t kDrawnRows = 1 << 16;  // a picture has some hundred columns
  const bool is_drawn = options.is_once || takes_pictures();
  Followers followers;
  const std::vector<std::string> names = run_names(options.folders);
  for (size_t i = 0; i < names.size(); ++i) {
    FollowerLimits limits;
    if (is_drawn) limits.num_rows = kDrawnRows;
    followers.push_back(std::make_unique<RunFollower>(options.folders[i], names[i], limits));
  }
  const ResizeSignal resize;
  LinePrinter lines(followers, out);
  bool has_changed = true;
  while (true) {
    const double begin = monotonic_seconds();
    // Asked before the files are read, so that an ended run's last lines are seen.
    const bool is_last = options.is_once || have_ended(followers);
    for (const auto& follower : followers) has_changed |= follower->update();
    if (is_drawn && has_changed) {
      print_picture(followers, !options.is_once, out);
    } else if (!is_drawn) {
      lines.print();
    }
    if (is_last) break;
    const double work = monotonic_seconds() - begin;
    has_changed = resize.wait(std::max(kPauseSeconds, kPauseOfWork * work));
  }
  if (!is_drawn) lines.print_states();
  return 0;
}

}  // namespace automodel::report
