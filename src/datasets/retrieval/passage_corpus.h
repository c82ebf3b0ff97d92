#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "datasets/rows/fingerprint.h"
#include "datasets/rows/row_source.h"

namespace automodel::datasets {

/// Passages that questions name by their ids: rows with columns `id` and `text`. Safe to read from
/// several threads.
class PassageCorpus final {
 public:
  /// What questions' and passages' texts begin with, if their samples are asked to.
  struct Instructions {
    std::string query;
    std::string passage;
  };

  /// Reads all ids. Throws InputError for rows without id or text, and for ids that occur twice.
  PassageCorpus(const SourceOptions& source, std::string name, Instructions instructions);

  const std::string& name() const { return name_; }
  const Instructions& instructions() const { return instructions_; }
  /// The text of a passage. Throws InputError that begins with `what` for an id that is not here.
  std::string text(const std::string& id, const std::string& what) const;
  std::vector<DataFingerprint> files() const { return rows_.files(); }

 private:
  std::string name_;
  Instructions instructions_;
  RowSource rows_;
  std::unordered_map<std::string, int64_t> places_;
};

/// The id that a value names: a text, or a number as it is written.
std::string passage_id(const Json& value);

}  // namespace automodel::datasets
