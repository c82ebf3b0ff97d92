#include "report/page/memory_section.h"

#include <algorithm>
#include <cmath>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/page/html_table.h"

namespace automodel::report {

namespace {

/// The parts of an event or a plan as names and bytes; of one name they are summed up.
std::vector<std::pair<std::string, double>> parts_of(const Json* holder) {
  std::vector<std::pair<std::string, double>> parts;
  const Json* list = holder == nullptr ? nullptr : holder->find("parts");
  if (list == nullptr || !list->is_array()) return parts;
  for (const Json& part : list->as_array()) {
    const std::string name = text_of(part, "name");
    const double bytes = number_of(part, "bytes");
    if (name.empty() || !(bytes >= 0)) continue;
    const auto known = std::ranges::find(parts, name, &std::pair<std::string, double>::first);
    if (known == parts.end()) {
      parts.emplace_back(name, bytes);
    } else {
      known->second += bytes;
    }
  }
  return parts;
}

/// The event with the highest peak; null when there is none.
const RunEvent* highest_event(const RecordedRun& run) {
  const RunEvent* highest = nullptr;
  for (const RunEvent& event : run.events) {
    if (event.name != "memory") continue;
    const double bytes = number_of(event.fields, "peak_bytes");
    if (!std::isfinite(bytes)) continue;
    if (highest == nullptr || bytes >= number_of(highest->fields, "peak_bytes")) highest = &event;
  }
  return highest;
}

std::string part_row(const MemoryPart& part) {
  const bool has_both = part.planned > 0 && std::isfinite(part.measured);
  return number_row(part.name, {bytes_text(part.planned), bytes_text(part.measured),
                                has_both ? percent_text(part.measured / part.planned) : ""});
}

/// Bars of what was planned and what was measured, on one scale.
std::string bars(const std::vector<MemoryPart>& parts, double planned, double measured) {
  constexpr size_t kColors = 8;
  double sum_planned = 0, sum_measured = 0;
  for (const MemoryPart& part : parts) {
    sum_planned += std::isfinite(part.planned) ? part.planned : 0;
    sum_measured += std::isfinite(part.measured) ? part.measured : 0;
  }
  const double most =
      std::max({sum_planned, sum_measured, planned > 0 ? planned : 0, measured > 0 ? measured : 0});
  if (!(most > 0)) return "";
  std::string out;
  for (const bool is_plan : {true, false}) {
    std::vector<BarPart> bar;
    double sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const double bytes = is_plan ? parts[i].planned : parts[i].measured;
      if (!std::isfinite(bytes)) continue;
      bar.push_back({cat("c", i % kColors), bytes / most});
      sum += bytes;
    }
    const double whole = is_plan ? planned : measured;
    if (whole > sum) bar.push_back({"rest", (whole - sum) / most});
    if (bar.empty()) continue;
    out += cat("<p class=\"caption\">", is_plan ? "planned " : "measured ",
               bytes_text(std::isfinite(whole) ? whole : sum), "</p>", share_bar(bar));
  }
  return out;
}

/// The colours of the bars' parts.
std::string keys(const std::vector<MemoryPart>& parts) {
  constexpr size_t kColors = 8;
  std::vector<std::string> texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    texts.push_back(
        cat("<span class=\"c", i % kColors, "\">&#9632;</span> ", html_text(parts[i].name)));
  }
  texts.emplace_back("<span class=\"rest\">&#9632;</span> not in any part");
  return parts.empty() ? "" : cat("<p>", join(texts, ", "), "</p>\n");
}

/// The plan's sums beside the peak.
std::string sums(const RecordedRun& run) {
  constexpr std::pair<std::string_view, std::string_view> kSums[] = {
      {"program_bytes", "for the program itself"},
      {"loading_bytes", "while it loads"},
      {"step_bytes", "in a step"},
      {"saving_bytes", "while it saves"},
      {"host_bytes", "of the host"}};
  std::string rows;
  for (const auto& [key, name] : kSums) {
    const double bytes = number_at(run.description, cat("plan.", key));
    if (bytes > 0) rows += part_row({cat("planned ", name), bytes, std::nan("")});
  }
  return rows + part_row({"most", planned_peak(run), measured_peak(run)});
}

/// What the plan leaves out, or why there is none.
std::string plan_note(const Json& description) {
  constexpr size_t kMost = 20;
  const Json* plan = description.find("plan");
  if (plan == nullptr) return "<p class=\"note\">The plan is not recorded.</p>\n";
  const std::string reason = text_of(*plan, "reason");
  if (!reason.empty()) return cat("<p class=\"note\">No plan: ", html_text(reason), "</p>\n");
  const Json* others = plan->find("not_counted");
  if (others == nullptr || !others->is_array() || others->as_array().empty()) return "";
  std::vector<std::string> names;
  for (const Json& other : others->as_array()) names.push_back(value_text(other));
  return cat("<p class=\"note\">Not counted by the plan: ", html_text(join_first(names, kMost)),
             "</p>\n");
}

std::string memory_of(const RecordedRun& run) {
  const std::vector<MemoryPart> parts = memory_parts(run);
  const RunEvent* event = highest_event(run);
  std::string rows;
  for (const MemoryPart& part : parts) rows += part_row(part);
  std::string note = "Parts were not measured.";
  if (event != nullptr) {
    const bool is_on_cpu = text_of(run.description, "device") == "cpu";
    note = cat("Measured on rank 0", event->step ? cat(", parts at step ", *event->step) : "",
               ", where the peak was highest.",
               is_on_cpu ? " On a CPU the program and its libraries are in it." : "");
  }
  return cat("<h3>", html_text(run.name), "</h3>\n",
             bars(parts, planned_peak(run), measured_peak(run)), keys(parts),
             number_table({"", "planned", "measured", "of the plan"}, rows + sums(run)),
             "<p class=\"note\">", note, "</p>\n", plan_note(run.description));
}

}  // namespace

std::vector<MemoryPart> memory_parts(const RecordedRun& run) {
  std::vector<MemoryPart> parts;
  for (const auto& [name, bytes] : parts_of(run.description.find("plan"))) {
    parts.push_back({name, bytes, std::nan("")});
  }
  const RunEvent* event = highest_event(run);
  for (const auto& [name, bytes] : parts_of(event == nullptr ? nullptr : &event->fields)) {
    const auto planned = std::ranges::find(parts, name, &MemoryPart::name);
    if (planned == parts.end()) {
      parts.push_back({name, std::nan(""), bytes});
    } else {
      planned->measured = bytes;
    }
  }
  return parts;
}

double measured_peak(const RecordedRun& run) {
  constexpr double kGib = 1 << 30;
  const RunEvent* event = highest_event(run);
  const double in_steps = highest_of(run.steps.of(Metric::kMemory)) * kGib;
  return event == nullptr ? in_steps : std::fmax(number_of(event->fields, "peak_bytes"), in_steps);
}

double planned_peak(const RecordedRun& run) {
  const double program = number_at(run.description, "plan.program_bytes");
  return number_at(run.description, "plan.most_bytes") + (program > 0 ? program : 0);
}

std::string memory_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const bool has_plan = run.description.find("plan") != nullptr;
    if (has_plan || highest_event(run) != nullptr) out += memory_of(run);
  }
  return out.empty() ? "" : cat("<h2>Memory, planned and measured</h2>\n", out);
}

}  // namespace automodel::report
