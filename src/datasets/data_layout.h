#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::datasets {

/// The files of one split, by their paths in the data set's folder.
struct SplitFiles {
  std::string split;  ///< "" where nothing says it: any split that is asked for
  std::vector<std::string> files;
};

/// What a folder or a repository of the hub holds: the splits of one of its configurations.
struct DataLayout {
  std::vector<SplitFiles> splits;

  /// All files of a split, or of all splits where it is "". Throws InputError that begins with
  /// `what` and names the splits that there are.
  std::vector<std::string> files_of(const std::string& split, const std::string& what) const;
};

/// Whether a file's name is that of rows that can be read: JSON, packed or not, or a table.
bool is_data_name(std::string_view path);

/// The layout as the datasets package finds it, of file names alone:
///   - the `configs` at the head of README.md (`card`), where there are any: the one called `name`,
///     else the default one, else the only one;
///   - otherwise, with a `name`, the folder of that name;
///   - splits by words in the names of folders and files (train, validation or dev, test).
/// Where files are of several kinds, the most frequent kind is taken. Throws InputError that begins
/// with `what`, UnsupportedError for data that need a script.
DataLayout find_layout(const std::vector<std::string>& files, const std::string& card,
                       const std::optional<std::string>& name, const std::string& what);

/// Whether a path matches a pattern of *, **, ? and [abc], as in a data set's card.
bool matches_pattern(std::string_view path, std::string_view pattern);

}  // namespace automodel::datasets
