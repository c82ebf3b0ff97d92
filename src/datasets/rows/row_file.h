#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/json.h"
#include "datasets/rows/fingerprint.h"

namespace automodel::datasets {

/// The rows of one file, with random access from any thread.
class RowFile {
 public:
  virtual ~RowFile() = default;
  virtual int64_t size() const = 0;
  /// An object. Throws InputError "ORIGIN: ...".
  virtual Json row(int64_t index) const = 0;
  /// "FILE:LINE" of JSON, "FILE row N" (from 0) of tables.
  virtual std::string origin(int64_t index) const = 0;
  /// "; FILE has it as TYPE, which ..." for a column that the file has but its rows lack; ""
  /// otherwise.
  virtual std::string why_without(const std::string& column) const { return ""; }
  /// False for a line of JSON lines that is not JSON.
  virtual bool is_valid(int64_t index) const { return true; }
  virtual DataFingerprint fingerprint() const = 0;
};

/// JSON, JSON lines (also packed: .gz, .zst) or a table, by the name's ending. Packed files and
/// tables are read from copies that are made once (tables/table_file.h). `texts` are columns of CSV
/// that are texts whatever stands in them. Throws InputError.
std::unique_ptr<RowFile> open_row_file(const std::string& path,
                                       const std::vector<std::string>& texts = {});

/// The first row of a file, read without a copy; null if there is none.
Json first_row_of(const std::string& path, const std::vector<std::string>& texts = {});

/// The first row that is valid JSON; may look at every line. Null if there is none.
Json first_valid_row_of(const std::string& path);

/// The origin of the first row.
std::string first_origin_of(const std::string& path);

}  // namespace automodel::datasets
