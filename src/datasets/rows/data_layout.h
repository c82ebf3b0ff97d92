#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::datasets {

/// The files of one split, by their paths in the data set's folder.
struct SplitFiles {
  std::string split;
  std::vector<std::string> files;
};

/// The splits of one configuration of a folder or hub repository.
struct DataLayout {
  std::vector<SplitFiles> splits;

  /// The files of a split, or of all splits for "". Throws InputError that begins with `what` and
  /// lists the existing splits.
  std::vector<std::string> files_of(const std::string& split, const std::string& what) const;
};

/// Whether a file's name is of a kind whose rows can be read: JSON (maybe packed) or a table.
bool is_data_name(std::string_view path);

/// Finds the layout as the datasets package does, from file names only:
///   - with `configs` at the head of README.md (`card`): the one called `name`, else the default
///   one,
///     else the only one;
///   - otherwise, with a `name`, the folder of that name;
///   - splits by shards' names, else by words in the names of folders, else of files, else all
///     files are of train.
/// Among files of several kinds, the most frequent kind is taken. Throws InputError that begins
/// with `what`, UnsupportedError for data that need a script.
DataLayout find_layout(const std::vector<std::string>& files, const std::string& card,
                       const std::optional<std::string>& name, const std::string& what);

/// Whether a path matches a pattern of *, **, ?, [abc] and [!abc], as in a data set's card.
bool matches_pattern(std::string_view path, std::string_view pattern);

}  // namespace automodel::datasets
