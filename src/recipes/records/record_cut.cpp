#include "recipes/records/record_cut.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

/// The step of a line; nullopt for one that is torn or no record.
std::optional<int64_t> step_of(const std::string& line) {
  try {
    const Json record = Json::parse(line, "");
    const Json* const step = record.find("step");
    return step == nullptr || !step->is_int() ? std::nullopt : std::optional(step->as_int());
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// How every record of a run begins.
constexpr std::string_view kRecordBegin = "{\"step\":";

/// Whether a line is a record of a run, whole. Lines of a user's data may have a step, but not
/// before the time at which it ended.
bool is_record(const std::string& line) {
  if (!line.starts_with(kRecordBegin)) return false;
  try {
    const Json record = Json::parse(line, "");
    const Json* const time = record.find("timestamp");
    return time != nullptr && time->is_string();
  } catch (const InputError&) {
    return false;
  }
}

/// Whether a text is what a crash leaves of a log that has no whole line: a part of its first one,
/// or zeros.
bool is_torn_record(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty() || text.front() == '\0' || kRecordBegin.starts_with(text)) return true;
  const bool is_line = text.find('\n') == std::string_view::npos;
  return is_line && text.starts_with(kRecordBegin) && !step_of(std::string(text));
}

struct RecordLine {
  uint64_t begin = 0;
  uint64_t end = 0;  ///< behind its newline
  int64_t step = 0;
};

/// The records of a file at any position.
class RecordLines final {
 public:
  explicit RecordLines(const std::string& path) : file_(path) {}

  uint64_t size() const { return file_.size(); }

  /// The first record that begins at `from` or behind it, and before `until`.
  std::optional<RecordLine> next(uint64_t from, uint64_t until) {
    if (from > 0 && (from = line_end(from - 1)) == 0) return std::nullopt;
    while (from < until) {
      const uint64_t end = line_end(from);
      if (end == 0) return std::nullopt;  // no newline: torn
      const auto step = step_of(read(from, end - 1));
      if (step) return RecordLine{from, end, *step};
      from = end;
    }
    return std::nullopt;
  }

 private:
  /// Where the line ends that `at` is in, behind its newline; 0 without one.
  uint64_t line_end(uint64_t at) {
    while (at < size()) {
      hold(at);
      const size_t newline = piece_.find('\n', at - begin_);
      if (newline != std::string::npos) return begin_ + newline + 1;
      at = begin_ + piece_.size();
    }
    return 0;
  }

  std::string read(uint64_t begin, uint64_t end) {
    const bool is_held = begin >= begin_ && end <= begin_ + piece_.size();
    return is_held ? piece_.substr(begin - begin_, end - begin) : file_.read(begin, end - begin);
  }

  void hold(uint64_t at) {
    constexpr uint64_t kPiece = 1 << 12;
    if (at >= begin_ && at < begin_ + piece_.size()) return;
    piece_ = file_.read(at, kPiece);
    begin_ = at;
  }

  DataFile file_;
  std::string piece_;  // of the file, from begin_ on
  uint64_t begin_ = 0;
};

/// Where the file is to be cut; nullopt where steps do not ascend.
std::optional<uint64_t> find_cut(RecordLines& lines, int64_t first_step) {
  constexpr uint64_t kFew = 1 << 14;
  uint64_t begin = 0, end = lines.size();  // the cut is in there
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  while (end - begin > kFew) {
    const uint64_t middle = begin + (end - begin) / 2;
    const auto line = lines.next(middle, end);
    if (!line) {
      end = middle;  // nothing behind it is a record
    } else if (line->step < least || line->step > most) {
      return std::nullopt;
    } else if (line->step < first_step) {
      begin = line->end;
      least = line->step;
    } else {
      end = line->begin;
      most = line->step;
    }
  }
  uint64_t cut = begin;
  for (auto line = lines.next(begin, end); line; line = lines.next(line->end, end)) {
    if (line->step < least || line->step > most) return std::nullopt;
    least = line->step;
    if (line->step < first_step) cut = line->end;
  }
  return cut;
}

/// Whether the steps of records all over the file ascend.
bool ascends(RecordLines& lines) {
  constexpr uint64_t kNumParts = 256;
  int64_t last = std::numeric_limits<int64_t>::min();
  for (uint64_t part = 0; part < kNumParts; ++part) {
    const uint64_t from = lines.size() / kNumParts * part;
    const auto line = lines.next(from, lines.size());
    if (!line) continue;
    if (line->step < last) return false;
    last = line->step;
  }
  return true;
}

void truncate_file(const std::string& path, uint64_t num_bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0 && ::ftruncate(file.get(), static_cast<off_t>(num_bytes)) == 0) return;
  throw InputError(cat("cannot write ", path, ": ", std::strerror(errno)));
}

void keep_records_below(const std::string& path, int64_t first_step) {
  std::string kept;
  for (const std::string& line : split(read_file(path), '\n')) {
    const auto step = step_of(line);
    if (step && *step < first_step) kept += line + "\n";
  }
  write_file_atomic(path, kept);
}

}  // namespace

bool holds_records(const std::string& path) {
  constexpr uint64_t kBeginning = 1 << 16;
  const DataFile file(path);
  const std::string text = file.read(0, kBeginning);
  if (file.size() <= kBeginning && is_torn_record(text)) return true;
  return std::ranges::any_of(split(text, '\n'), is_record);
}

void drop_records_from(const std::string& path, int64_t first_step) {
  if (!path_exists(path)) return;
  std::optional<uint64_t> cut;
  uint64_t size = 0;
  {
    RecordLines lines(path);
    size = lines.size();
    if (ascends(lines)) cut = find_cut(lines, first_step);
  }
  if (!cut) {
    keep_records_below(path, first_step);
  } else if (*cut < size) {
    truncate_file(path, *cut);
  }
}

}  // namespace automodel::recipes
