#pragma once

#include <cstddef>
#include <cstdint>
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
};

/// The class that a row's value names: a whole number from 0, true or false, or the name of a
/// class. Throws InputError that begins with `what` ("FILE:LINE: column 'label'") for others, and
/// for classes that the model does not have.
int64_t class_of(const Json& value, const std::vector<std::string>& labels,
                 const std::string& what);

/// The last place of a token that is not `pad_id`, 0 if there is none: whose hidden state
/// transformers' classes classify a sequence by.
size_t classified_place(const std::vector<int64_t>& ids, std::optional<int64_t> pad_id);

/// The pad token by which classified_place() goes, in a run and in transformers: the tokenizer's,
/// else config.json's, else the end of sequence.
std::optional<int64_t> classifier_pad_id(const TextEncoder& encoder,
                                         std::optional<int64_t> of_config);

}  // namespace automodel::datasets
