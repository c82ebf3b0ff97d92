#include "report/facts/marks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"

namespace automodel::report {

namespace {

size_t kind_of(std::string_view event) {
  return static_cast<size_t>(std::ranges::find(kMarkKinds, event, &MarkKind::event) -
                             kMarkKinds.begin());
}

/// The first row whose step is not before this one; the number of rows when there is none.
size_t row_of_step(const StepTable& steps, int64_t step) {
  const auto found =
      std::lower_bound(steps.step.begin(), steps.step.end(), static_cast<double>(step));
  return static_cast<size_t>(found - steps.step.begin());
}

/// Where events lie among the steps of a run. A resumed run drops the records of the steps that it
/// does again, so the steps say which process a record is of, and no clock is needed for it.
class Rows final {
 public:
  explicit Rows(const RecordedRun& run) : run_(run) {}

  std::optional<size_t> of(size_t event) const {
    const StepTable& steps = run_.steps;
    if (steps.size() == 0) return std::nullopt;
    const RunEvent& it = run_.events.events()[event];
    const size_t last = steps.size() - 1;
    if (it.step) return std::min(row_of_step(steps, *it.step), last);
    const size_t end = end_of_process(event);
    if (end == 0) return std::nullopt;
    if (it.name == "failure" || it.name == "preempted") return end - 1;
    size_t row = end - 1;
    const size_t first = first_row(event);
    while (row > first && steps.seconds[row] > it.seconds) --row;
    return row;
  }

 private:
  /// The row after the last one of the process that had this event.
  size_t end_of_process(size_t event) const {
    const auto& events = run_.events.events();
    for (size_t i = event + 1; i < events.size(); ++i) {
      if (events[i].name == "resume" && events[i].step)
        return row_of_step(run_.steps, *events[i].step);
    }
    return run_.steps.size();
  }
  /// The row of the event before it that has a step.
  size_t first_row(size_t event) const {
    const auto& events = run_.events.events();
    for (size_t i = event; i-- > 0;) {
      if (events[i].step) return row_of_step(run_.steps, *events[i].step);
    }
    return 0;
  }

  const RecordedRun& run_;
};

/// Events of a kind that are near to each other.
struct Cluster {
  size_t row = 0;
  int64_t number = 0;
  const RunEvent* first = nullptr;
  const RunEvent* last = nullptr;
};

EventMark mark_of(const Cluster& cluster, size_t kind) {
  constexpr size_t kMostText = 160;
  const RunEvent& event = *cluster.first;
  EventMark mark{cluster.row, kind, std::string(kMarkKinds[kind].event), ""};
  if (cluster.number > 1) {
    mark.short_text = cat(cluster.number, " x ", mark.short_text);
    if (event.step && cluster.last->step) {
      mark.short_text += cat(", steps ", *event.step, " to ", *cluster.last->step);
    }
    mark.text = mark.short_text;
    return mark;
  }
  if (event.step) mark.short_text += cat(", step ", *event.step);
  const std::string detail = shortened(detail_of(event), kMostText);
  mark.text = cat(mark.short_text, ", ", time_text(event.seconds), " UTC",
                  detail.empty() ? "" : ": ", detail);
  return mark;
}

}  // namespace

std::vector<EventMark> event_marks(const RecordedRun& run, size_t most) {
  constexpr size_t kPlaces = 100;  // along the axis, in which events of a kind are one mark
  const Rows rows(run);
  const auto& events = run.events.events();
  std::map<std::pair<size_t, size_t>, Cluster> clusters;  // by kind and place
  for (size_t i = 0; i < events.size(); ++i) {
    const size_t kind = kind_of(events[i].name);
    if (kind == kMarkKinds.size()) continue;
    const auto row = rows.of(i);
    if (!row) continue;
    Cluster& cluster = clusters[{kind, *row * kPlaces / run.steps.size()}];
    if (cluster.number++ == 0) {
      cluster.row = *row;
      cluster.first = &events[i];
    }
    cluster.last = &events[i];
  }
  std::vector<EventMark> marks;
  for (const auto& [place, cluster] : clusters) {  // the kinds that come first are kept
    if (marks.size() < most) marks.push_back(mark_of(cluster, place.first));
  }
  std::ranges::stable_sort(marks, {}, &EventMark::row);
  return marks;
}

}  // namespace automodel::report
