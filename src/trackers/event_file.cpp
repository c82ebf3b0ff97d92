#include "trackers/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <ctime>

#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "trackers/crc32.h"

namespace automodel::trackers {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr uint32_t kMaskDelta = 0xA282EAD8;

/// Now in seconds, or later where a file of the folder is from then: the clock may have been set
/// back, and files are read in the order of their names.
int64_t seconds_for_name(const std::string& folder) {
  int64_t seconds = std::time(nullptr);
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view rest = std::string_view(name).substr(kPrefix.size());
    const auto taken = parse_int(rest.substr(0, rest.find('.')));
    constexpr int64_t kLargest = 9'999'999'999;  // ten digits: names sort as their numbers
    if (taken && *taken < kLargest) seconds = std::max(seconds, *taken + 1);
  }
  return seconds;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + kMaskDelta;
}

std::string framed_record(std::string_view bytes) {
  const std::string length = little_endian<uint64_t>(bytes.size());
  std::string record = length + little_endian(masked_crc32c(length));
  record.append(bytes);
  return record + little_endian(masked_crc32c(bytes));
}

EventFile::EventFile(const std::string& folder) {
  create_directories(folder);
  const auto path_of = [&](int64_t seconds) {
    std::string digits = cat(seconds);
    digits.insert(0, 10 - std::min<size_t>(digits.size(), 10), '0');
    return path_join(folder, cat(kPrefix, digits, ".", host_name(), ".", ::getpid(), ".0"));
  };
  int64_t seconds = seconds_for_name(folder);
  while (!file_.create(path_of(seconds))) ++seconds;
}

void EventFile::append(std::string_view bytes) {
  file_.append(framed_record(bytes));
}

}  // namespace automodel::trackers
