#include "tokenizers/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>

#include "core/error.h"

namespace automodel::tokenizers {

namespace {

uint64_t hash_text(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}

size_t table_size(size_t entries) {
  return std::bit_ceil(std::max<size_t>(16, entries + entries / 2));
}

}  // namespace

Vocabulary::Vocabulary(StringList tokens, std::vector<int64_t> ids, const std::string& file,
                       Twins twins)
    : tokens_(std::move(tokens)), ids_(std::move(ids)) {
  AM_CHECK(tokens_.size() == ids_.size());
  const auto count = static_cast<int64_t>(tokens_.size());
  // Holes are allowed, but not so many that the table of ids would be out of all proportion.
  const int64_t bound = 4 * count + 1'000'000;
  slots_.resize(table_size(tokens_.size()));
  const size_t mask = slots_.size() - 1;
  int64_t largest = -1;
  for (const int64_t id : ids_) largest = std::max(largest, id);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (ids_[i] < 0 || ids_[i] >= bound) {
      throw InputError(cat(file, ": token '", tokens_[i],
                           "' has an id out of range for a vocabulary of ", count, " tokens"));
    }
  }
  entry_of_id_.resize(static_cast<size_t>(largest + 1));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const uint64_t hash = hash_text(tokens_[i]);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask;
    for (; slots_[at].entry != 0; at = (at + 1) & mask) {
      if (slots_[at].hash == tag && tokens_[slots_[at].entry - 1] == tokens_[i]) {
        if (twins == Twins::kLastCounts) break;
        throw InputError(cat(file, ": token '", tokens_[i], "' is in the vocabulary twice"));
      }
    }
    slots_[at] = {tag, static_cast<uint32_t>(i + 1)};
    uint32_t& entry = entry_of_id_[static_cast<size_t>(ids_[i])];
    if (entry != 0) {
      throw InputError(cat(file, ": tokens '", tokens_[entry - 1], "' and '", tokens_[i],
                           "' both have id ", ids_[i]));
    }
    entry = static_cast<uint32_t>(i + 1);
  }
}

int64_t Vocabulary::find(std::string_view token) const {
  const uint64_t hash = hash_text(token);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].entry != 0; at = (at + 1) & mask) {
    const size_t entry = slots_[at].entry - 1;
    if (slots_[at].hash == tag && tokens_[entry] == token) return ids_[entry];
  }
  return -1;
}

std::optional<std::string_view> Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= id_bound()) return std::nullopt;
  const uint32_t entry = entry_of_id_[static_cast<size_t>(id)];
  if (entry == 0) return std::nullopt;
  return tokens_[entry - 1];
}

MergeTable::MergeTable(size_t num_merges) : slots_(table_size(num_merges)) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(mixed >> (64 - std::countr_zero(slots_.size())));
}

void MergeTable::insert(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t pair = (static_cast<uint64_t>(left) << 32) | right;
  size_t at = slot_of(pair);
  while (slots_[at].pair != kFree && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {pair, merge};
  if (merge.id >= is_given_.size()) is_given_.resize(merge.id + 1);
  is_given_[merge.id] = true;
}

const MergeTable::Merge* MergeTable::find(uint32_t left, uint32_t right) const {
  const uint64_t pair = (static_cast<uint64_t>(left) << 32) | right;
  for (size_t at = slot_of(pair); slots_[at].pair != kFree; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return &slots_[at].merge;
  }
  return nullptr;
}

}  // namespace automodel::tokenizers
