#include "report/records/step_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/timestamp.h"
#include "report/records/flat_record.h"

namespace automodel::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<std::string_view, kNumMetrics> kKeys = {"loss", "grad_norm", "lr", "tps",
                                                             "mem"};
constexpr std::array<std::string_view, kNumMetrics> kTitles = {
    "loss", "gradient norm", "learning rate", "tokens/s", "memory, GiB"};
constexpr std::array<std::string_view, kNumStepParts - 1> kPartKeys = {
    "data_seconds", "forward_backward_seconds", "update_seconds", "wait_seconds"};
constexpr std::array<std::string_view, 3> kPassedOver = {"epoch", "tps_per_gpu",
                                                         "num_label_tokens"};
constexpr size_t kMostOtherKeys = 100;

// Where a record's numbers are put: step, tokens, metrics, parts, further numbers.
constexpr size_t kStep = 0, kTokens = 1, kFirstMetric = 2, kFirstPart = kFirstMetric + kNumMetrics,
                 kFirstExtra = kFirstPart + kPartKeys.size(),
                 kNowhere = std::numeric_limits<size_t>::max();

template <typename Keys>
size_t place_among(const Keys& keys, std::string_view key) {
  return static_cast<size_t>(std::ranges::find(keys, key) - keys.begin());
}

/// The numbers of one record after another. Keys come in the same order in every record, so a key
/// is mostly found where it was in the one before.
class Row final {
 public:
  void begin() {
    std::ranges::fill(values_, kNone);
    seconds = kNone;
    at_ = 0;
  }

  void set(std::string_view key, double value) {
    if (at_ >= order_.size() || order_[at_].first != key) {
      order_.resize(std::max(order_.size(), at_ + 1));
      order_[at_] = {std::string(key), find(key)};
    }
    const size_t place = order_[at_++].second;
    if (place != kNowhere) values_[place] = value;
  }

  double at(size_t place) const { return values_[place]; }
  const std::vector<std::string>& extras() const { return extras_; }
  const std::vector<std::string>& others() const { return others_; }

  double seconds = kNone;

 private:
  size_t find(std::string_view key) {
    if (key == "step") return kStep;
    if (key == "num_tokens_per_step" || key == "tokens_per_step") return kTokens;  // of diffusion
    size_t place = place_among(kKeys, key);
    if (place < kKeys.size()) return kFirstMetric + place;
    place = place_among(kPartKeys, key);
    if (place < kPartKeys.size()) return kFirstPart + place;
    if (place_among(kPassedOver, key) < kPassedOver.size()) return kNowhere;
    place = place_among(extras_, key);
    if (place == extras_.size()) {
      if (place == kMostExtras) return keep_name(key);
      extras_.emplace_back(key);
      values_.push_back(kNone);
    }
    return kFirstExtra + place;
  }

  size_t keep_name(std::string_view key) {
    const bool is_new = place_among(others_, key) == others_.size();
    if (is_new && others_.size() < kMostOtherKeys) others_.emplace_back(key);
    return kNowhere;
  }

  std::vector<double> values_ = std::vector<double>(kFirstExtra, kNone);
  std::vector<std::string> extras_, others_;
  std::vector<std::pair<std::string, size_t>> order_;
  size_t at_ = 0;
};

/// Takes the members of a record from the parser without making values of them.
class RecordReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RecordReader(Row& row) : row_(row) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string& value) override {
    if (depth_ == 1 && key_ == "timestamp") row_.seconds = seconds_of_timestamp(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (depth_ == 1) key_.swap(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool number(double value) {
    if (depth_ == 1) row_.set(key_, value);
    return true;
  }
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  Row& row_;
  std::string key_;
  int depth_ = 0;
};

/// A line with NaN or Infinity, which JSON proper does not have.
bool read_extended(std::string_view line, Row& row) {
  try {
    const Json json = Json::parse(line, "record");
    if (!json.is_object()) return false;
    row.begin();
    for (const auto& [key, value] : json.as_object()) {
      if (value.is_number()) row.set(key, value.as_double());
    }
    row.seconds = seconds_of_timestamp(json.get("timestamp", ""));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// Whether a line has the form of most records.
bool read_flat(std::string_view line, Row& row) {
  row.begin();
  FlatRecord record(line);
  while (const auto member = record.next()) {
    if (member->number) row.set(member->key, *member->number);
    if (member->key == "timestamp") row.seconds = seconds_of_timestamp(member->text);
  }
  return record.is_whole();
}

bool read_json(std::string_view line, Row& row) {
  row.begin();
  RecordReader reader(row);
  return nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
}

/// Whether a line is a record; its numbers are then in `row`.
bool read_record(std::string_view line, Row& row) {
  const bool is_read = read_flat(line, row) || read_json(line, row) || read_extended(line, row);
  return is_read && is_step(row.at(kStep));
}

void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// The column of a key, made of NaN where there is none yet; null where there are too many.
std::vector<double>* extra_column(StepTable& steps, const std::string& key, size_t num_rows) {
  const auto found = std::ranges::find(steps.extras, key, &ExtraColumn::key);
  if (found != steps.extras.end()) return &found->values;
  if (steps.extras.size() < kMostExtras) {
    steps.extras.push_back({key, std::vector<double>(num_rows, kNone)});
    return &steps.extras.back().values;
  }
  const bool is_new = place_among(steps.other_keys, key) == steps.other_keys.size();
  if (is_new && steps.other_keys.size() < kMostOtherKeys) steps.other_keys.push_back(key);
  return nullptr;
}

/// One thread's part of training.jsonl; its tokens are not summed yet.
struct Part {
  StepTable steps;
  Row row;
  int64_t num_unread = 0;

  void read(std::string_view lines) {
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      if (end > 0) read_line(lines.substr(0, end));
      lines.remove_prefix(std::min(end + 1, lines.size()));
    }
    steps.other_keys = row.others();
  }

 private:
  void read_line(std::string_view line) {
    if (!read_record(line, row)) {
      ++num_unread;
      return;
    }
    const double tokens = row.at(kTokens), rate = row.at(kFirstMetric + 3);
    const size_t num_rows = steps.size();
    steps.step.push_back(row.at(kStep));
    steps.seconds.push_back(row.seconds);
    steps.tokens.push_back(std::isnan(tokens) ? 0 : tokens);
    for (size_t i = 0; i < kNumMetrics; ++i) steps.metrics[i].push_back(row.at(kFirstMetric + i));
    for (size_t i = 0; i < kPartKeys.size(); ++i) steps.parts[i].push_back(row.at(kFirstPart + i));
    // A rate is a step's tokens by its seconds.
    steps.parts[kNumStepParts - 1].push_back(rate > 0 ? tokens / rate : kNone);
    for (size_t i = 0; i < row.extras().size(); ++i) {
      extra_column(steps, row.extras()[i], num_rows)->push_back(row.at(kFirstExtra + i));
    }
  }
};

/// Cuts lines into parts of about the same size, between lines.
std::vector<std::string_view> cut(std::string_view lines, size_t num_parts) {
  std::vector<std::string_view> parts;
  const size_t wanted = lines.size() / num_parts + 1;
  while (!lines.empty()) {
    const size_t end = lines.size() <= wanted ? lines.size() : lines.find('\n', wanted);
    const size_t size = std::min(end, lines.size() - 1) + 1;
    parts.push_back(lines.substr(0, size));
    lines.remove_prefix(size);
  }
  return parts;
}

void append_extras(StepTable& steps, size_t num_before, const Part& part) {
  for (const ExtraColumn& column : part.steps.extras) {
    std::vector<double>* values = extra_column(steps, column.key, num_before);
    if (values != nullptr) append(*values, column.values);
  }
  for (const std::string& key : part.steps.other_keys) extra_column(steps, key, num_before);
  for (ExtraColumn& column : steps.extras) column.values.resize(steps.size(), kNone);
}

/// The lowest and the highest of some values in their order; one that is not finite comes first.
std::pair<double, double> extremes(const double* values, size_t count, bool is_nan_absent) {
  size_t low = count, high = count, bad = count;
  for (size_t i = 0; i < count; ++i) {
    if (is_nan_absent && std::isnan(values[i])) continue;
    if (!std::isfinite(values[i])) {
      bad = std::min(bad, i);
      continue;
    }
    if (low == count || values[i] < values[low]) low = i;
    if (high == count || values[i] > values[high]) high = i;
  }
  if (low == count)
    return bad == count ? std::pair(kNone, kNone) : std::pair(values[bad], values[bad]);
  if (bad != count) return {values[bad], values[high]};
  return {values[std::min(low, high)], values[std::max(low, high)]};
}

/// Rows next to each other, of which every `size` become two.
struct Groups {
  size_t begin = 0;
  size_t size = 4;
  size_t number = 0;
};

/// Puts `pair_of(first row)` in place of each group; what follows them moves up.
template <typename PairOf>
void thin_column(std::vector<double>& column, const Groups& groups, const PairOf& pair_of) {
  double* const rows = column.data() + groups.begin;
  for (size_t i = 0; i < groups.number; ++i) {
    const auto [first, second] = pair_of(rows + i * groups.size);
    rows[2 * i] = first;
    rows[2 * i + 1] = second;
  }
  const auto begin = column.begin() + static_cast<std::ptrdiff_t>(groups.begin);
  column.erase(begin + static_cast<std::ptrdiff_t>(2 * groups.number),
               begin + static_cast<std::ptrdiff_t>(groups.size * groups.number));
}

std::pair<double, double> means(const double* values, size_t count) {
  double sum = 0;
  int number = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    ++number;
  }
  const double mean = number > 0 ? sum / number : kNone;
  return {mean, mean};
}

void thin_groups(StepTable& steps, const Groups& groups) {
  const size_t size = groups.size;
  // A group's places on an axis are those of its middle and last row: sums up to there stay right.
  const auto places = [&](const double* rows) {
    return std::pair(rows[size / 2 - 1], rows[size - 1]);
  };
  const auto lows_and_highs = [&](bool is_nan_absent) {
    return [=](const double* rows) { return extremes(rows, size, is_nan_absent); };
  };
  for (auto* column : {&steps.step, &steps.seconds, &steps.tokens}) {
    thin_column(*column, groups, places);
  }
  for (auto& column : steps.metrics) thin_column(column, groups, lows_and_highs(false));
  for (auto& column : steps.parts) {
    thin_column(column, groups, [&](const double* rows) { return means(rows, size); });
  }
  for (ExtraColumn& column : steps.extras) thin_column(column.values, groups, lows_and_highs(true));
}

}  // namespace

std::string_view metric_key(Metric metric) {
  return kKeys[static_cast<size_t>(metric)];
}

std::string_view metric_title(Metric metric) {
  return kTitles[static_cast<size_t>(metric)];
}

const std::vector<double>* StepTable::extra(std::string_view key) const {
  const auto found = std::ranges::find(extras, key, &ExtraColumn::key);
  return found == extras.end() ? nullptr : &found->values;
}

bool is_step(double value) {
  constexpr double kMost = 9007199254740992.0;  // 2^53: whole numbers up to it are doubles
  return value >= 0 && value <= kMost;
}

int64_t add_steps(std::string_view lines, StepTable& steps) {
  constexpr size_t kLeastOfAThread = 1 << 20, kMostThreads = 16;
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  const auto pieces = cut(lines, std::clamp<size_t>(lines.size() / kLeastOfAThread, 1, cores));
  std::vector<Part> parts(pieces.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < pieces.size(); ++i) {
      threads.emplace_back([&, i] { parts[i].read(pieces[i]); });
    }
    if (!pieces.empty()) parts[0].read(pieces[0]);
  }
  int64_t num_unread = 0;
  for (const Part& part : parts) {
    const size_t num_before = steps.size();
    append(steps.step, part.steps.step);
    append(steps.seconds, part.steps.seconds);
    double sum = steps.tokens.empty() ? 0 : steps.tokens.back();
    for (const double tokens : part.steps.tokens) steps.tokens.push_back(sum += tokens);
    for (size_t i = 0; i < kNumMetrics; ++i) append(steps.metrics[i], part.steps.metrics[i]);
    for (size_t i = 0; i < kNumStepParts; ++i) append(steps.parts[i], part.steps.parts[i]);
    append_extras(steps, num_before, part);
    num_unread += part.num_unread;
  }
  return num_unread;
}

void thin(StepTable& steps, const RowLimits& limits) {
  AM_CHECK(limits.num_rows >= 4 * limits.num_exact, limits.num_rows, " rows");
  if (steps.size() <= limits.num_rows) return;
  if (steps.span > 1) {  // records that have come since become rows as those before them
    Groups groups{steps.num_thinned, 2 * steps.span, 0};
    groups.number = (steps.size() - steps.num_thinned - limits.num_exact) / groups.size;
    thin_groups(steps, groups);
    steps.num_thinned += 2 * groups.number;
  }
  while (4 * steps.size() > 3 * limits.num_rows) {  // then there is room for a while
    if (steps.span == 1) steps.num_thinned = steps.size() - limits.num_exact;
    const Groups groups{0, 4, steps.num_thinned / 4};
    if (groups.number == 0) return;
    thin_groups(steps, groups);
    steps.num_thinned -= 2 * groups.number;
    steps.span *= 2;
  }
}

}  // namespace automodel::report
