#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/json_rows.h"

namespace automodel::datasets {

/// A split as Hugging Face datasets writes it: "train", "train[:100]", "validation[10:20]",
/// "train[-5%:]". Percentages are rounded to the nearest row, bounds are cut to the rows there are.
struct Split {
  struct Bound {
    int64_t value = 0;
    bool is_percent = false;
  };
  std::string name;
  std::optional<Bound> from;
  std::optional<Bound> to;

  /// Throws UserError; UnsupportedError for sums ("train+test").
  static Split parse(std::string_view text);

  /// The rows [first, second) of num_rows.
  std::pair<int64_t, int64_t> range(int64_t num_rows) const;
};

/// Where rows come from.
struct SourceOptions {
  /// JSON and JSONL files, folders with such files, or names of datasets in the Hugging Face cache.
  std::vector<std::string> paths;
  std::optional<std::string> split = "train";
  std::optional<std::string> name = std::nullopt;       ///< subset: a subfolder of a folder
  std::optional<int64_t> limit = std::nullopt;          ///< at most this many rows
  std::optional<std::string> cache_dir = std::nullopt;  ///< in place of the usual cache
};

/// What can be said about a source without reading it all.
struct SourceDescription {
  std::vector<std::string> files;
  std::vector<std::string> columns;  ///< of the first row
  std::optional<std::string>
      note;  ///< set instead of the others: a hub id that is not on this machine
};

/// True for "org/name" and "name", false for what has a data file's extension or is a path.
bool is_hub_id(std::string_view text);

/// The files a source reads, sorted within each folder. In a folder, files are those called
/// *.jsonl or *.json in it or below it; when some of their names hold a split's word (train,
/// validation or dev, test), only those of the wanted split. Throws InputError when there are none
/// and UnsupportedError when the folder holds Parquet or Arrow files only.
std::vector<std::string> find_data_files(const SourceOptions& options);

/// The files, and the columns of the first row, which is parsed. Throws InputError.
SourceDescription describe_source(const SourceOptions& options);

/// The rows of one or several files, after the split's slice and the limit. Safe to read from
/// several threads.
class RowSource final {
 public:
  /// Throws InputError for missing files and for a source without rows.
  explicit RowSource(const SourceOptions& options);

  int64_t size() const { return end_ - begin_; }
  Json row(int64_t index) const;
  std::string origin(int64_t index) const;  ///< "file:line"
  std::vector<DataFingerprint> files() const;

 private:
  std::pair<const RowIndex*, int64_t> locate(int64_t index) const;

  std::vector<std::unique_ptr<JsonFile>> files_;
  std::vector<int64_t> first_rows_;  ///< of each file, and the total at the end
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

/// The column as text; nullptr when it is absent or null. Throws InputError "ORIGIN: ..." for
/// values that are not text.
const std::string* text_column(const Json& row, const std::string& column, const RowSource& source,
                               int64_t index);

/// The column, which must be there. Throws InputError "ORIGIN: no column 'x' ...; columns: ...".
const Json& required_column(const Json& row, const std::string& column, const RowSource& source,
                            int64_t index);

/// "no column 'x'; columns: a, b; did you mean 'y'?" when `column` is not among them.
std::optional<std::string> missing_column(const std::string& column,
                                          const std::vector<std::string>& columns);

}  // namespace automodel::datasets
