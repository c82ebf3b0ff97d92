#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/retrieval/passage_corpus.h"
#include "datasets/rows/fingerprint.h"
#include "datasets/rows/row_source.h"

namespace automodel::datasets {

/// What `data_dir_list` names: a file of questions with their passages' texts, a JSON file of
/// questions and the folders of passages that they name ("corpus" and "data"), or a data set of the
/// hub, "hf://ORGANIZATION/NAME/SUBSET".
struct QuestionEntry {
  std::string path;
  std::optional<int64_t> num_samples = std::nullopt;  ///< so many of them are drawn

  bool is_on_hub() const { return path.starts_with("hf://"); }
};

/// The rows that an entry of the hub reads: its questions, and its passages. Throws InputError for
/// one that is not hf://ORGANIZATION/NAME/SUBSET.
SourceOptions questions_of_hub(const QuestionEntry& entry);
SourceOptions passages_of_hub(const QuestionEntry& entry);

/// A passage of a question.
struct Passage {
  std::string id;  ///< "" where the question has its text alone
  std::string text;
};

/// A question with the passages that answer it and those that do not.
struct Question {
  std::string text;
  std::vector<Json> right;
  std::vector<Json> wrong;
  const PassageCorpus* corpus = nullptr;  ///< null where passages' texts are in the question
};

/// The questions of an entry. Safe to read from several threads.
class QuestionSource {
 public:
  virtual ~QuestionSource() = default;
  virtual int64_t size() const = 0;
  /// Throws InputError for a row that is not of a question.
  virtual Question question(int64_t index) const = 0;
  virtual std::string origin(int64_t index) const = 0;
  virtual std::vector<DataFingerprint> files() const = 0;
  virtual uint64_t order_checksum() const = 0;
};

/// Opens an entry and what it names. Throws InputError.
std::unique_ptr<QuestionSource> open_questions(const QuestionEntry& entry);

/// Looks at an entry's first question, as far as files are here. Throws InputError for a wrong one;
/// returns a note where nothing can be looked at on this machine.
std::optional<std::string> check_questions(const QuestionEntry& entry);

/// A passage of a question: its text, or that of the id which `value` names. `what` is for errors.
Passage passage_of(const Question& question, const Json& value, const std::string& what);

}  // namespace automodel::datasets
