#include "datasets/pretraining/token_file.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "core/checksum.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
/// The blocks that a .bin file's fingerprint is made of.
constexpr BlockSampling kBlocks{.num_blocks = 64, .block_bytes = uint64_t{64} << 10};

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

template <typename T>
T value_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct TokenType {
  size_t num_bytes = 0;
  bool is_signed = false;
};

TokenType type_of_code(int code, const std::string& file) {
  switch (code) {
    case 1:
      return {1, false};
    case 2:
      return {1, true};
    case 3:
      return {2, true};
    case 4:
      return {4, true};
    case 5:
      return {8, true};
    case 8:
      return {2, false};
    default:
      throw InputError(cat(file, ": dtype code ", code,
                           " is none of tokens: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 "
                           "uint16"));
  }
}

int64_t decode(const char* bytes, size_t num_bytes, bool is_signed) {
  const std::string_view text(bytes, num_bytes);
  switch (num_bytes) {
    case 1:
      return is_signed ? int64_t{value_at<int8_t>(text, 0)} : int64_t{value_at<uint8_t>(text, 0)};
    case 2:
      return is_signed ? int64_t{value_at<int16_t>(text, 0)} : int64_t{value_at<uint16_t>(text, 0)};
    case 4:
      return value_at<int32_t>(text, 0);
    default:
      return value_at<int64_t>(text, 0);
  }
}

}  // namespace

TokenFile::TokenFile(const std::string& prefix)
    : prefix_(prefix), index_(cat(prefix, ".idx")), tokens_(cat(prefix, ".bin")) {
  const std::string& name = index_.path();
  const std::string bytes = index_.read(0, index_.size());
  if (!std::string_view(bytes).starts_with(kMagic) || bytes.size() < kHeaderBytes) {
    throw InputError(cat(name, ": this is no index of tokenized documents (MMIDIDX)"));
  }
  if (const auto version = value_at<uint64_t>(bytes, 9); version != 1) {
    throw InputError(cat(name, ": version ", version, " of the format is not known; 1 is"));
  }
  const TokenType type = type_of_code(value_at<uint8_t>(bytes, 17), name);
  token_bytes_ = type.num_bytes;
  is_signed_ = type.is_signed;
  const auto num_sequences = value_at<uint64_t>(bytes, 18);
  const auto num_documents = value_at<uint64_t>(bytes, 26);
  const uint64_t room = bytes.size() - kHeaderBytes;
  const bool fits = num_sequences <= room / 12 && num_documents <= room / 8 &&
                    12 * num_sequences + 8 * num_documents <= room;
  if (!fits) {
    throw InputError(cat(name, ": ", bytes.size(), " bytes are too few for ", num_sequences,
                         " sequences and ", num_documents, " documents: the file is cut off"));
  }
  lengths_.resize(num_sequences);
  offsets_.resize(num_sequences);
  std::memcpy(lengths_.data(), bytes.data() + kHeaderBytes, 4 * num_sequences);
  std::memcpy(offsets_.data(), bytes.data() + kHeaderBytes + 4 * num_sequences, 8 * num_sequences);
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const auto num_bytes = static_cast<uint64_t>(std::max(lengths_[i], 0)) * token_bytes_;
    if (lengths_[i] >= 0 && offsets_[i] <= tokens_.size() &&
        num_bytes <= tokens_.size() - offsets_[i]) {
      continue;
    }
    throw InputError(cat(name, ": sequence ", i, " of ", lengths_[i], " tokens at byte ",
                         static_cast<int64_t>(offsets_[i]), " does not lie in ", tokens_.path(),
                         " of ", tokens_.size(), " bytes"));
  }
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(bytes)));
  index_checksum_ = checksum.value();
}

void TokenFile::read(int64_t sequence, int64_t offset, int64_t count,
                     std::vector<int64_t>& into) const {
  const auto index = static_cast<size_t>(sequence);
  AM_CHECK(offset >= 0 && count >= 0 && offset + count <= lengths_[index], "tokens ", offset,
           " to ", offset + count, " of ", lengths_[index]);
  const uint64_t begin = offsets_[index] + static_cast<uint64_t>(offset) * token_bytes_;
  const std::string bytes = tokens_.read(begin, static_cast<uint64_t>(count) * token_bytes_);
  for (size_t at = 0; at < bytes.size(); at += token_bytes_) {
    into.push_back(decode(bytes.data() + at, token_bytes_, is_signed_));
  }
}

std::vector<DataFingerprint> TokenFile::files() const {
  return {{index_.path(), index_.state(), index_checksum_},
          {tokens_.path(), tokens_.state(), sampled_checksum(tokens_, kBlocks), true}};
}

}  // namespace automodel::datasets
