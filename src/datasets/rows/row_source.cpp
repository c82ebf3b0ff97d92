#include "datasets/rows/row_source.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "datasets/rows/data_layout.h"
#include "datasets/rows/hub_data.h"
#include "datasets/rows/numpy_random.h"
#include "datasets/rows/order_checksum.h"
#include "hub/settings.h"

namespace automodel::datasets {

namespace {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

bool has_extension(std::string_view path, std::initializer_list<std::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](std::string_view extension) { return path.ends_with(extension); });
}

/// `around`: the real paths of the folders that this one is in. A link to one of these has no end.
void list_below(const std::string& folder, const std::string& inside,
                std::vector<std::string>& around, std::vector<std::string>& files) {
  const std::string real = std::filesystem::canonical(path_join(folder, inside)).string();
  if (std::ranges::find(around, real) != around.end()) return;
  around.push_back(real);
  for (const std::string& name : list_directory(path_join(folder, inside))) {
    if (name.starts_with(".")) continue;
    const std::string path = inside.empty() ? name : path_join(inside, name);
    if (is_directory(path_join(folder, path))) {
      list_below(folder, path, around, files);
    } else {
      files.push_back(path);
    }
  }
  around.pop_back();
}

hub::Repository repository_of(const std::string& id, const SourceOptions& options) {
  return {hub::RepositoryKind::kDataset, id, options.revision};
}

bool is_hub_data(const std::string& path) {
  return !path_exists(path) && is_hub_id(path);
}

std::optional<hub::Snapshot> find_snapshot(const std::string& id, const SourceOptions& options) {
  return hub::find_cached(repository_of(id, options),
                          hub::cache_folder(hub::process_environment(), options.cache_dir));
}

/// What a folder, or a snapshot with the files that are listed, holds.
DataLayout layout_of(const std::string& folder, const std::vector<std::string>& files,
                     const SourceOptions& options, const std::string& what) {
  const std::string card = path_join(folder, "README.md");
  return find_layout(files, path_exists(card) ? read_file(card) : "", options.name, what);
}

DataLayout layout_of_snapshot(const hub::Snapshot& snapshot, const std::string& id,
                              const SourceOptions& options) {
  std::vector<std::string> files;
  for (const hub::HubFile& file : snapshot.files) files.push_back(file.path);
  return layout_of(snapshot.folder, files, options, cat("dataset '", id, "'"));
}

std::string hub_note(const std::string& id) {
  return cat("dataset '", id,
             "' is not a file or folder here and not in the Hugging Face cache; a run fetches it "
             "where the hub can be reached");
}

std::vector<std::string> files_of_path(const std::string& path, const std::string& split,
                                       const SourceOptions& options) {
  if (!is_directory(path) && !is_hub_data(path)) {
    if (path_exists(path)) return {path};
    throw InputError(cat("dataset file ", path, " does not exist"));
  }
  std::string folder = path;
  std::string what = cat("dataset folder ", path);
  DataLayout layout;
  if (is_directory(path)) {
    std::vector<std::string> files;
    std::vector<std::string> around;
    list_below(path, "", around, files);
    layout = layout_of(path, files, options, what);
  } else {
    const auto snapshot = find_snapshot(path, options);
    if (!snapshot) throw InputError(hub_note(path));
    what = cat("dataset '", path, "'");
    folder = snapshot->folder;
    layout = layout_of_snapshot(*snapshot, path, options);
  }
  std::vector<std::string> files = layout.files_of(split, what);
  for (std::string& file : files) file = path_join(folder, file);
  return files;
}

/// Whether a split names rows by numbers from the beginning, as `train[10:20]`.
bool is_plain_slice(const std::optional<Split>& split) {
  const auto is_plain = [](const std::optional<Split::Bound>& bound) {
    return !bound || (!bound->is_percent && bound->value >= 0);
  };
  return !split || (is_plain(split->from) && is_plain(split->to));
}

void shuffle(std::vector<int64_t>& rows, int64_t seed) {
  std::vector<int64_t> shuffled;
  shuffled.reserve(rows.size());
  for (const int64_t place : numpy_permutation(std::ssize(rows), static_cast<uint64_t>(seed))) {
    shuffled.push_back(rows[static_cast<size_t>(place)]);
  }
  rows = std::move(shuffled);
}

/// The names of the splits that a source reads; "" for all.
std::vector<std::string> split_names(const SourceOptions& options) {
  if (!options.split) return {""};
  std::vector<std::string> names;
  for (const Split& split : Split::parse_sum(*options.split)) names.push_back(split.name);
  return names;
}

/// `is_percent`: one of a slice's bounds has a percent sign, and holds for both.
Split::Bound parse_bound(std::string_view text, std::string_view whole, bool is_percent) {
  Split::Bound bound;
  bound.is_percent = is_percent;
  if (text.ends_with('%')) text.remove_suffix(1);
  const std::optional<int64_t> value = parse_int(text);
  if (!value || (bound.is_percent && std::abs(*value) > 100)) {
    throw UserError(cat("split '", whole, "': '", text,
                        "' is not a row number or a percentage from -100% to 100%"));
  }
  bound.value = *value;
  return bound;
}

/// Whether a slice takes no rows of any data, as `train[5:2]`. `train[-5:5]` depends on them.
bool is_empty(const Split& split) {
  if (!split.to) return false;
  const int64_t from = split.from ? split.from->value : 0;
  const bool is_same_side = (from < 0) == (split.to->value < 0);
  return is_same_side && from >= split.to->value;
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

std::vector<Split> Split::parse_sum(std::string_view text) {
  std::vector<Split> all;
  for (const std::string& part : automodel::split(text, '+')) {
    all.push_back(parse(trim(part)));
  }
  return all;
}

Split Split::parse(std::string_view text) {
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
  const bool is_percent = from.ends_with('%') || to.ends_with('%');
  if (!from.empty()) split.from = parse_bound(from, text, is_percent);
  if (!to.empty()) split.to = parse_bound(to, text, is_percent);
  if (is_empty(split)) {
    throw UserError(cat("split '", text, "' takes no rows: it ends where it begins, or before"));
  }
  return split;
}

std::pair<int64_t, int64_t> Split::range(int64_t num_rows) const {
  const int64_t begin = from ? resolve(*from, num_rows) : 0;
  const int64_t end = to ? resolve(*to, num_rows) : num_rows;
  return {begin, std::max(begin, end)};
}

bool is_hub_id(std::string_view text) {
  if (has_extension(text, {".json", ".jsonl", ".txt", ".parquet", ".arrow", ".feather", ".csv",
                           ".tsv", ".gz", ".zst"}))
    return false;
  const std::vector<std::string> parts = split(text, '/');
  if (parts.size() > 2) return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), is_name_char);
  });
}

std::vector<hub::Repository> hub_data_sets(const SourceOptions& options) {
  std::vector<hub::Repository> all;
  for (const std::string& path : options.paths) {
    if (is_hub_data(path)) all.push_back(repository_of(path, options));
  }
  return all;
}

void fetch_data_cards(hub::Hub& hub, const SourceOptions& options) {
  for (const hub::Repository& repository : hub_data_sets(options)) {
    const hub::Snapshot snapshot = hub.open(repository);
    for (const hub::HubFile& file : snapshot.files) {
      if (file.path == "README.md") hub.fetch(repository, snapshot, {file.path});
    }
  }
}

void fetch_data_files(hub::Hub& hub, const SourceOptions& options) {
  fetch_data_cards(hub, options);
  for (const hub::Repository& repository : hub_data_sets(options)) {
    const hub::Snapshot snapshot = hub.open(repository);
    const DataLayout layout = layout_of_snapshot(snapshot, repository.id, options);
    std::vector<std::string> files;
    for (const std::string& split : split_names(options)) {
      for (std::string& file : layout.files_of(split, cat("dataset '", repository.id, "'"))) {
        if (std::find(files.begin(), files.end(), file) == files.end()) {
          files.push_back(std::move(file));
        }
      }
    }
    hub.fetch(repository, snapshot, files);
  }
}

std::vector<std::string> find_data_files(const SourceOptions& options, const std::string& split) {
  if (options.paths.empty()) throw UserError("the dataset names no data file");
  std::vector<std::string> files;
  for (const std::string& path : options.paths) {
    for (std::string& file : files_of_path(path, split, options)) files.push_back(std::move(file));
  }
  return files;
}

SourceOptions limited_source(const std::string& path, const std::string& split,
                             std::optional<int64_t> limit) {
  const bool has_slice = split.find('[') != std::string::npos;
  return {{path}, split, std::nullopt, has_slice ? std::nullopt : limit};
}

SourceDescription describe_source(const SourceOptions& options) {
  SourceDescription description;
  for (const hub::Repository& repository : hub_data_sets(options)) {
    if (find_snapshot(repository.id, options)) continue;
    split_names(options);  // what is no split is wrong wherever the rows are
    description.note = hub_note(repository.id);
    return description;
  }
  for (const std::string& split : split_names(options)) {
    for (std::string& file : find_data_files(options, split)) {
      description.files.push_back(std::move(file));
    }
  }
  for (const std::string& path : description.files) {
    if (!path_exists(path)) {
      const size_t num_files = description.files.size();
      description.note = cat(num_files, num_files == 1 ? " file is" : " files are",
                             " fetched from the hub when it runs: columns were not looked at");
      return description;
    }
    Json row =
        options.skips_invalid ? first_valid_row_of(path) : first_row_of(path, options.text_columns);
    if (row.is_null()) continue;
    for (const auto& [column, value] : row.as_object()) description.columns.push_back(column);
    description.first_row = std::move(row);
    description.first_path = path;
    return description;
  }
  throw InputError(cat("dataset ", join(options.paths, ", "), " is empty"));
}

size_t RowSource::open(const std::string& path) {
  const auto found = std::find(paths_.begin(), paths_.end(), path);
  if (found != paths_.end()) return static_cast<size_t>(found - paths_.begin());
  if (!path_exists(path)) {
    throw InputError(cat("dataset file ", path, " is not in the Hugging Face cache"));
  }
  files_.push_back(open_row_file(path, text_columns_));
  paths_.push_back(path);
  return files_.size() - 1;
}

void RowSource::add_split(const std::vector<std::string>& paths,
                          const std::optional<Split>& split) {
  std::vector<size_t> files;
  int64_t num_rows = 0;
  for (const std::string& path : paths) {
    files.push_back(open(path));
    num_rows += files_[files.back()]->size();
  }
  const auto [begin, end] = split ? split->range(num_rows) : std::pair{int64_t{0}, num_rows};
  int64_t first = 0;  // of the file, among the split's rows
  for (const size_t file : files) {
    const int64_t file_rows = files_[file]->size();
    const int64_t from = std::max(begin - first, int64_t{0});
    const int64_t to = std::min(end - first, file_rows);
    if (from < to) {
      pieces_.push_back({file, from, size_});
      size_ += to - from;
    }
    first += file_rows;
  }
}

void RowSource::add_mixed_split(const std::vector<std::string>& paths,
                                const std::optional<Split>& split, const SourceOptions& options,
                                bool is_sum) {
  std::vector<int64_t> rows;
  int64_t num_invalid = 0;
  std::string first_invalid;
  for (const std::string& path : paths) {
    const size_t file = open(path);
    const int64_t first = size_;
    pieces_.push_back({file, 0, first});
    size_ += files_[file]->size();
    for (int64_t row = 0; row < files_[file]->size(); ++row) {
      if (!options.skips_invalid || files_[file]->is_valid(row)) {
        rows.push_back(first + row);
      } else if (++num_invalid == 1) {
        first_invalid = files_[file]->origin(row);
      }
    }
  }
  if (num_invalid > 0) {
    invalid_lines_ =
        cat(first_invalid, ": ", num_invalid,
            num_invalid == 1 ? " line is not JSON and is" : " lines are not JSON and are",
            " left out (skip_invalid_samples)");
  }
  const bool shuffles_first = options.shuffle_seed && !is_sum && is_plain_slice(split);
  if (shuffles_first) shuffle(rows, *options.shuffle_seed);
  const auto [begin, end] =
      split ? split->range(std::ssize(rows)) : std::pair{int64_t{0}, std::ssize(rows)};
  order_.insert(order_.end(), rows.begin() + begin, rows.begin() + end);
  if (options.shuffle_seed && !is_sum && !shuffles_first) shuffle(order_, *options.shuffle_seed);
}

RowSource::RowSource(const SourceOptions& options) : text_columns_(options.text_columns) {
  std::vector<std::optional<Split>> splits = {std::nullopt};
  if (options.split) {
    const std::vector<Split> sum = Split::parse_sum(*options.split);
    splits.assign(sum.begin(), sum.end());
  }
  const bool is_mixed = options.shuffle_seed || options.skips_invalid;
  for (const auto& split : splits) {
    const std::vector<std::string> files = find_data_files(options, split ? split->name : "");
    if (is_mixed) {
      add_mixed_split(files, split, options, splits.size() > 1);
    } else {
      add_split(files, split);
    }
  }
  if (is_mixed) {
    if (splits.size() > 1 && options.shuffle_seed) shuffle(order_, *options.shuffle_seed);
    size_ = std::ssize(order_);
  }
  int64_t num_rows = 0;
  for (const auto& file : files_) num_rows += file->size();
  const std::string what = cat("dataset ", join(options.paths, ", "));
  if (num_rows == 0) throw InputError(cat(what, " is empty"));
  if (size_ == 0) {
    throw InputError(
        cat(what, ": split '", *options.split, "' holds none of its ", num_rows, " rows"));
  }
  if (options.limit) {
    if (*options.limit < 1)
      throw UserError(cat("a limit of ", *options.limit, " rows leaves none; give at least 1"));
    size_ = std::min(size_, *options.limit);
  }
}

std::pair<const RowFile*, int64_t> RowSource::locate(int64_t index) const {
  AM_CHECK(index >= 0 && index < size(), "row ", index, " of ", size());
  if (!order_.empty()) index = order_[static_cast<size_t>(index)];
  const auto next =
      std::upper_bound(pieces_.begin(), pieces_.end(), index,
                       [](int64_t row, const Piece& piece) { return row < piece.first; });
  const Piece& piece = *(next - 1);
  return {files_[piece.file].get(), piece.begin + index - piece.first};
}

Json RowSource::row(int64_t index) const {
  const auto [file, row] = locate(index);
  return file->row(row);
}

std::string RowSource::origin(int64_t index) const {
  const auto [file, row] = locate(index);
  return file->origin(row);
}

std::string RowSource::why_without(const std::string& column, int64_t index) const {
  return locate(index).first->why_without(column);
}

uint64_t RowSource::order_checksum() const {
  OrderChecksum checksum;
  checksum.add(size_);
  for (const Piece& piece : pieces_) {
    checksum.add(static_cast<int64_t>(piece.file)).add(piece.begin).add(piece.first);
  }
  return checksum.add(order_).value();
}

std::vector<DataFingerprint> RowSource::files() const {
  std::vector<DataFingerprint> all;
  for (const auto& file : files_) all.push_back(file->fingerprint());
  return all;
}

std::optional<std::string> missing_column(const std::string& column,
                                          const std::vector<std::string>& columns) {
  if (std::find(columns.begin(), columns.end(), column) != columns.end()) return std::nullopt;
  return cat("no column '", column, "'; columns: ", join(columns, ", "),
             did_you_mean(column, columns));
}

void require_columns(const SourceDescription& description,
                     std::initializer_list<const char*> columns) {
  if (description.note) return;
  for (const char* column : columns) {
    if (const auto missing = missing_column(column, description.columns)) {
      throw InputError(cat(description.files.front(), ": ", *missing));
    }
  }
}

const Json& required_column(const Json& row, const std::string& column, const RowSource& source,
                            int64_t index) {
  if (const Json* value = row.find(column)) return *value;
  std::vector<std::string> columns;
  for (const auto& [name, value] : row.as_object()) columns.push_back(name);
  throw InputError(cat(source.origin(index), ": ", *missing_column(column, columns),
                       source.why_without(column, index)));
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
