#include "datasets/row_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "hub/cache.h"

namespace automodel::datasets {

namespace {

struct SplitWord {
  std::string_view word;
  std::string_view split;
};
constexpr std::array<SplitWord, 10> kSplitWords = {{{"train", "train"},
                                                    {"training", "train"},
                                                    {"validation", "validation"},
                                                    {"valid", "validation"},
                                                    {"val", "validation"},
                                                    {"dev", "validation"},
                                                    {"test", "test"},
                                                    {"testing", "test"},
                                                    {"eval", "test"},
                                                    {"evaluation", "test"}}};

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

bool has_extension(std::string_view path, std::initializer_list<std::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](std::string_view extension) { return path.ends_with(extension); });
}

bool is_json_name(std::string_view path) {
  return has_extension(path, {".jsonl", ".json"});
}

/// The split that a file's name (or its folder's) speaks of: "train-00000.jsonl" is train.
std::optional<std::string_view> split_of_name(std::string_view relative) {
  size_t begin = 0;
  while (begin < relative.size()) {
    size_t end = begin;
    while (end < relative.size() && std::isalpha(static_cast<unsigned char>(relative[end]))) ++end;
    const std::string word = to_lower(relative.substr(begin, end - begin));
    for (const SplitWord& candidate : kSplitWords) {
      if (word == candidate.word) return candidate.split;
    }
    begin = std::max(end, begin + 1);
  }
  return std::nullopt;
}

struct FolderFiles {
  std::vector<std::string> json;  ///< relative to the folder
  size_t num_columnar = 0;        ///< Parquet and Arrow files
};

void collect_files(const std::string& folder, const std::string& relative, FolderFiles& out) {
  for (const std::string& name : list_directory(path_join(folder, relative))) {
    if (name.starts_with(".")) continue;
    const std::string inside = relative.empty() ? name : path_join(relative, name);
    if (is_directory(path_join(folder, inside))) {
      collect_files(folder, inside, out);
    } else if (is_json_name(name) && name != "dataset_infos.json" && name != "dataset_info.json" &&
               name != "state.json") {
      out.json.push_back(inside);
    } else if (has_extension(name, {".parquet", ".arrow"})) {
      ++out.num_columnar;
    }
  }
}

std::vector<std::string> folder_files(const std::string& path, const SourceOptions& options) {
  std::string folder = path;
  if (options.name) {
    folder = path_join(path, *options.name);
    if (!is_directory(folder)) {
      throw InputError(cat("dataset folder ", path, " has no subset '", *options.name, "'"));
    }
  }
  FolderFiles found;
  collect_files(folder, "", found);
  if (found.json.empty() && found.num_columnar > 0) {
    throw UnsupportedError(cat("dataset folder ", folder,
                               " holds Parquet or Arrow files only, which this "
                               "version does not read; write the rows as JSON lines (*.jsonl)"));
  }
  if (found.json.empty()) {
    throw InputError(cat("dataset folder ", folder, " holds no *.jsonl or *.json file"));
  }
  std::vector<std::string> splits;
  for (const std::string& file : found.json) {
    const auto split = split_of_name(file);
    if (split && std::find(splits.begin(), splits.end(), *split) == splits.end()) {
      splits.emplace_back(*split);
    }
  }
  const std::string wanted = options.split ? Split::parse(*options.split).name : "";
  std::vector<std::string> files;
  for (const std::string& file : found.json) {
    if (splits.empty() || wanted.empty() || split_of_name(file) == wanted) {
      files.push_back(path_join(folder, file));
    }
  }
  if (files.empty()) {
    throw InputError(cat("dataset folder ", folder, " has no split '", wanted,
                         "'; by the names of its files it has: ", join(splits, ", ")));
  }
  return files;
}

std::string hub_note(const std::string& id) {
  return cat(
      "dataset '", id,
      "' is not a file or folder here and not in the Hugging Face cache; this version does not "
      "download: write its rows as JSON lines and give the file's path");
}

/// A snapshot in the cache when the path is not there but looks like a dataset's name; otherwise
/// the path itself.
std::string local_path(const std::string& path, const SourceOptions& options) {
  if (path_exists(path) || !is_hub_id(path)) return path;
  return hub::find_dataset(path, options.cache_dir).value_or(path);
}

Split::Bound parse_bound(std::string_view text, std::string_view whole) {
  Split::Bound bound;
  if (text.ends_with('%')) {
    bound.is_percent = true;
    text.remove_suffix(1);
  }
  const std::optional<int64_t> value = parse_int(text);
  if (!value || (bound.is_percent && std::abs(*value) > 100)) {
    throw UserError(cat("split '", whole, "': '", text,
                        "' is not a row number or a percentage from -100% to 100%"));
  }
  bound.value = *value;
  return bound;
}

int64_t resolve(const Split::Bound& bound, int64_t num_rows) {
  int64_t row = bound.value;
  if (bound.is_percent) {
    // Python's round: halves go to the even neighbour, as nearbyint does by default.
    row = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(bound.value) * static_cast<double>(num_rows) / 100.0));
  }
  if (row < 0) row = std::max<int64_t>(row + num_rows, 0);
  return std::min(row, num_rows);
}

}  // namespace

Split Split::parse(std::string_view text) {
  if (text.find('+') != std::string_view::npos) {
    throw UnsupportedError(
        cat("split '", text, "': sums of splits are not in this version; give one split"));
  }
  Split split;
  const size_t bracket = text.find('[');
  split.name = std::string(text.substr(0, bracket));
  const bool has_name =
      !split.name.empty() && std::all_of(split.name.begin(), split.name.end(), is_name_char);
  const size_t colon = text.find(':');
  const bool has_slice = bracket != std::string_view::npos;
  if (!has_name || (has_slice && (!text.ends_with(']') || colon == std::string_view::npos))) {
    throw UserError(
        cat("split '", text, "' is not of the form NAME or NAME[FROM:TO], such as train[:90%]"));
  }
  if (!has_slice) return split;
  const std::string_view from = text.substr(bracket + 1, colon - bracket - 1);
  const std::string_view to = text.substr(colon + 1, text.size() - colon - 2);
  if (!from.empty()) split.from = parse_bound(from, text);
  if (!to.empty()) split.to = parse_bound(to, text);
  return split;
}

std::pair<int64_t, int64_t> Split::range(int64_t num_rows) const {
  const int64_t begin = from ? resolve(*from, num_rows) : 0;
  const int64_t end = to ? resolve(*to, num_rows) : num_rows;
  return {begin, std::max(begin, end)};
}

bool is_hub_id(std::string_view text) {
  if (has_extension(text, {".json", ".jsonl", ".txt", ".parquet", ".arrow", ".csv", ".gz"}))
    return false;
  const std::vector<std::string> parts = split(text, '/');
  if (parts.size() > 2) return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), is_name_char);
  });
}

std::vector<std::string> find_data_files(const SourceOptions& options) {
  if (options.paths.empty()) throw UserError("the dataset names no data file");
  std::vector<std::string> files;
  for (const std::string& given : options.paths) {
    const std::string path = local_path(given, options);
    if (is_directory(path)) {
      const std::vector<std::string> inside = folder_files(path, options);
      files.insert(files.end(), inside.begin(), inside.end());
    } else if (path_exists(path)) {
      if (has_extension(path, {".parquet", ".arrow"})) {
        throw UnsupportedError(cat("dataset ", path,
                                   ": Parquet and Arrow files are not read in this "
                                   "version; write the rows as JSON lines (*.jsonl)"));
      }
      files.push_back(path);
    } else if (is_hub_id(path)) {
      throw InputError(hub_note(path));
    } else {
      throw InputError(cat("dataset file ", path, " does not exist"));
    }
  }
  return files;
}

SourceDescription describe_source(const SourceOptions& options) {
  SourceDescription description;
  if (options.split) Split::parse(*options.split);
  for (const std::string& path : options.paths) {
    const std::string local = local_path(path, options);
    if (path_exists(local) || !is_hub_id(local)) continue;
    description.note = hub_note(path);
    return description;
  }
  description.files = find_data_files(options);
  for (const std::string& path : description.files) {
    const JsonFile file(path, /*max_rows=*/1);
    if (file.rows().size() == 0) continue;
    const Json row = file.rows().row(0);
    for (const auto& [column, value] : row.as_object()) description.columns.push_back(column);
    return description;
  }
  throw InputError(cat("dataset ", join(options.paths, ", "), " is empty"));
}

RowSource::RowSource(const SourceOptions& options) {
  first_rows_.push_back(0);
  for (const std::string& path : find_data_files(options)) {
    files_.push_back(std::make_unique<JsonFile>(path));
    first_rows_.push_back(first_rows_.back() + files_.back()->rows().size());
  }
  end_ = first_rows_.back();
  if (end_ == 0) throw InputError(cat("dataset ", join(options.paths, ", "), " is empty"));
  if (options.split) {
    std::tie(begin_, end_) = Split::parse(*options.split).range(end_);
    if (begin_ == end_) {
      throw InputError(cat("dataset ", join(options.paths, ", "), ": split '", *options.split,
                           "' holds none of its ", first_rows_.back(), " rows"));
    }
  }
  if (options.limit) {
    if (*options.limit < 1)
      throw UserError(cat("a limit of ", *options.limit, " rows leaves none; give at least 1"));
    end_ = std::min(end_, begin_ + *options.limit);
  }
}

std::pair<const RowIndex*, int64_t> RowSource::locate(int64_t index) const {
  AM_CHECK(index >= 0 && index < size(), "row ", index, " of ", size());
  const int64_t row = begin_ + index;
  const auto next = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  const auto file = static_cast<size_t>(next - first_rows_.begin()) - 1;
  return {&files_[file]->rows(), row - first_rows_[file]};
}

Json RowSource::row(int64_t index) const {
  const auto [rows, row] = locate(index);
  return rows->row(row);
}

std::string RowSource::origin(int64_t index) const {
  const auto [rows, row] = locate(index);
  return rows->origin(row);
}

std::vector<DataFingerprint> RowSource::files() const {
  std::vector<DataFingerprint> files;
  for (const auto& file : files_) files.push_back(file->fingerprint());
  return files;
}

std::optional<std::string> missing_column(const std::string& column,
                                          const std::vector<std::string>& columns) {
  if (std::find(columns.begin(), columns.end(), column) != columns.end()) return std::nullopt;
  return cat("no column '", column, "'; columns: ", join(columns, ", "),
             did_you_mean(column, columns));
}

const Json& required_column(const Json& row, const std::string& column, const RowSource& source,
                            int64_t index) {
  if (const Json* value = row.find(column)) return *value;
  std::vector<std::string> columns;
  for (const auto& [name, value] : row.as_object()) columns.push_back(name);
  throw InputError(cat(source.origin(index), ": ", *missing_column(column, columns)));
}

const std::string* text_column(const Json& row, const std::string& column, const RowSource& source,
                               int64_t index) {
  const Json* value = row.find(column);
  if (value == nullptr || value->is_null()) return nullptr;
  if (!value->is_string()) {
    throw InputError(cat(source.origin(index), ": column '", column, "' must hold text, it holds ",
                         value->kind()));
  }
  return &value->as_string();
}

}  // namespace automodel::datasets
