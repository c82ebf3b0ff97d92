#include "loggers/log_file.h"

#include <utility>

#include "core/error.h"

namespace automodel::loggers {

namespace {

/// Whether the file is there and ends in the middle of a line.
bool ends_in_a_line(const std::string& path) {
  if (!path_exists(path)) return false;
  const DataFile file(path);
  return file.size() > 0 && file.read(file.size() - 1, 1) != "\n";
}

}  // namespace

void LogFile::open() {
  is_line_open_ = ends_in_a_line(path_);
  writer_ = std::make_unique<LineWriter>(path_);
}

LogFile::Outcome LogFile::append(std::string_view line) {
  try {
    if (writer_ == nullptr) open();
    writer_->append(is_line_open_ ? cat('\n', line) : line);
    is_line_open_ = false;
    return {"", std::exchange(num_lost_, 0)};
  } catch (const InputError& error) {
    is_line_open_ = true;  // a part of the line may have been written
    return {error.what(), ++num_lost_};
  }
}

}  // namespace automodel::loggers
