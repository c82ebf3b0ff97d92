#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Counts bytes that were read or written, for whoever watches the work from another thread.
using ByteCounter = std::atomic<uint64_t>;

/// The whole file; throws InputError "cannot read PATH: reason".
std::string read_file(const std::string& path);

/// A file that is there whole or not at all: it is written under a new temporary name beside its
/// own, and gets its own in finish(). Without that, nothing is left behind.
class AtomicFile final {
 public:
  /// Throws InputError "cannot write PATH: reason". Never opens what somebody else has put there.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws InputError (e.g. disk full), as finish() does; the temporary file is removed then.
  void write(std::string_view bytes);
  /// Syncs the file and renames it into place.
  void finish();

 private:
  [[noreturn]] void fail(int error);

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// The ending of AtomicFile's temporary names, in front of what makes each of them unique.
inline constexpr std::string_view kTemporaryEnding = ".tmp-";

/// An AtomicFile of these bytes.
void write_file_atomic(const std::string& path, std::string_view bytes);

/// A piece of a name that nobody else uses.
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

/// A file read piece by piece, wherever in it, from any thread. It is the same file from the first
/// to the last read: one that was changed or cut meanwhile is an error, not other bytes.
class DataFile final {
 public:
  /// What tells a file that was written to from one that was not.
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
  /// When it was opened.
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

/// Removes a file or a whole directory tree; nothing when it is not there. Throws InputError.
void remove_tree(const std::string& path);

std::string path_join(std::string_view directory, std::string_view name);
std::string file_name(std::string_view path);    ///< last component
std::string parent_path(std::string_view path);  ///< "." when there is none

}  // namespace automodel
