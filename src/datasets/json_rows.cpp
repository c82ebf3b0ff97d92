#include "datasets/json_rows.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace automodel::datasets {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

/// The byte after the string that begins at `at`; the text's size when it does not end.
size_t skip_string(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.size();
}

/// The byte after the value that begins at `at`, judged by brackets and strings only; nullopt when
/// the text ends inside it.
std::optional<size_t> skip_value(std::string_view text, size_t at) {
  size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;  // the end of what holds this value
      if (--depth == 0) return at + 1;
    }
    if (depth == 0 && (c == ',' || is_space(c))) return at;
    ++at;
  }
  return std::nullopt;
}

std::string_view line_at(std::string_view text, size_t begin) {
  const size_t end = text.find('\n', begin);
  return text.substr(begin, end == std::string_view::npos ? end : end - begin);
}

size_t line_number(std::string_view text, size_t at) {
  return 1 +
         static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

}  // namespace

RowIndex::RowIndex(std::string_view text, std::string name, int64_t max_rows)
    : text_(text), name_(std::move(name)) {
  const size_t start = text_.substr(0, 3) == kByteOrderMark ? 3 : 0;
  const size_t first = skip_space(text_, start);
  if (first == text_.size()) return;
  if (text_[first] == '[') {
    layout_ = Layout::kArray;
    index_array(first + 1, max_rows);
    return;
  }
  if (text_[first] == '{' && !name_.ends_with(".jsonl")) {
    const std::optional<size_t> end = skip_value(text_, first);
    if (end && skip_space(text_, *end) == text_.size() && read_columns(first, *end)) return;
  }
  index_lines(start, max_rows);
}

void RowIndex::index_lines(size_t begin, int64_t max_rows) {
  while (begin < text_.size() && static_cast<int64_t>(begins_.size()) != max_rows) {
    const std::string_view line = line_at(text_, begin);
    if (!trim(line).empty()) begins_.push_back(begin);
    begin += line.size() + 1;
  }
}

void RowIndex::index_array(size_t begin, int64_t max_rows) {
  const auto fail = [this](size_t at, std::string_view reason) {
    throw InputError(cat(name_, ":", line_number(text_, std::min(at, text_.size())), ": ", reason));
  };
  size_t at = skip_space(text_, begin);
  bool is_closed = at < text_.size() && text_[at] == ']';
  while (!is_closed) {
    if (static_cast<int64_t>(begins_.size()) == max_rows) return;
    const std::optional<size_t> end = skip_value(text_, at);
    if (!end) fail(at, "the array of rows is not closed");
    if (*end == at) fail(at, "a row was expected here");
    begins_.push_back(at);
    at = skip_space(text_, *end);
    if (at == text_.size()) fail(at, "the array of rows is not closed");
    is_closed = text_[at] == ']';
    if (is_closed) break;
    if (text_[at] != ',') fail(at, "',' or ']' was expected after a row");
    at = skip_space(text_, at + 1);
  }
  at = skip_space(text_, at + 1);
  if (at != text_.size()) fail(at, "text follows the array of rows");
}

bool RowIndex::read_columns(size_t begin, size_t end) {
  Json object = Json::parse(text_.substr(begin, end - begin), name_);
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
  const size_t begin = begins_[static_cast<size_t>(index)];
  // Counting lines costs a pass over the file, so the name of a good row is never made.
  const auto parse = [&](std::string_view piece) {
    try {
      return Json::parse(piece, "");
    } catch (const InputError&) {
      return Json::parse(piece, origin(index));
    }
  };
  if (layout_ == Layout::kLines) {
    std::string_view line = line_at(text_, begin);
    if (begin == 0 && line.substr(0, 3) == kByteOrderMark) line.remove_prefix(3);
    row = parse(trim(line));
  } else {
    row = parse(text_.substr(begin, skip_value(text_, begin).value_or(text_.size()) - begin));
  }
  if (!row.is_object()) {
    throw InputError(cat(origin(index), ": a row must be a JSON object, this is ", row.kind()));
  }
  return row;
}

std::string RowIndex::origin(int64_t index) const {
  if (layout_ == Layout::kColumns) return cat(name_, " row ", index);
  return cat(name_, ":", line_number(text_, begins_[static_cast<size_t>(index)]));
}

JsonFile::JsonFile(const std::string& path, int64_t max_rows)
    : file_(path), rows_(file_.text(), path, max_rows) {}

}  // namespace automodel::datasets
