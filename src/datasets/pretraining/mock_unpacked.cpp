#include "datasets/pretraining/mock_unpacked.h"

#include <algorithm>

#include "core/text.h"
#include "datasets/rows/order_checksum.h"
#include "datasets/rows/python_random.h"

namespace automodel::datasets {

namespace {
constexpr int64_t kEndId = 1;
constexpr int64_t kFirstWordId = 2;  // 0 is padding
}  // namespace

MockUnpackedDataset::MockUnpackedDataset(const MockUnpackedDatasetConfig& config) {
  PythonRandom random(static_cast<uint32_t>(config.seed));
  const auto num_words = static_cast<double>(config.vocab_size - kFirstWordId);
  for (int64_t i = 0; i < config.num_sentences; ++i) {
    const double drawn = random.gauss(config.mean_len, config.std_len);
    const double length = std::clamp(drawn, 1.0, static_cast<double>(config.max_sentence_len));
    std::vector<int64_t> sentence(static_cast<size_t>(length) + 1, kEndId);
    for (size_t at = 0; at + 1 < sentence.size(); ++at) {
      sentence[at] = kFirstWordId + static_cast<int64_t>(random.uniform() * num_words);
    }
    sentences_.push_back(std::move(sentence));
  }
}

Sample MockUnpackedDataset::at(int64_t index) const {
  Sample sample;
  sample.input_ids = sample.labels = sentences_[static_cast<size_t>(index)];
  sample.num_attended = static_cast<int64_t>(sample.input_ids.size());
  sample.row = index;
  return sample;
}

uint64_t MockUnpackedDataset::order_checksum() const {
  OrderChecksum sum;
  for (const std::vector<int64_t>& sentence : sentences_) sum.add(sentence);
  return sum.value();
}

std::string MockUnpackedDataset::origin(int64_t row) const {
  return cat("sentence ", row + 1);
}

}  // namespace automodel::datasets
