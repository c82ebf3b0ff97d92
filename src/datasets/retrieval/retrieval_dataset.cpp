#include "datasets/retrieval/retrieval_dataset.h"

#include <algorithm>
#include <utility>

#include "core/checksum.h"
#include "core/error.h"
#include "core/text.h"
#include "datasets/rows/numpy_random.h"
#include "datasets/rows/order_checksum.h"
#include "datasets/rows/python_random.h"
#include "tensor/text_labels.h"

namespace automodel::datasets {

namespace {

/// A label that tells a passage from others: of its id, where it has one.
int64_t label_of(const Passage& passage) {
  if (passage.id.empty()) return tensor::kUnnamedPassage;
  return static_cast<int64_t>(checksum_of(passage.id) >> 1);
}

std::string with_prefix(const std::string& prefix, const std::string& text) {
  return prefix.empty() ? text : cat(prefix, " ", text);
}

}  // namespace

RetrievalDataset::RetrievalDataset(RetrievalSelection selection, RetrievalTexts texts,
                                   const TextEncoder& encoder)
    : selection_(std::move(selection)), texts_(std::move(texts)), encoder_(encoder) {
  int64_t num_questions = 0;
  for (const QuestionEntry& entry : selection_.entries) {
    Part part{open_questions(entry), std::nullopt, num_questions};
    if (entry.num_samples && *entry.num_samples < part.source->size()) {
      part.drawn = PythonRandom(selection_.seed).sample(part.source->size(), *entry.num_samples);
    }
    num_questions += part.size();
    parts_.push_back(std::move(part));
  }
  if (selection_.shuffles && selection_.most) {
    order_ = numpy_permutation(num_questions, selection_.seed);
  }
  const int64_t first = std::min(selection_.first, num_questions);
  size_ = std::min(num_questions - first, selection_.most.value_or(num_questions));
  if (size_ < 1) throw InputError("no question is left of data_dir_list");
  at(0);  // wrong rows are an error now, not in the first batch
}

RetrievalDataset::Place RetrievalDataset::place(int64_t index) const {
  const int64_t asked = index + selection_.first;
  const int64_t number = order_ ? (*order_)[static_cast<size_t>(asked)] : asked;
  const auto is_before = [](int64_t value, const Part& part) { return value < part.first; };
  const auto next = std::upper_bound(parts_.begin(), parts_.end(), number, is_before);
  const Part& part = *std::prev(next);
  const int64_t row = number - part.first;
  return {&part, part.drawn ? (*part.drawn)[static_cast<size_t>(row)] : row};
}

std::vector<Passage> RetrievalDataset::passages(const Question& question,
                                                const std::string& origin) const {
  std::vector<Passage> out = {passage_of(question, question.right[0], cat(origin, ": pos_doc"))};
  const int64_t num_wrong = selection_.num_passages - 1;
  if (num_wrong > 0 && question.wrong.empty()) {
    throw InputError(cat(origin, ": no 'neg_doc', and n_passages ", selection_.num_passages,
                         " asks for ", num_wrong, " passages that do not answer the query"));
  }
  for (int64_t i = 0; i < num_wrong; ++i) {
    const size_t place = static_cast<size_t>(i) % question.wrong.size();
    out.push_back(passage_of(question, question.wrong[place], cat(origin, ": neg_doc")));
  }
  return out;
}

void RetrievalDataset::add_text(const std::string& text, int64_t most_tokens, int64_t label,
                                const std::string& origin, Sample& sample) const {
  const std::vector<int64_t> ids = encoder_.encode_texts({text, std::nullopt}, most_tokens).ids;
  const int64_t length = std::ssize(ids);
  if (length == 0) throw InputError(cat(origin, ": a text without any token"));
  if (length > texts_.num_positions.value_or(length)) {
    throw InputError(cat(origin, ": a text of ", length,
                         " tokens, and the model has positions for ", *texts_.num_positions,
                         ": q_max_len and p_max_len cut texts"));
  }
  if (length == most_tokens) {
    sample.num_cut +=
        std::ssize(encoder_.encode_texts({text, std::nullopt}, std::nullopt).ids) - length;
  }
  const size_t begin = sample.input_ids.size();
  sample.input_ids.insert(sample.input_ids.end(), ids.begin(), ids.end());
  sample.labels.resize(sample.input_ids.size(), kIgnoreIndex);
  sample.labels[texts_.reads_last_token ? sample.labels.size() - 1 : begin] = label;
  sample.document_lengths.push_back(length);
}

Sample RetrievalDataset::at(int64_t index) const {
  const auto [part, row] = place(index);
  const std::string origin = part->source->origin(row);
  const Question question = part->source->question(row);
  Sample sample;
  const std::vector<Passage> found = passages(question, origin);
  const BiEncoderCollatorConfig& format = texts_.format;
  PassageCorpus::Instructions before{format.query_prefix, format.passage_prefix};
  if (format.use_dataset_instruction) {
    if (selection_.gives_instructions && question.corpus == nullptr) {
      throw InputError(cat(origin,
                           ": use_dataset_instruction is for questions whose corpus has "
                           "instructions, and this one has its passages' texts"));
    }
    before = selection_.gives_instructions ? question.corpus->instructions()
                                           : PassageCorpus::Instructions{};
  }
  add_text(with_prefix(before.query, question.text), format.q_max_len, tensor::kQueryLabel, origin,
           sample);
  for (const Passage& passage : found) {
    add_text(with_prefix(before.passage, passage.text), format.p_max_len, label_of(passage), origin,
             sample);
  }
  sample.num_attended = std::ssize(sample.input_ids);
  sample.pad_id = encoder_.pad_token_id().value_or(encoder_.eos_token_id().value_or(0));
  sample.row = index;
  return sample;
}

std::string RetrievalDataset::origin(int64_t row) const {
  const auto [part, in_source] = place(row);
  return part->source->origin(in_source);
}

std::vector<DataFingerprint> RetrievalDataset::files() const {
  std::vector<DataFingerprint> all;
  for (const Part& part : parts_) {
    for (DataFingerprint& file : part.source->files()) all.push_back(std::move(file));
  }
  return all;
}

uint64_t RetrievalDataset::order_checksum() const {
  OrderChecksum sum;
  for (const Part& part : parts_) {
    sum.add(static_cast<int64_t>(part.source->order_checksum()));
    sum.add(part.size());
    if (part.drawn) sum.add(*part.drawn);
  }
  sum.add(selection_.first).add(size_);
  if (order_) sum.add(*order_);
  return sum.value();
}

std::vector<std::string> RetrievalDataset::findings() const {
  constexpr int64_t kMostRead = 100;
  const int64_t num_wrong = selection_.num_passages - 1;
  for (int64_t i = 0; i < std::min(size_, kMostRead); ++i) {
    const auto [part, row] = place(i);
    try {
      const int64_t own = std::ssize(part->source->question(row).wrong);
      if (own == 0 || own >= num_wrong) continue;
      return {cat(part->source->origin(row), ": this question has ", own, " of the ", num_wrong,
                  " passages that do not answer it (n_passages ", selection_.num_passages,
                  "): they are repeated, here and where it is so too")};
    } catch (const InputError&) {
      // An error when it is due.
    }
  }
  return {};
}

}  // namespace automodel::datasets
