#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// What samples depend on of a model that classifies sequences.
struct ClassifierFacts {
  std::vector<std::string> labels;                     ///< names by id: id2label of config.json
  std::optional<int64_t> pad_token_id = std::nullopt;  ///< of config.json
  bool is_encoder = false;  ///< a sequence is classified by its first token, else by its last
  /// Tokens of the longest text that an encoder's table of positions has rows for; absent: any.
  std::optional<int64_t> num_positions = std::nullopt;
  int64_t num_token_types = 0;  ///< the model's; with two it tells the texts of a pair apart
};

/// Finds the classes that rows name.
class ClassTable final {
 public:
  explicit ClassTable(std::vector<std::string> names);

  /// The class of a row's value: a name; a whole number from 0, unless all classes are called by
  /// numbers, which are names then; true or false, where no class is called so 1 or 0. Throws
  /// InputError that begins with `what` ("FILE:LINE: column 'label'") for others, and for classes
  /// that the model does not have.
  int64_t class_of(const Json& value, const std::string& what) const;

 private:
  int64_t class_called(const std::string& name, const std::string& what) const;

  std::vector<std::string> names_;
  std::map<std::string, int64_t, std::less<>> ids_;
  bool are_numbers_ = false;  // all names are
};

/// The place of the token whose hidden state transformers' classes classify a sequence by: an
/// encoder's first one, else the last one that is not `pad_id`, 0 if there is none.
size_t classified_place(const std::vector<int64_t>& ids, const ClassifierFacts& model,
                        std::optional<int64_t> pad_id);

/// The pad token by which classified_place() goes, in a run and in transformers: the tokenizer's,
/// else config.json's, else the end of sequence.
std::optional<int64_t> classifier_pad_id(const TextEncoder& encoder,
                                         std::optional<int64_t> of_config);

}  // namespace automodel::datasets
