#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace automodel::trackers {

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// A checksum as TFRecord files store it, so that checksums of data that hold checksums are good.
uint32_t masked_crc32c(std::string_view bytes);

/// One record of a TFRecord file: its length, the length's checksum, its bytes, their checksum.
std::string framed_record(std::string_view bytes);

/// A new file of records in a folder of TensorBoard's, named so that it comes after those that are
/// there: events.out.tfevents.SECONDS.HOST.PID.0.
class EventFile final {
 public:
  /// Creates the folder and the file. Throws InputError "cannot write PATH: reason".
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  /// Writes a record; it has reached the kernel on return. Throws InputError after cutting the file
  /// back to its whole records: readers give up at one that is torn.
  void append(std::string_view bytes);

 private:
  std::string path_;
  int fd_ = -1;
  int64_t num_bytes_ = 0;  // of whole records
};

}  // namespace automodel::trackers
