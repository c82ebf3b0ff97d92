#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "datasets/rows/fingerprint.h"

namespace automodel::datasets {

/// A text that is read in windows, from any thread.
class RowText {
 public:
  virtual ~RowText() = default;
  virtual uint64_t size() const = 0;
  /// Bytes [offset, offset + size), fewer at the text's end.
  virtual std::string read(uint64_t offset, uint64_t size) const = 0;
};

/// Where the rows of a JSON text begin. Only the ends of rows are looked for; a row is parsed when
/// it is read, so a large file opens in the time it takes to read it once. The text may be
///   - JSON lines: one object a line; blank lines, a UTF-8 byte order mark and CRLF are accepted;
///   - one array of objects;
///   - one object over several lines (not in files called *.jsonl): of equally long arrays, which
///     are columns, else it is a row.
/// Safe to read from several threads.
class RowIndex final {
 public:
  /// `name` begins the texts of errors and decides between a column object and a single row.
  /// With `max_rows` >= 0 no more rows than that are looked for. Throws InputError.
  RowIndex(std::shared_ptr<const RowText> text, std::string name, int64_t max_rows = -1);
  /// An index of a text in memory.
  RowIndex(std::string text, std::string name, int64_t max_rows = -1);

  int64_t size() const;

  /// The row as an object. Throws InputError "NAME:LINE: ..." when it is not one.
  Json row(int64_t index) const;

  /// False for a line of JSON lines that is not JSON.
  bool is_valid(int64_t index) const;

  /// "NAME:LINE" for lines and arrays, "NAME row N" (from 0) for columns.
  std::string origin(int64_t index) const;

  /// Checksum of the whole text; 0 where rows were limited.
  uint64_t checksum() const { return checksum_; }

 private:
  enum class Layout { kLines, kArray, kColumns };
  class Scan;

  void index_lines(Scan& scan, int64_t max_rows);
  void index_array(Scan& scan, int64_t max_rows);
  bool read_columns(uint64_t begin);
  int64_t num_line_ends(uint64_t begin, uint64_t end) const;
  int64_t line_number(uint64_t at) const;
  std::string row_text(size_t index) const;

  std::shared_ptr<const RowText> text_;
  std::string name_;
  Layout layout_ = Layout::kLines;
  std::vector<uint64_t> begins_;  ///< byte where each row begins
  uint64_t end_ = 0;              ///< byte where the last one has ended
  /// The row below each blank line, where rows are lines.
  std::vector<int64_t> blank_lines_;
  /// The line on which each row of an array begins, counted when the first origin() is asked for.
  struct LineNumbers {
    std::once_flag counted;
    std::vector<int64_t> of_rows;
  };
  std::shared_ptr<LineNumbers> lines_ = std::make_shared<LineNumbers>();
  uint64_t checksum_ = 0;
  Json columns_;
  int64_t num_column_rows_ = 0;
};

/// The rows of a JSON or JSONL file.
class JsonFile final {
 public:
  /// Throws InputError.
  explicit JsonFile(const std::string& path, int64_t max_rows = -1);
  /// The rows of a file that errors call `name`.
  JsonFile(const std::string& path, const std::string& name, int64_t max_rows);
  ~JsonFile();

  const RowIndex& rows() const { return rows_; }
  /// Identifies the file's contents.
  DataFingerprint fingerprint() const;

 private:
  class FileText;

  std::shared_ptr<const FileText> text_;
  RowIndex rows_;
};

}  // namespace automodel::datasets
