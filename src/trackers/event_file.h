#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trackers/record_file.h"

namespace automodel::trackers {

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

  const std::string& path() const { return file_.path(); }

  /// Writes a record, as RecordFile::append does.
  void append(std::string_view bytes);

 private:
  RecordFile file_;
};

}  // namespace automodel::trackers
