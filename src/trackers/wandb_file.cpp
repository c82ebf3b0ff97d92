#include "trackers/wandb_file.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/file.h"
#include "trackers/crc32.h"

namespace automodel::trackers {

namespace {

constexpr std::string_view kHead("\x3aW&B\xe1\xbe\x00", 7);  // name, magic number, version
constexpr size_t kBlock = 32768;
constexpr size_t kPieceHead = 7;  // checksum, length, type

/// Where in its record a piece is.
enum class Piece : char { kWhole = 1, kFirst, kMiddle, kLast };

uint32_t checksum_of_piece(Piece type, std::string_view bytes) {
  std::string checked(1, static_cast<char>(type));
  return crc32(checked.append(bytes));
}

/// Adds a record to `log`, which goes behind `offset` bytes of the file.
void add_record(std::string& log, size_t offset, std::string_view record) {
  bool is_first = true;
  do {
    size_t left = kBlock - (offset + log.size()) % kBlock;
    if (left < kPieceHead) {
      log.append(left, '\0');
      left = kBlock;
    }
    const std::string_view bytes = record.substr(0, left - kPieceHead);
    record.remove_prefix(bytes.size());
    const Piece type = is_first         ? record.empty() ? Piece::kWhole : Piece::kFirst
                       : record.empty() ? Piece::kLast
                                        : Piece::kMiddle;
    log += little_endian(checksum_of_piece(type, bytes));
    log += little_endian(static_cast<uint16_t>(bytes.size()));
    log += static_cast<char>(type);
    log.append(bytes);
    is_first = false;
  } while (!record.empty());
}

uint32_t number_at(std::string_view bytes, size_t at, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return number;
}

}  // namespace

WandbFile::WandbFile(const std::string& path) {
  if (!file_.create(path)) throw InputError(cat("cannot write ", path, ": it is there already"));
  file_.append(kHead);
}

void WandbFile::append(const std::vector<std::string>& records) {
  std::string log;
  for (const std::string& record : records) {
    add_record(log, static_cast<size_t>(file_.num_bytes()), record);
  }
  file_.append(log);
}

std::vector<std::string> read_wandb_file(const std::string& path) {
  const std::string file = read_file(path);
  std::vector<std::string> records;
  if (!file.starts_with(kHead)) return records;
  std::string record;
  size_t at = kHead.size();
  while (true) {
    const size_t left = kBlock - at % kBlock;
    if (left < kPieceHead) at += left;
    if (at + kPieceHead > file.size()) return records;
    const size_t size = number_at(file, at + 4, 2);
    const auto type = static_cast<Piece>(file[at + 6]);
    const bool is_whole = at + kPieceHead + size <= file.size();
    const std::string_view bytes = std::string_view(file).substr(at + kPieceHead, size);
    if (!is_whole || number_at(file, at, 4) != checksum_of_piece(type, bytes)) return records;
    record.append(bytes);
    if (type == Piece::kWhole || type == Piece::kLast) {
      records.push_back(std::move(record));
      record.clear();
    }
    at += kPieceHead + size;
  }
}

}  // namespace automodel::trackers
