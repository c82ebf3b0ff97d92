#include "datasets/retrieval/passage_corpus.h"

#include <utility>

#include "core/error.h"

namespace automodel::datasets {

std::string passage_id(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

PassageCorpus::PassageCorpus(const SourceOptions& source, std::string name,
                             Instructions instructions)
    : name_(std::move(name)), instructions_(std::move(instructions)), rows_(source) {
  places_.reserve(static_cast<size_t>(rows_.size()));
  for (int64_t row = 0; row < rows_.size(); ++row) {
    const Json passage = rows_.row(row);
    const std::string id = passage_id(required_column(passage, "id", rows_, row));
    if (row == 0) required_column(passage, "text", rows_, row);
    const auto [first, is_new] = places_.emplace(id, row);
    if (is_new) continue;
    throw InputError(cat(rows_.origin(row), ": the id '", id, "' is also that of ",
                         rows_.origin(first->second)));
  }
}

std::string PassageCorpus::text(const std::string& id, const std::string& what) const {
  const auto found = places_.find(id);
  if (found == places_.end()) {
    throw InputError(
        cat(what, " names passage '", id, "', which the corpus '", name_, "' does not have"));
  }
  const Json passage = rows_.row(found->second);
  const std::string* text = text_column(passage, "text", rows_, found->second);
  return text == nullptr ? std::string() : *text;
}

}  // namespace automodel::datasets
