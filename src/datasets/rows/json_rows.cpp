#include "datasets/rows/json_rows.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <string_view>
#include <utility>

#include "core/checksum.h"
#include "core/error.h"

namespace automodel::datasets {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr uint64_t kWindowBytes = uint64_t{1} << 20;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

class MemoryText final : public RowText {
 public:
  explicit MemoryText(std::string text) : text_(std::move(text)) {}

  uint64_t size() const override { return text_.size(); }
  std::string read(uint64_t offset, uint64_t size) const override {
    return text_.substr(std::min<uint64_t>(offset, text_.size()), size);
  }

 private:
  std::string text_;
};

}  // namespace

/// Goes forward through a text, a window at a time, and sums up the bytes on the way.
class RowIndex::Scan final {
 public:
  explicit Scan(const RowText& text) : text_(text), size_(text.size()) {}

  uint64_t at() const { return at_; }
  bool is_at_end() const { return at_ >= size_; }
  void seek(uint64_t at) { at_ = at; }
  void step() { ++at_; }

  char here() {
    if (at_ < begin_ || at_ - begin_ >= window_.size()) load();
    return window_[at_ - begin_];
  }

  void skip_space() {
    while (!is_at_end() && is_space(here())) ++at_;
  }

  /// Goes behind the line; whether it held anything but spaces.
  bool skip_line() {
    bool has_text = false;
    while (!is_at_end()) {
      const char c = here();
      const size_t inside = at_ - begin_;
      if (has_text) {
        const size_t end = window_.find('\n', inside);
        at_ = begin_ + (end == std::string::npos ? window_.size() : end + 1);
        if (end != std::string::npos) return true;
        continue;
      }
      ++at_;
      if (c == '\n') return false;
      has_text = !is_space(c);
    }
    return has_text;
  }

  /// Goes behind the value that begins here, judged by brackets and strings only; false when the
  /// text ends inside it.
  bool skip_value() {
    size_t depth = 0;
    while (!is_at_end()) {
      const char c = here();
      if (c == '"') {
        skip_string();
        if (depth == 0) return true;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') {
        if (depth == 0) return true;  // the end of what holds this value
        if (--depth == 0) {
          ++at_;
          return true;
        }
      }
      if (depth == 0 && (c == ',' || is_space(c))) return true;
      ++at_;
    }
    return false;
  }

  /// The checksum of all bytes of the text.
  uint64_t checksum() {
    while (num_summed_ < size_) {
      at_ = num_summed_;
      load();
    }
    return checksum_.value();
  }

 private:
  void skip_string() {
    for (++at_; !is_at_end(); ++at_) {
      const char c = here();
      if (c == '\\') {
        ++at_;
      } else if (c == '"') {
        ++at_;
        return;
      }
    }
  }

  void load() {
    begin_ = at_;
    window_ = text_.read(begin_, kWindowBytes);
    AM_CHECK(!window_.empty());
    if (begin_ > num_summed_ || begin_ + window_.size() <= num_summed_) return;
    checksum_.add(std::as_bytes(std::span(window_)).subspan(num_summed_ - begin_));
    num_summed_ = begin_ + window_.size();
  }

  const RowText& text_;
  uint64_t size_;
  uint64_t at_ = 0;
  uint64_t begin_ = 0;  // of the window
  std::string window_;
  uint64_t num_summed_ = 0;
  Checksum checksum_;
};

RowIndex::RowIndex(std::string text, std::string name, int64_t max_rows)
    : RowIndex(std::make_shared<MemoryText>(std::move(text)), std::move(name), max_rows) {}

RowIndex::RowIndex(std::shared_ptr<const RowText> text, std::string name, int64_t max_rows)
    : text_(std::move(text)), name_(std::move(name)) {
  Scan scan(*text_);
  const uint64_t start = text_->read(0, kByteOrderMark.size()) == kByteOrderMark ? 3 : 0;
  scan.seek(start);
  scan.skip_space();
  const uint64_t first = scan.at();
  const char first_char = scan.is_at_end() ? '\n' : scan.here();
  bool is_indexed = false;
  if (first_char == '[') {
    layout_ = Layout::kArray;
    scan.step();
    index_array(scan, max_rows);
    is_indexed = true;
  } else if (first_char == '{' && !name_.ends_with(".jsonl")) {
    const bool is_closed = scan.skip_value();
    const uint64_t end = scan.at();
    scan.skip_space();
    const bool is_over_lines = num_line_ends(first, end) > 0;
    is_indexed = is_closed && scan.is_at_end() && is_over_lines;
    if (is_indexed && !read_columns(first)) {
      layout_ = Layout::kArray;
      begins_.push_back(first);
      end_ = end;
    }
  }
  if (!is_indexed) {
    scan.seek(start);
    index_lines(scan, max_rows);
  }
  if (max_rows < 0) checksum_ = scan.checksum();
}

void RowIndex::index_lines(Scan& scan, int64_t max_rows) {
  while (!scan.is_at_end() && static_cast<int64_t>(begins_.size()) != max_rows) {
    const uint64_t begin = scan.at();
    if (scan.skip_line()) {
      begins_.push_back(begin);
    } else {
      blank_lines_.push_back(size());
    }
    end_ = scan.at();
  }
}

void RowIndex::index_array(Scan& scan, int64_t max_rows) {
  const auto fail = [this](uint64_t at, std::string_view reason) {
    throw InputError(cat(name_, ":", line_number(at), ": ", reason));
  };
  scan.skip_space();
  bool is_closed = !scan.is_at_end() && scan.here() == ']';
  while (!is_closed) {
    const uint64_t begin = scan.at();
    if (static_cast<int64_t>(begins_.size()) == max_rows) return;
    if (!scan.skip_value()) fail(begin, "the array of rows is not closed");
    if (scan.at() == begin) fail(begin, "a row was expected here");
    begins_.push_back(begin);
    end_ = scan.at();
    scan.skip_space();
    if (scan.is_at_end()) fail(scan.at(), "the array of rows is not closed");
    is_closed = scan.here() == ']';
    if (is_closed) break;
    if (scan.here() != ',') fail(scan.at(), "',' or ']' was expected after a row");
    scan.step();
    scan.skip_space();
  }
  scan.step();
  scan.skip_space();
  if (!scan.is_at_end()) fail(scan.at(), "text follows the array of rows");
}

bool RowIndex::read_columns(uint64_t begin) {
  Json object = Json::parse(trim(text_->read(begin, text_->size())), name_);
  if (object.size() == 0) return false;
  const size_t num_rows = object.as_object().front().second.size();
  for (const auto& [column, values] : object.as_object()) {
    if (!values.is_array()) return false;
    if (values.size() != num_rows) {
      throw InputError(cat(name_, ": column '", column, "' has ", values.size(),
                           " values, column '", object.as_object().front().first, "' has ",
                           num_rows));
    }
  }
  layout_ = Layout::kColumns;
  columns_ = std::move(object);
  num_column_rows_ = static_cast<int64_t>(num_rows);
  return true;
}

int64_t RowIndex::size() const {
  return layout_ == Layout::kColumns ? num_column_rows_ : static_cast<int64_t>(begins_.size());
}

std::string RowIndex::row_text(size_t index) const {
  const uint64_t end = index + 1 < begins_.size() ? begins_[index + 1] : end_;
  std::string text = text_->read(begins_[index], end - begins_[index]);
  std::string_view piece = trim(text);
  if (layout_ == Layout::kLines) {
    piece = trim(piece.substr(0, piece.find('\n')));
  } else if (piece.ends_with(',')) {
    piece = trim(piece.substr(0, piece.size() - 1));
  }
  if (piece.data() != text.data()) return std::string(piece);
  text.resize(piece.size());
  return text;
}

bool RowIndex::is_valid(int64_t index) const {
  if (layout_ != Layout::kLines) return true;
  try {
    Json::parse(row_text(static_cast<size_t>(index)), "");
    return true;
  } catch (const InputError&) {
    return false;
  }
}

Json RowIndex::row(int64_t index) const {
  AM_CHECK(index >= 0 && index < size(), "row ", index, " of ", size());
  Json row;
  if (layout_ == Layout::kColumns) {
    row = Json::object();
    for (const auto& [column, values] : columns_.as_object()) {
      row.as_object().emplace_back(column, values.as_array()[static_cast<size_t>(index)]);
    }
    return row;
  }
  const std::string piece = row_text(static_cast<size_t>(index));
  // A good row needs no name, and in an array the first name costs a pass over the file.
  try {
    row = Json::parse(piece, "");
  } catch (const InputError&) {
    row = Json::parse(piece, origin(index));
  }
  if (!row.is_object()) {
    throw InputError(cat(origin(index), ": a row must be a JSON object, this is ", row.kind()));
  }
  return row;
}

std::string RowIndex::origin(int64_t index) const {
  if (layout_ == Layout::kColumns) return cat(name_, " row ", index);
  if (layout_ == Layout::kLines) {
    const auto above = std::ranges::upper_bound(blank_lines_, index) - blank_lines_.begin();
    return cat(name_, ":", index + 1 + above);
  }
  // Every formatted conversation asks for its row's: an array's are counted in one pass, once.
  std::call_once(lines_->counted, [this] {
    int64_t number = 1;
    uint64_t from = 0;
    lines_->of_rows.reserve(begins_.size());
    for (const uint64_t begin : begins_) {
      number += num_line_ends(from, begin);
      lines_->of_rows.push_back(number);
      from = begin;
    }
  });
  return cat(name_, ":", lines_->of_rows[static_cast<size_t>(index)]);
}

int64_t RowIndex::num_line_ends(uint64_t begin, uint64_t end) const {
  int64_t count = 0;
  for (; begin < end; begin += kWindowBytes) {
    const std::string window = text_->read(begin, std::min(kWindowBytes, end - begin));
    count += std::count(window.begin(), window.end(), '\n');
  }
  return count;
}

int64_t RowIndex::line_number(uint64_t at) const {
  return 1 + num_line_ends(0, at);
}

/// A file's text. A thread that reads one row after the other finds the next ones in what its last
/// read brought.
class JsonFile::FileText final : public RowText {
 public:
  explicit FileText(const std::string& path) : file_(path) {}

  const DataFile& file() const { return file_; }
  uint64_t size() const override { return file_.size(); }
  std::string read(uint64_t offset, uint64_t size) const override {
    thread_local Ahead ahead;
    if (ahead.text != id_) ahead = {.text = id_};
    const bool goes_on = offset == ahead.next;
    ahead.next = offset + size;
    if (!goes_on || size >= kAheadBytes) return file_.read(offset, size);
    if (offset < ahead.begin || offset + size > ahead.begin + ahead.bytes.size()) {
      ahead.bytes = file_.read(offset, kAheadBytes);
      ahead.begin = offset;
    }
    return ahead.bytes.substr(offset - ahead.begin, size);
  }

 private:
  static constexpr uint64_t kAheadBytes = uint64_t{64} << 10;

  struct Ahead {
    uint64_t text = 0;  ///< whose bytes these are
    uint64_t next = 0;  ///< where the last read ended
    uint64_t begin = 0;
    std::string bytes;
  };

  static uint64_t next_id() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }

  DataFile file_;
  uint64_t id_ = next_id();
};

JsonFile::JsonFile(const std::string& path, int64_t max_rows) : JsonFile(path, path, max_rows) {}

JsonFile::JsonFile(const std::string& path, const std::string& name, int64_t max_rows)
    : text_(std::make_shared<FileText>(path)), rows_(text_, name, max_rows) {}

JsonFile::~JsonFile() = default;

DataFingerprint JsonFile::fingerprint() const {
  return {text_->file().path(), text_->file().state(), rows_.checksum()};
}

}  // namespace automodel::datasets
