#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// The whole file; throws InputError "cannot read PATH: reason".
std::string read_file(const std::string& path);

/// Writes a temporary file beside `path`, syncs it and renames it into place, so that a reader sees
/// the old bytes or the new ones. Throws InputError "cannot write PATH: reason" (e.g. disk full);
/// nothing is left behind then.
void write_file_atomic(const std::string& path, std::string_view bytes);

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

/// A file mapped for reading. The bytes live as long as the object.
class MappedFile final {
 public:
  /// Throws InputError "cannot read PATH: reason".
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
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

/// Removes a file or a whole directory tree; nothing when it is not there. Throws InputError.
void remove_tree(const std::string& path);

std::string path_join(std::string_view directory, std::string_view name);
std::string file_name(std::string_view path);    ///< last component
std::string parent_path(std::string_view path);  ///< "." when there is none

}  // namespace automodel
