#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/io/compressed.h>
#include <arrow/util/compression.h>

#include "core/error.h"
#include "core/text.h"
#include "tables/arrow_result.h"
#include "tables/file_copy.h"
#include "tables/table_file.h"

namespace automodel::tables {

namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

std::shared_ptr<arrow::io::InputStream> open_packed(const std::string& path) {
  const auto kind = path.ends_with(".zst") ? arrow::Compression::ZSTD : arrow::Compression::GZIP;
  const std::shared_ptr<arrow::util::Codec> codec = take(arrow::util::Codec::Create(kind), path);
  auto file = take(arrow::io::ReadableFile::Open(path), path);
  auto stream = take(arrow::io::CompressedInputStream::Make(codec.get(), file), path);
  // The codec must live as long as what reads through it.
  return {stream.get(), [stream, codec](arrow::io::InputStream*) {}};
}

}  // namespace

bool is_packed_name(std::string_view path) {
  return path.ends_with(".gz") || path.ends_with(".zst");
}

UnpackedFile unpack_file(const std::string& path, const std::string& copies) {
  const FileCopy copy = find_or_make_copy(path, copies, ".unpacked", [&](const std::string& to) {
    const auto in = open_packed(path);
    const auto out = take(arrow::io::FileOutputStream::Open(to), to);
    while (true) {
      const auto piece = take(in->Read(kPieceBytes), path);
      if (piece->size() == 0) break;
      check(out->Write(piece), to);
    }
    check(out->Close(), to);
  });
  return {copy.path, copy.checksum};
}

std::string read_packed_start(const std::string& path, size_t num_bytes) {
  const auto in = open_packed(path);
  std::string text;
  while (text.size() < num_bytes) {
    const auto piece = take(in->Read(static_cast<int64_t>(num_bytes - text.size())), path);
    if (piece->size() == 0) break;
    text += piece->ToString();
  }
  return text;
}

}  // namespace automodel::tables
