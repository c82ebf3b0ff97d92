#include "trackers/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "core/error.h"
#include "core/file.h"

namespace automodel::trackers {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, reversed
constexpr uint32_t kMaskDelta = 0xA282EAD8;

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

/// A number's bytes, lowest first.
template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

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

[[noreturn]] void fail(const std::string& path, int error) {
  throw InputError(cat("cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 255];
  }
  return ~crc;
}

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
  for (int64_t seconds = seconds_for_name(folder); fd_ < 0; ++seconds) {
    std::string digits = cat(seconds);
    digits.insert(0, 10 - std::min<size_t>(digits.size(), 10), '0');
    path_ = path_join(folder, cat(kPrefix, digits, ".", host_name(), ".", ::getpid(), ".0"));
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) fail(path_, errno);
  }
}

EventFile::~EventFile() {
  ::close(fd_);
}

void EventFile::append(std::string_view bytes) {
  const std::string record = framed_record(bytes);
  size_t num_written = 0;
  while (num_written < record.size()) {
    const ssize_t written = ::pwrite(fd_, record.data() + num_written, record.size() - num_written,
                                     num_bytes_ + static_cast<int64_t>(num_written));
    if (written > 0) {
      num_written += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const int error = written == 0 ? ENOSPC : errno;
      // Where this fails too, the next record is written over what is torn.
      (void)!::ftruncate(fd_, num_bytes_);
      fail(path_, error);
    }
  }
  num_bytes_ += static_cast<int64_t>(record.size());
}

}  // namespace automodel::trackers
