#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "datasets/rows/fingerprint.h"

namespace automodel::datasets {

/// What a .bin file of nanoGPT's scripts says of itself: 256 int32 (a magic number, version 1, the
/// number of tokens, bytes of a token), then the tokens. Magic 278895051 has tokens of 2 or 4
/// bytes, 20240520 (fineweb.py) always 2.
struct BinShard {
  std::string path;
  int64_t num_tokens = 0;
  int64_t token_bytes = 2;
  DataFingerprint fingerprint;  ///< by the size and blocks of 4 KiB spread over the file

  /// Reads the header. Throws InputError "FILE: ..." for files that are missing, of another format
  /// or cut off.
  static BinShard read(const std::string& path);

  /// The byte at which a token begins.
  int64_t byte_of(int64_t token) const;
};

/// A shard whose tokens are read on request.
class BinTokens final {
 public:
  /// Throws InputError when the file is another one than when its header was read.
  explicit BinTokens(const BinShard& shard);

  /// The tokens [begin, begin + count), which the shard must have.
  std::vector<int64_t> read(int64_t begin, int64_t count) const;

  /// The first place at or after `begin` that holds the token; the shard's number of tokens when
  /// there is none. Reads from `begin` to there.
  int64_t find(int64_t token, int64_t begin) const;

 private:
  BinShard shard_;
  DataFile file_;
};

/// Writes a shard with magic 278895051, whose tokens have 2 bytes where the vocabulary allows it.
class BinShardWriter final {
 public:
  /// Throws InputError when the file cannot be written. It is there once it is finished.
  BinShardWriter(const std::string& path, int64_t vocab_size);

  /// Appends tokens, which must be below vocab_size. Throws UserError for more tokens than the
  /// header can say.
  void add(std::span<const int64_t> tokens);
  void finish();

  int64_t num_tokens() const { return num_tokens_; }
  int64_t token_bytes() const { return token_bytes_; }

 private:
  AtomicFile file_;
  int64_t vocab_size_;
  int64_t token_bytes_;
  int64_t num_tokens_ = 0;
};

}  // namespace automodel::datasets
