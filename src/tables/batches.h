#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace arrow {
class RecordBatch;
class RecordBatchReader;
}  // namespace arrow

namespace automodel::tables {

/// A table's rows some at a time, in their order, without the columns that JSON cannot hold.
struct Batches {
  std::shared_ptr<arrow::RecordBatchReader> reader;
  std::vector<int> columns;           ///< of the reader's, that rows have
  std::vector<std::string> left_out;  ///< "image (struct<bytes: binary, path: string>)"
};

/// Whether a file's name is that of a table of text: *.csv, *.tsv.
inline bool is_delimited_text(std::string_view path) {
  return path.ends_with(".csv") || path.ends_with(".tsv");
}

/// Opens a file by its name's ending. `texts` are columns of a CSV file that are read as they stand
/// in it (TableFile). Throws InputError, and std::exception of Arrow's.
Batches open_batches(const std::string& path, const std::vector<std::string>& texts);

/// The next rows with the columns that rows have, checked to the last byte; nullptr at the end.
/// `first_row`: the number of the batch's, for errors. Throws InputError.
std::shared_ptr<arrow::RecordBatch> next_batch(const Batches& batches, const std::string& path,
                                               int64_t first_row);

}  // namespace automodel::tables
