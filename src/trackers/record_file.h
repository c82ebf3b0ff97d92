#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace automodel::trackers {

/// A number's bytes, lowest first.
template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

/// A new file that is written at its end, a whole piece at a time.
class RecordFile final {
 public:
  RecordFile() = default;
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Makes the file; false where there is one of this name. Throws InputError "cannot write PATH:
  /// reason". Call until it is true.
  bool create(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t num_bytes() const { return num_bytes_; }  ///< of whole pieces

  /// Writes a piece; it has reached the kernel on return. Throws InputError after cutting the file
  /// back to its whole pieces: readers give up at one that is torn.
  void append(std::string_view bytes);

 private:
  std::string path_;
  int fd_ = -1;
  int64_t num_bytes_ = 0;
};

}  // namespace automodel::trackers
