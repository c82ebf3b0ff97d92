#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/rows/row_file.h"

namespace automodel::datasets {

/// A split in the notation of Hugging Face datasets: "train", "train[:100]", "validation[10:20]",
/// "train[-5%:]". Percentages are rounded to the nearest row; a percent sign at one bound is for
/// both; bounds are limited to existing rows.
struct Split {
  struct Bound {
    int64_t value = 0;
    bool is_percent = false;
  };
  std::string name;
  std::optional<Bound> from;
  std::optional<Bound> to;

  /// Throws UserError.
  static Split parse(std::string_view text);
  /// Parses a sum of splits: "train[:10%]+validation[:5]".
  static std::vector<Split> parse_sum(std::string_view text);

  /// The rows [first, second) of num_rows.
  std::pair<int64_t, int64_t> range(int64_t num_rows) const;
};

/// Where rows come from.
struct SourceOptions {
  /// Data files (row_file.h), folders of such files, or names of data sets on the hub.
  std::vector<std::string> paths;
  std::optional<std::string> split = "train";
  std::optional<std::string> name = std::nullopt;       ///< configuration (data_layout.h)
  std::optional<int64_t> limit = std::nullopt;          ///< at most this many rows
  std::optional<std::string> cache_dir = std::nullopt;  ///< replaces the default cache
  std::string revision = "main";                        ///< of data sets of the hub
  /// Shuffles the rows as datasets' shuffle(seed) does: the whole split before a slice by row
  /// numbers; after other slices and sums, what they leave (as upstream).
  std::optional<int64_t> shuffle_seed = std::nullopt;
  bool skips_invalid = false;  ///< skips lines of JSON lines that are not JSON
  /// Columns of CSV that are texts whatever stands in them (tables/table_file.h).
  std::vector<std::string> text_columns = {};
};

/// One file, folder or data set; a limit counts only where the split has no slice (as upstream).
SourceOptions limited_source(const std::string& path, const std::string& split,
                             std::optional<int64_t> limit);

/// What is known about a source without reading all of it.
struct SourceDescription {
  std::vector<std::string> files;
  std::vector<std::string> columns;  ///< of the first row
  Json first_row;                    ///< of the first file that has one, before the split's slice
  std::string first_path;            ///< that file
  std::optional<std::string> note;  ///< set instead of the others: the rows are not on this machine
};

/// True for "org/name" and "name", false for paths and names with a data file's extension.
bool is_hub_id(std::string_view text);

/// The files of a split that a source reads, in a folder as find_layout() says. "" is every split.
/// Files of a data set of the hub may not have been fetched. Throws InputError when there are none.
std::vector<std::string> find_data_files(const SourceOptions& options, const std::string& split);

/// The files, and the columns of the first row, which is parsed. Throws InputError.
SourceDescription describe_source(const SourceOptions& options);

/// The rows of one or several files, after the split's slice and the limit. Safe to read from
/// several threads.
class RowSource final {
 public:
  /// Throws InputError for missing files and for a source without rows. Parses every row when
  /// invalid lines are skipped.
  explicit RowSource(const SourceOptions& options);

  int64_t size() const { return size_; }
  Json row(int64_t index) const;
  std::string origin(int64_t index) const;  ///< "file:line", "file row 5"
  /// An explanation for a column that the row's file has and the row lacks.
  std::string why_without(const std::string& column, int64_t index) const;
  std::vector<DataFingerprint> files() const;
  /// A checksum of which of the files' rows are read, and in which order (OrderChecksum).
  uint64_t order_checksum() const;
  /// "FILE:LINE: 3 lines are not JSON and are left out" with the first one; nullopt when all are.
  const std::optional<std::string>& invalid_lines() const { return invalid_lines_; }

 private:
  /// Consecutive rows of one file.
  struct Piece {
    size_t file = 0;
    int64_t begin = 0;  ///< in the file
    int64_t first = 0;  ///< in the source
  };

  size_t open(const std::string& path);
  void add_split(const std::vector<std::string>& paths, const std::optional<Split>& split);
  void add_mixed_split(const std::vector<std::string>& paths, const std::optional<Split>& split,
                       const SourceOptions& options, bool is_sum);
  std::pair<const RowFile*, int64_t> locate(int64_t index) const;

  std::vector<std::string> text_columns_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<RowFile>> files_;  ///< of paths_
  std::vector<Piece> pieces_;
  std::vector<int64_t> order_;  ///< of the pieces' rows that are read; empty: all, as they are
  std::optional<std::string> invalid_lines_;
  int64_t size_ = 0;
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

/// Throws InputError for the first column that a described source lacks; a source that is not on
/// this machine (`note`) passes.
void require_columns(const SourceDescription& description,
                     std::initializer_list<const char*> columns);

}  // namespace automodel::datasets
