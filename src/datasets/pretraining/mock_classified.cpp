#include "datasets/pretraining/mock_classified.h"

#include "core/error.h"
#include "datasets/rows/order_checksum.h"
#include "datasets/rows/python_random.h"

namespace automodel::datasets {

void check_drawn_classes(const MockSequenceClassificationDatasetConfig& config,
                         const ClassifierFacts& model) {
  const int64_t num_classes = std::ssize(model.labels);
  if (config.num_labels > num_classes) {
    throw InputError(cat("num_labels ", config.num_labels, " is more than the model's ",
                         num_classes, " classes: model.num_labels says how many"));
  }
}

MockSequenceClassificationDataset::MockSequenceClassificationDataset(
    const MockSequenceClassificationDatasetConfig& config, const ClassifierFacts& model) {
  check_drawn_classes(config, model);
  constexpr int64_t kPadId = 0;
  constexpr int64_t kShortest = 4;
  constexpr int64_t kFirstWordId = 2;
  PythonRandom random(static_cast<uint32_t>(config.seed));
  for (int64_t i = 0; i < config.num_samples; ++i) {
    Sample sample;
    sample.num_attended = random.between(kShortest, config.max_seq_len);
    for (int64_t at = 0; at < sample.num_attended; ++at) {
      sample.input_ids.push_back(random.between(kFirstWordId, config.vocab_size - 1));
    }
    sample.labels.assign(sample.input_ids.size(), kIgnoreIndex);
    const size_t place =
        classified_place(sample.input_ids, model, model.pad_token_id.value_or(kPadId));
    sample.labels[place] = random.between(0, config.num_labels - 1);
    sample.pad_id = kPadId;
    sample.row = i;
    samples_.push_back(std::move(sample));
  }
}

uint64_t MockSequenceClassificationDataset::order_checksum() const {
  OrderChecksum sum;
  for (const Sample& sample : samples_) sum.add(sample.input_ids).add(sample.labels);
  return sum.value();
}

std::string MockSequenceClassificationDataset::origin(int64_t row) const {
  return cat("sample ", row + 1);
}

}  // namespace automodel::datasets
