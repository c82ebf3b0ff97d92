#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "datasets/rows/fingerprint.h"

namespace automodel::datasets {

/// Tokenized documents in Megatron's indexed format: PREFIX.idx (magic "MMIDIDX\0\0", version 1, a
/// dtype code, counts, then lengths, byte offsets and document ends) and PREFIX.bin, the tokens one
/// after another. Lengths and offsets are kept in memory; tokens are read on request, from any
/// thread.
class TokenFile final {
 public:
  /// Throws InputError "FILE: ..." for files that are missing, of another format or cut off.
  explicit TokenFile(const std::string& prefix);

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  /// Tokens of every sequence.
  const std::vector<int32_t>& lengths() const { return lengths_; }

  /// Appends `count` tokens of a sequence, beginning at its token `offset`.
  void read(int64_t sequence, int64_t offset, int64_t count, std::vector<int64_t>& into) const;

  const std::string& prefix() const { return prefix_; }
  /// Fingerprints of PREFIX.idx by all its bytes, and of PREFIX.bin, which may have terabytes, by
  /// its size and by blocks spread evenly over it.
  std::vector<DataFingerprint> files() const;

 private:
  std::string prefix_;
  DataFile index_;
  DataFile tokens_;
  uint64_t index_checksum_ = 0;
  size_t token_bytes_ = 0;
  bool is_signed_ = false;
  std::vector<int32_t> lengths_;
  std::vector<uint64_t> offsets_;  ///< bytes
};

}  // namespace automodel::datasets
