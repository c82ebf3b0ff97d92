#include "datasets/pretraining/bin_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

constexpr int32_t kShardMagic = 278895051;
constexpr int32_t kMagicOfFineweb = 20240520;
constexpr int64_t kShardHeaderBytes = 256 * 4;
/// The blocks that a file's fingerprint is made of; few, for a run may have thousands of files.
constexpr BlockSampling kShardBlocks{.num_blocks = 16, .block_bytes = 4096};
constexpr int64_t kSmallestPiece = 2048;    ///< tokens
constexpr int64_t kLargestPiece = 1 << 19;  ///< tokens

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

std::string bytes_of(int32_t entry) {
  return {reinterpret_cast<const char*>(&entry), sizeof entry};
}

template <typename Token>
std::string narrowed(std::span<const int64_t> tokens) {
  std::string bytes(tokens.size() * sizeof(Token), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<Token>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof(Token), &token, sizeof(Token));
  }
  return bytes;
}

int32_t header_entry(const std::string& header, size_t at) {
  int32_t value = 0;
  std::memcpy(&value, header.data() + 4 * at, sizeof value);
  return value;
}

template <typename Token>
std::vector<int64_t> widened(const std::string& bytes) {
  std::vector<Token> tokens(bytes.size() / sizeof(Token));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(Token));
  return {tokens.begin(), tokens.end()};
}

std::vector<int64_t> decoded(const std::string& bytes, int64_t token_bytes) {
  return token_bytes == 2 ? widened<uint16_t>(bytes) : widened<uint32_t>(bytes);
}

}  // namespace

BinShard BinShard::read(const std::string& path) {
  const DataFile file(path);
  const std::string header = file.read(0, kShardHeaderBytes);
  const bool has_header = std::ssize(header) == kShardHeaderBytes;
  const int32_t magic = header.size() >= 4 ? header_entry(header, 0) : 0;
  if (magic != kShardMagic && magic != kMagicOfFineweb) {
    throw InputError(cat(path, ": this is no file of nanoGPT's tokens: it begins with ", magic,
                         ", not with ", kShardMagic, " or ", kMagicOfFineweb));
  }
  if (!has_header) {
    throw InputError(cat(path, ": its ", header.size(), " bytes are too few for the header of ",
                         kShardHeaderBytes, ": the file is cut off"));
  }
  if (const int32_t version = header_entry(header, 1); version != 1) {
    throw InputError(cat(path, ": version ", version, " of the format is not known; 1 is"));
  }
  BinShard shard;
  shard.path = path;
  shard.num_tokens = header_entry(header, 2);
  if (magic == kShardMagic) shard.token_bytes = header_entry(header, 3);
  if (shard.token_bytes != 2 && shard.token_bytes != 4) {
    throw InputError(cat(path, ": tokens of ", shard.token_bytes,
                         " bytes are not known; 2 (uint16) and 4 (uint32) are"));
  }
  const auto num_bytes = static_cast<int64_t>(file.size());
  if (shard.num_tokens < 0 || shard.byte_of(shard.num_tokens) > num_bytes) {
    throw InputError(cat(path, ": its header says ", shard.num_tokens, " tokens of ",
                         shard.token_bytes, " bytes, ", (num_bytes - kShardHeaderBytes),
                         " bytes follow it: the file is cut off"));
  }
  shard.fingerprint = {path, file.state(), sampled_checksum(file, kShardBlocks), true};
  return shard;
}

int64_t BinShard::byte_of(int64_t token) const {
  return kShardHeaderBytes + token * token_bytes;
}

BinTokens::BinTokens(const BinShard& shard) : shard_(shard), file_(shard.path) {
  if (file_.state() != shard.fingerprint.state) {
    throw InputError(cat(shard.path, " changed while it was in use: it was written to"));
  }
}

std::vector<int64_t> BinTokens::read(int64_t begin, int64_t count) const {
  AM_CHECK(begin >= 0 && count >= 0 && begin + count <= shard_.num_tokens, "tokens ", begin, " to ",
           begin + count, " of ", shard_.num_tokens);
  return decoded(file_.read(static_cast<uint64_t>(shard_.byte_of(begin)),
                            static_cast<uint64_t>(count * shard_.token_bytes)),
                 shard_.token_bytes);
}

int64_t BinTokens::find(int64_t token, int64_t begin) const {
  // Documents are short next to a file: small pieces first.
  int64_t piece = kSmallestPiece;
  for (int64_t at = begin; at < shard_.num_tokens; piece = std::min(2 * piece, kLargestPiece)) {
    const std::vector<int64_t> tokens = read(at, std::min(piece, shard_.num_tokens - at));
    const auto found = std::ranges::find(tokens, token);
    at += found - tokens.begin();
    if (found != tokens.end()) return at;
  }
  return shard_.num_tokens;
}

BinShardWriter::BinShardWriter(const std::string& path, int64_t vocab_size)
    : file_(path), vocab_size_(vocab_size), token_bytes_(vocab_size <= int64_t{1} << 16 ? 2 : 4) {
  std::string header = bytes_of(kShardMagic) + bytes_of(1) + bytes_of(0);
  header += bytes_of(static_cast<int32_t>(token_bytes_));
  header.resize(kShardHeaderBytes, '\0');
  file_.write(header);
}

void BinShardWriter::add(std::span<const int64_t> tokens) {
  for (const int64_t token : tokens) {
    AM_CHECK(token >= 0 && token < vocab_size_, "token ", token, " of ", vocab_size_);
  }
  num_tokens_ += std::ssize(tokens);
  if (num_tokens_ > std::numeric_limits<int32_t>::max()) {
    throw UserError("more than 2147483647 tokens do not fit into one .bin file: write several");
  }
  file_.write(token_bytes_ == 2 ? narrowed<uint16_t>(tokens) : narrowed<uint32_t>(tokens));
}

void BinShardWriter::finish() {
  file_.write_at(2 * sizeof(int32_t), bytes_of(static_cast<int32_t>(num_tokens_)));
  file_.finish();
}

}  // namespace automodel::datasets
