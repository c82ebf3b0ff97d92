#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Counts bytes that were read or written; another thread may watch it.
using ByteCounter = std::atomic<uint64_t>;

/// The whole file; throws InputError "cannot read PATH: reason".
std::string read_file(const std::string& path);

/// A file that exists whole or not at all: it is written under a new temporary name in the same
/// folder, and finish() renames it. Without finish() nothing remains.
class AtomicFile final {
 public:
  /// Throws InputError "cannot write PATH: reason". Never opens an existing file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws InputError (e.g. disk full), as finish() does, after removing the temporary file.
  void write(std::string_view bytes);
  /// Replaces bytes that were written before.
  void write_at(uint64_t offset, std::string_view bytes);
  /// Syncs the file and renames it into place.
  void finish();

 private:
  [[noreturn]] void fail(int error);

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// The ending of AtomicFile's temporary names, before the unique part.
inline constexpr std::string_view kTemporaryEnding = ".tmp-";

/// Writes these bytes as an AtomicFile.
void write_file_atomic(const std::string& path, std::string_view bytes);

/// A part of a name that nobody else uses.
std::string unique_suffix();

/// Appends whole lines to a file, each reaching the kernel before append() returns, so that a crash
/// of the process loses none.
class LineWriter final {
 public:
  /// Opens for appending, creating the file. Throws InputError.
  explicit LineWriter(const std::string& path);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Writes `line` and a newline in one call. Throws InputError.
  void append(std::string_view line);

 private:
  std::string path_;
  int fd_;
};

/// Reads pieces of a file at any position, from any thread. All reads see the same file: if it was
/// changed or truncated in between, they throw.
class DataFile final {
 public:
  /// Identifies a file's version, to detect that it was written to.
  struct State {
    uint64_t num_bytes = 0;
    int64_t modified_ns = 0;  ///< since the epoch
    bool operator==(const State&) const = default;
  };

  /// Throws InputError "cannot read PATH: reason".
  explicit DataFile(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return state_.num_bytes; }
  /// The state of the file when it was opened.
  const State& state() const { return state_; }

  /// Bytes [offset, offset + size), fewer at its end. Throws InputError "PATH changed while it was
  /// in use: ...".
  std::string read(uint64_t offset, uint64_t size) const;

 private:
  void check_unchanged() const;

  std::string path_;
  int fd_ = -1;
  State state_;
};

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
uint64_t file_size(const std::string& path);  ///< throws InputError

/// Creates the directory and its parents; throws InputError.
void create_directories(const std::string& path);

/// Names in a directory, sorted; throws InputError.
std::vector<std::string> list_directory(const std::string& path);

/// fsync of a directory, so that renames inside it survive a power cut.
void sync_directory(const std::string& path);

/// Throws InputError "cannot rename FROM to TO: reason".
void rename_path(const std::string& from, const std::string& to);

/// Removes a file or a whole directory tree, if it exists. Throws InputError.
void remove_tree(const std::string& path);

/// The paths that a pattern with *, ? and [] matches, sorted by their bytes; a name that begins
/// with a dot only where the pattern has the dot too. Folders that cannot be read have no matches.
std::vector<std::string> matching_paths(const std::string& pattern);

std::string path_join(std::string_view directory, std::string_view name);
std::string file_name(std::string_view path);    ///< last component
std::string parent_path(std::string_view path);  ///< "." when there is none
/// "; did you mean 'models/Qwen'?" where beside a path that is not there lies one of a similar
/// name, or "".
std::string similar_path_hint(std::string_view path);

}  // namespace automodel
