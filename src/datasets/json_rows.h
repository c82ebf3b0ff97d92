#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace automodel::datasets {

/// Where the rows of a JSON text begin. Only the ends of rows are looked for; a row is parsed when
/// it is read, so a large file opens in the time it takes to find its newlines. The text, which
/// must outlive the index, may be
///   - JSON lines: one object a line; blank lines, a UTF-8 byte order mark and CRLF are accepted;
///   - one array of objects;
///   - one object of equally long arrays, a column each (not in files called *.jsonl).
/// Safe to read from several threads.
class RowIndex final {
 public:
  /// `name` begins the texts of errors and decides between a column object and a single row.
  /// With `max_rows` >= 0 no more rows than that are looked for. Throws InputError.
  RowIndex(std::string_view text, std::string name, int64_t max_rows = -1);

  int64_t size() const;

  /// The row as an object. Throws InputError "NAME:LINE: ..." when it is not one.
  Json row(int64_t index) const;

  /// "NAME:LINE" for lines and arrays, "NAME row N" (from 0) for columns.
  std::string origin(int64_t index) const;

 private:
  enum class Layout { kLines, kArray, kColumns };

  void index_lines(size_t begin, int64_t max_rows);
  void index_array(size_t begin, int64_t max_rows);
  bool read_columns(size_t begin, size_t end);

  std::string_view text_;
  std::string name_;
  Layout layout_ = Layout::kLines;
  std::vector<uint64_t> begins_;  ///< byte where each row begins
  Json columns_;
  int64_t num_column_rows_ = 0;
};

/// The rows of a JSON or JSONL file, mapped into memory.
class JsonFile final {
 public:
  /// Throws InputError.
  explicit JsonFile(const std::string& path, int64_t max_rows = -1);

  const RowIndex& rows() const { return rows_; }

 private:
  MappedFile file_;
  RowIndex rows_;
};

}  // namespace automodel::datasets
