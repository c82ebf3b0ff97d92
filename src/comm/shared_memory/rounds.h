#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/groups/collective.h"

namespace automodel::comm {

/// A rank's place in a group whose ranks exchange slots of memory.
struct RoundsPlace {
  int rank = 0;
  int size = 1;
  int64_t slot_bytes = 0;
};

/// A collective in rounds. In each round every writer fills a slot that all others read. Rounds are
/// written and read in order, each written before it is read.
class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual int64_t num_rounds() const = 0;
  virtual bool is_writer(int) const { return true; }
  /// Whether the data of a round are available once the rounds before `num_taken` have been read.
  virtual bool is_ready(int64_t, int64_t num_taken) const {
    static_cast<void>(num_taken);
    return true;
  }
  virtual void write(int64_t round, std::byte* slot) = 0;
  /// `slots` of all ranks; null for this rank and for ranks that do not write.
  virtual void take(int64_t round, std::span<const std::byte* const> slots) = 0;
};

/// A collective's rounds, which keep its tensors alive; null for exchanges and messages.
std::unique_ptr<Rounds> rounds_of(const RoundsPlace& place, const Collective& collective);

}  // namespace automodel::comm
