#include "report/page/data_section.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/page/html_table.h"

namespace automodel::report {

namespace {

constexpr size_t kMostBuckets = 64;

/// Documents of a length up to a bound.
struct Bucket {
  double bound = 0;
  double count = 0;
};

/// The buckets of an event's `lengths`, [[upper bound, count], ...]; what has another form is
/// passed over.
std::vector<Bucket> buckets_of(const Json& event) {
  std::vector<Bucket> buckets;
  const Json* lengths = event.find("lengths");
  if (lengths == nullptr || !lengths->is_array()) return buckets;
  for (const Json& pair : lengths->as_array()) {
    if (!pair.is_array() || pair.size() != 2) continue;
    const Json &bound = pair.as_array()[0], &count = pair.as_array()[1];
    if (!bound.is_number() || !count.is_number() || !(count.as_double() >= 0)) continue;
    if (buckets.size() < kMostBuckets) buckets.push_back({bound.as_double(), count.as_double()});
  }
  return buckets;
}

/// A column a bucket.
std::string histogram(const std::vector<Bucket>& buckets) {
  constexpr int kLeft = 8, kTop = 18, kHeight = 150, kWidth = 700, kMostLabels = 12;
  double most = 0;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.count);
  if (most <= 0) return "";
  const auto number = static_cast<int>(buckets.size());
  const int step = std::min(kWidth / number, 80), every = number / kMostLabels + 1;
  std::string out =
      cat("<svg class=\"histogram\" viewBox=\"0 0 ", kWidth + 2 * kLeft,
          " 190\" role=\"img\" aria-label=\"lengths of the documents, which the table "
          "below has\"><g class=\"c0\">");
  std::string labels;
  for (int i = 0; i < number; ++i) {
    const Bucket& bucket = buckets[static_cast<size_t>(i)];
    const auto height = static_cast<int>(std::lround(kHeight * bucket.count / most));
    const int x = kLeft + i * step;
    out +=
        cat("<rect x=\"", x, "\" y=\"", kTop + kHeight - height, "\" width=\"",
            std::max(step - 2, 1), "\" height=\"", height, "\"><title>up to ",
            short_number(bucket.bound), " tokens: ", short_number(bucket.count), "</title></rect>");
    if (i % every != 0) continue;
    labels += cat("<text x=\"", x + step / 2, "\" y=\"", kTop + kHeight + 16,
                  "\" text-anchor=\"middle\">", short_number(bucket.bound), "</text>");
  }
  return cat(out, "</g><g aria-hidden=\"true\"><path class=\"base\" d=\"M", kLeft, " ",
             kTop + kHeight, "h", number * step, "\"/><text x=\"", kLeft, "\" y=\"12\">",
             "most: ", short_number(most), "</text>", labels, "</g></svg>");
}

std::string lengths_of(const Json& event) {
  const std::vector<Bucket> buckets = buckets_of(event);
  double sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.count;
  if (sum <= 0) return "";
  std::string rows;
  for (const Bucket& bucket : buckets) {
    rows += number_row(cat("up to ", short_number(bucket.bound)),
                       {short_number(bucket.count), percent_text(bucket.count / sum)});
  }
  return cat("<p class=\"caption\">documents by their number of tokens</p>", histogram(buckets),
             "<details><summary>lengths as numbers</summary>\n",
             number_table({"tokens", "documents", "share"}, rows), "</details>\n");
}

/// A number with its name; "" where it is not recorded.
std::string count_row(const Json& event, std::string_view key, const char* name) {
  const double value = number_of(event, key);
  return std::isfinite(value) ? number_row(name, {short_number(value), ""}) : "";
}

/// A number and its share of `all`.
std::string share_row(const Json& event, std::string_view key, const char* name, double all) {
  const double value = number_of(event, key);
  if (!std::isfinite(value)) return "";
  return number_row(name, {short_number(value), all > 0 ? percent_text(value / all) : ""});
}

std::string trained_on(const Json& event) {
  const double tokens = number_of(event, "num_tokens");
  const double padding = number_of(event, "num_padding_tokens");
  return cat(count_row(event, "num_sequences", "sequences"),
             count_row(event, "num_documents", "documents"),
             count_row(event, "num_tokens", "tokens"),
             share_row(event, "num_label_tokens", "of them labelled", tokens),
             share_row(event, "num_padding_tokens", "padding besides", tokens + padding));
}

/// "num_packs" as "packs".
std::string spoken(std::string_view key) {
  if (key.starts_with("num_")) key.remove_prefix(4);
  return replace_all(std::string(key), "_", " ");
}

/// All numbers of what was prepared, whatever they are called.
std::string prepared(const Json& description) {
  const Json* data = description.find("data");
  const Json* facts = data == nullptr ? nullptr : data->find("prepared");
  std::string rows;
  if (facts == nullptr || !facts->is_object()) return rows;
  for (const auto& [key, value] : facts->as_object()) {
    if (!value.is_number()) continue;
    const double number = value.as_double();
    const bool is_share = key == "fill" || key.ends_with("_share");
    rows += number_row(cat("prepared: ", spoken(key)), {is_share ? "" : short_number(number),
                                                        is_share ? percent_text(number) : ""});
  }
  return rows;
}

}  // namespace

std::string data_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const RunEvent* event = run.events.latest("data");
    const std::string rows =
        cat(prepared(run.description), event == nullptr ? "" : trained_on(event->fields));
    const std::string lengths = event == nullptr ? "" : lengths_of(event->fields);
    if (rows.empty() && lengths.empty()) continue;
    const std::string when =
        event != nullptr && event->step
            ? cat("<p class=\"note\">Of rank 0 since its last start, as of step ", *event->step,
                  ".</p>\n")
            : "";
    out += cat("<h3>", html_text(run.name), "</h3>\n",
               rows.empty() ? "" : number_table({"", "number", "share"}, rows), lengths, when);
  }
  return out.empty() ? "" : cat("<h2>Data</h2>\n", out);
}

}  // namespace automodel::report
