#include "tokenizers/word_cache.h"

#include <algorithm>

namespace automodel::tokenizers {

WordCache::WordCache() : shards_(kNumShards) {}

bool WordCache::find(std::string_view word, uint64_t hash, std::vector<int64_t>& ids) const {
  if (word.size() > kMaxBytes) return false;
  const Shard& shard = shards_[hash % kNumShards];
  const std::unique_lock lock(shard.mutex, std::try_to_lock);
  if (!lock) return false;
  const Slot& slot = shard.slots[hash / kNumShards % kSlotsPerShard];
  if (std::string_view(slot.word.data(), slot.num_bytes) != word || word.empty()) return false;
  ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
  return true;
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int64_t> ids) {
  if (word.size() > kMaxBytes || ids.size() > kMaxIds) return;
  Shard& shard = shards_[hash % kNumShards];
  const std::unique_lock lock(shard.mutex, std::try_to_lock);
  if (!lock) return;
  Slot& slot = shard.slots[hash / kNumShards % kSlotsPerShard];
  std::ranges::copy(word, slot.word.begin());
  slot.num_bytes = static_cast<uint8_t>(word.size());
  std::ranges::transform(ids, slot.ids.begin(),
                         [](int64_t id) { return static_cast<uint32_t>(id); });
  slot.num_ids = static_cast<uint32_t>(ids.size());
}

}  // namespace automodel::tokenizers
