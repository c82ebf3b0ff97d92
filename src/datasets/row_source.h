#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/row_file.h"

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

  /// Throws UserError.
  static Split parse(std::string_view text);
  /// A sum of them: "train[:10%]+validation[:5]".
  static std::vector<Split> parse_sum(std::string_view text);

  /// The rows [first, second) of num_rows.
  std::pair<int64_t, int64_t> range(int64_t num_rows) const;
};

/// Where rows come from.
struct SourceOptions {
  /// Data files (row_file.h), folders with such files, or names of data sets of the hub.
  std::vector<std::string> paths;
  std::optional<std::string> split = "train";
  std::optional<std::string> name = std::nullopt;       ///< configuration (data_layout.h)
  std::optional<int64_t> limit = std::nullopt;          ///< at most this many rows
  std::optional<std::string> cache_dir = std::nullopt;  ///< in place of the usual cache
  std::string revision = "main";                        ///< of data sets of the hub
  /// Mixes the rows of the split as datasets' shuffle(seed) does: of the whole split, before a
  /// slice by row numbers; what other slices and sums leave, after them (as upstream).
  std::optional<int64_t> shuffle_seed = std::nullopt;
  bool skips_invalid = false;  ///< leaves out lines of JSON lines that are not JSON
};

/// One file, folder or data set; a limit counts only where the split has no slice (as upstream).
SourceOptions limited_source(const std::string& path, const std::string& split,
                             std::optional<int64_t> limit);

/// What can be said about a source without reading it all.
struct SourceDescription {
  std::vector<std::string> files;
  std::vector<std::string> columns;  ///< of the first row
  std::optional<std::string>
      note;  ///< set instead of the others: rows that are not on this machine
};

/// True for "org/name" and "name", false for what has a data file's extension or is a path.
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
  /// Throws InputError for missing files and for a source without rows. Parses every row when lines
  /// that are not JSON are left out.
  explicit RowSource(const SourceOptions& options);

  int64_t size() const { return size_; }
  Json row(int64_t index) const;
  std::string origin(int64_t index) const;  ///< "file:line", "file row 5"
  /// What to say of a column that the row's file has and the row has not.
  std::string why_without(const std::string& column, int64_t index) const;
  std::vector<DataFingerprint> files() const;
  /// "FILE:LINE: 3 lines are not JSON and are left out" with the first one; nullopt when all are.
  const std::optional<std::string>& invalid_lines() const { return invalid_lines_; }

 private:
  /// Rows of one file that follow each other.
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

/// Throws InputError with the first of the columns that a described source has not; one that is not
/// here yet (`note`) may have any.
void require_columns(const SourceDescription& description,
                     std::initializer_list<const char*> columns);

}  // namespace automodel::datasets
