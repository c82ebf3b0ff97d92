#include "tokenizers/word_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/text.h"

namespace automodel::tokenizers {
namespace {

std::vector<int64_t> found(const WordCache& cache, const std::string& word) {
  std::vector<int64_t> ids;
  if (!cache.find(cache.place_of(word), ids)) ids = {-1};
  return ids;
}

TEST(WordCacheTest, FindsWordsOfEverySizeThatItKeepsAndNoOther) {
  WordCache cache;
  for (size_t size = 1; size <= 24; ++size) {
    const auto id = static_cast<int64_t>(size);
    cache.insert(cache.place_of(std::string(size, 'a')),
                 std::vector<int64_t>{id, 4000000000, id + 1});
  }
  for (size_t size = 1; size <= 24; ++size) {
    const auto id = static_cast<int64_t>(size);
    const std::string word(size, 'a');
    EXPECT_THAT(found(cache, word), testing::ElementsAre(id, 4000000000, id + 1)) << size;
    std::string other = word;
    other.back() = '\0';
    EXPECT_THAT(found(cache, other), testing::ElementsAre(-1)) << size;
  }
}

TEST(WordCacheTest, KeepsNeitherLongWordsNorThoseOfManyTokens) {
  WordCache cache;
  cache.insert(cache.place_of(std::string(25, 'a')), std::vector<int64_t>{1});
  EXPECT_THAT(found(cache, std::string(25, 'a')), testing::ElementsAre(-1));
  cache.insert(cache.place_of("b"), std::vector<int64_t>(9, 1));
  EXPECT_THAT(found(cache, "b"), testing::ElementsAre(-1));
  cache.insert(cache.place_of(""), std::vector<int64_t>{1});
  EXPECT_THAT(found(cache, ""), testing::ElementsAre(-1));
}

/// A word that takes over the place of another.
std::string rival_of(const std::string& word) {
  WordCache cache;
  cache.insert(cache.place_of(word), std::vector<int64_t>{1});
  for (int number = 0;; ++number) {
    const std::string rival = cat("rival ", number);
    cache.insert(cache.place_of(rival), std::vector<int64_t>{2});
    if (found(cache, word) != std::vector<int64_t>{1}) return rival;
  }
}

TEST(WordCacheTest, NeverGivesAWordTheIdsOfAnother) {
  WordCache cache;
  std::atomic<int64_t> num_hits = 0;
  std::atomic<int64_t> num_wrong = 0;
  const auto work = [&](const std::string& word, int64_t id) {
    const std::vector<int64_t> ids(8, id);
    const WordCache::Place place = cache.place_of(word);
    std::vector<int64_t> seen;
    for (int i = 0; i < 1'000'000; ++i) {
      seen.clear();
      if (cache.find(place, seen)) {
        ++num_hits;
        if (seen != ids) ++num_wrong;
      } else {
        cache.insert(place, ids);
      }
    }
  };
  const std::string word = "word";
  std::vector<std::thread> threads;
  threads.emplace_back(work, word, 1);
  threads.emplace_back(work, rival_of(word), 2);
  threads.emplace_back(work, word, 1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_hits.load(), 0);
  EXPECT_EQ(num_wrong.load(), 0);
}

}  // namespace
}  // namespace automodel::tokenizers
