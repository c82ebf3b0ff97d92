#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::models {

/// The head's module of decoders that classify sequences, in transformers and its files; an
/// encoder's is "classifier".
inline constexpr std::string_view kClassifierHead = "score";

/// The most classes that a configuration may have: more are a slip.
inline constexpr int64_t kMostClasses = 1'000'000;

/// The classes that a config.json names.
struct ClassNames {
  std::vector<std::string> names;  ///< by id
  std::string problem;             ///< what is wrong with the keys; "" where they are right
};

/// "LABEL_0", "LABEL_1", ...: transformers' names of `count` classes without any.
std::vector<std::string> usual_class_names(int64_t count);

/// The names of id2label, else the usual ones of num_labels classes, else of two, as transformers
/// has them.
ClassNames class_names(const Json& hf_config);

/// Writes the names into id2label and label2id.
void set_class_names(const std::vector<std::string>& names, Json& hf_config);

}  // namespace automodel::models
