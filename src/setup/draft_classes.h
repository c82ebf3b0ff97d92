#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/rows/row_source.h"

namespace automodel::setup {

/// Columns of rows whose text, or pair of texts, has a class.
struct ClassColumns {
  std::string text, pair, label;  ///< the pair may be ""
};

/// What a recipe has to know of the classes of rows.
struct ClassFacts {
  ClassColumns columns;
  std::vector<std::string> names;  ///< sorted; empty where rows have numbers
  int64_t num_classes = 0;
};

/// Fills in, where `named` names none, the columns of a first row that are usual for texts and
/// classes. Throws InputError naming `data` where there are none.
ClassColumns class_columns(const Json& row, const ClassColumns& named, const std::string& data);

/// Reads the class of every row. Throws InputError for columns that are no classes: of numbers
/// below 0 or fractions, of both names and numbers, of one value alone or of a thousand.
ClassFacts look_at_classes(const datasets::RowSource& source, const ClassColumns& named,
                           const std::string& data);

}  // namespace automodel::setup
