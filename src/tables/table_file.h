#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::tables {

/// Whether a file's name is that of a table: *.parquet, *.arrow, *.feather, *.csv, *.tsv.
bool is_table_name(std::string_view path);

/// The rows of a Parquet, Arrow (file or stream), Feather or CSV file as JSON objects, in any
/// order.
///
/// Parquet's rows cannot be read one by one, so they are read from a copy: an uncompressed Arrow
/// file that the first reader makes in `copies`, batch by batch, and every other process maps. It
/// is known again by the file's path, size and time.
///
/// Text is text, whole and real numbers, booleans, lists and structs are JSON's. Times, dates and
/// decimals are text. Columns of bytes (pictures, sounds) and of types that JSON cannot hold are
/// left out. CSV has no types: a column's is that of what stands in it, and words such as NA and
/// null are no value. `texts` are columns that are texts whatever stands in them; where there are
/// some, an empty cell alone is no value.
class TableFile final {
 public:
  /// Throws InputError that begins with the path for a file that cannot be read or is damaged.
  TableFile(const std::string& path, const std::string& copies,
            const std::vector<std::string>& texts = {});
  ~TableFile();
  TableFile(TableFile&&) noexcept;

  int64_t size() const;
  /// Columns that rows have, in the file's order.
  const std::vector<std::string>& columns() const;
  /// Columns that rows do not have, each with its type in brackets. Reads the file's beginning, and
  /// throws InputError where that is not there any more.
  std::vector<std::string> left_out() const;
  /// Safe to call from several threads.
  Json row(int64_t index) const;
  /// The checksum of the file's bytes.
  uint64_t checksum() const;

 private:
  struct State;
  std::string path_;
  std::unique_ptr<State> state_;
};

/// The first row; null when there is none. Reads the file's beginning (Parquet: its first rows) and
/// makes no copy. Throws InputError.
Json read_first_row(const std::string& path, const std::vector<std::string>& texts = {});

/// Whether a file's name ends with .gz or .zst.
bool is_packed_name(std::string_view path);

/// A packed file's contents, as a file in `copies` that is made once and known again as tables are.
struct UnpackedFile {
  std::string path;
  uint64_t checksum = 0;  ///< of the packed file's bytes
};
UnpackedFile unpack_file(const std::string& path, const std::string& copies);

/// The first `num_bytes` at most of a packed file's contents. Throws InputError.
std::string read_packed_start(const std::string& path, size_t num_bytes);

}  // namespace automodel::tables
