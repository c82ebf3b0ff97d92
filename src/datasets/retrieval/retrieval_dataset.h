#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/retrieval/question_source.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// Options of BiEncoderCollator: how questions and passages become texts of their own. Names and
/// defaults are upstream's.
struct BiEncoderCollatorConfig {
  int64_t q_max_len = 512;
  int64_t p_max_len = 512;
  std::string query_prefix;
  std::string passage_prefix;
  std::optional<std::string> padding;
  std::optional<int64_t> pad_to_multiple_of;
  bool use_dataset_instruction = false;

  static constexpr auto fields() {
    using C = BiEncoderCollatorConfig;
    return std::tuple{
        field("q_max_len", &C::q_max_len, "tokens to cut queries to, special ones included")
            .at_least(1)
            .at_most(kMostTokens),
        field("p_max_len", &C::p_max_len, "tokens to cut passages to, special ones included")
            .at_least(1)
            .at_most(kMostTokens),
        field("query_prefix", &C::query_prefix,
              "what queries begin with, before a space; \"\": nothing"),
        field("passage_prefix", &C::passage_prefix, "likewise passages"),
        field("padding", &C::padding, "what texts are padded to")
            .without_effect("texts lie behind each other here, without padding between them"),
        field("pad_to_multiple_of", &C::pad_to_multiple_of,
              "pad a batch to a multiple of this many tokens")
            .at_least(1)
            .at_most(kMostTokens),
        field("use_dataset_instruction", &C::use_dataset_instruction,
              "texts begin with the instructions of their corpus, instead of the prefixes")};
  }
};

/// How groups of texts are written for a model.
struct RetrievalTexts {
  BiEncoderCollatorConfig format = {};
  bool reads_last_token = false;  ///< which stands for a text; else its first
  /// Tokens of the longest text that the model's table of positions has rows for; absent: any.
  std::optional<int64_t> num_positions = std::nullopt;
};

/// Which questions are read, and how many passages each has.
struct RetrievalSelection {
  std::vector<QuestionEntry> entries;
  int64_t num_passages = 5;  ///< of a question: one that answers it, and others
  uint32_t seed = 42;        ///< of the draws of entries' num_samples, and of the shuffle
  bool shuffles = false;     ///< before the next two
  int64_t first = 0;         ///< question that is read first
  std::optional<int64_t> most = std::nullopt;  ///< so many questions; absent: all
  bool gives_instructions = false;             ///< of corpora, to texts that ask for them
};

/// Questions with passages, for models that make embeddings of texts. A sample is a question's
/// group: documents behind each other, the question's own and those of the passages, the answer
/// first. One token of each text has a label (tensor/text_labels.h).
class RetrievalDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset.
  RetrievalDataset(RetrievalSelection selection, RetrievalTexts texts, const TextEncoder& encoder);

  int64_t size() const override { return size_; }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override;
  uint64_t order_checksum() const override;
  /// What is worth a warning in the first questions: others repeat their passages.
  std::vector<std::string> findings() const;

 private:
  /// An entry's questions.
  struct Part {
    std::unique_ptr<QuestionSource> source;
    std::optional<std::vector<int64_t>> drawn;  ///< its questions that are read; absent: all
    int64_t first = 0;                          ///< number of the first of them in all entries'

    int64_t size() const { return drawn ? std::ssize(*drawn) : source->size(); }
  };
  /// A question's place.
  struct Place {
    const Part* part = nullptr;
    int64_t row = 0;  ///< in the part's source
  };

  Place place(int64_t index) const;
  /// The passages of a question's group.
  std::vector<Passage> passages(const Question& question, const std::string& origin) const;
  void add_text(const std::string& text, int64_t most_tokens, int64_t label,
                const std::string& origin, Sample& sample) const;

  RetrievalSelection selection_;
  RetrievalTexts texts_;
  const TextEncoder& encoder_;
  std::vector<Part> parts_;
  std::optional<std::vector<int64_t>> order_;  ///< numbers of the questions; absent: as they are
  int64_t size_ = 0;
};

}  // namespace automodel::datasets
