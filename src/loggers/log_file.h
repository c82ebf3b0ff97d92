#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/file.h"

namespace automodel::loggers {

/// A file of lines that a run keeps of itself. What cannot be written, as on a full disk, is lost
/// and counted, and ends nothing. Each line reaches the kernel before append() returns; one that
/// follows half a line, as a full disk or a killed process leaves it, begins anew.
class LogFile final {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  /// Opens for appending, creating the file. Throws InputError.
  void open();

  /// What became of a line.
  struct Outcome {
    std::string problem;   ///< "cannot write PATH: REASON"; "": it is written
    int64_t num_lost = 0;  ///< lines lost in a row, up to this one
  };
  /// Writes a line, opening the file first if that was not done or did not succeed.
  Outcome append(std::string_view line);

  const std::string& path() const { return path_; }
  /// Lines lost since the last one that is written.
  int64_t num_lost() const { return num_lost_; }

 private:
  std::string path_;
  std::unique_ptr<LineWriter> writer_;
  bool is_line_open_ = false;  // the file may end in a part of a line
  int64_t num_lost_ = 0;
};

}  // namespace automodel::loggers
