#pragma once

#include <cstdint>

namespace automodel::tensor {

/// Labels of the tokens that stand for texts, where a sequence is a group of texts to be compared:
/// a query's, and a passage's that nothing tells from others. A label from 0 is a passage's
/// identity.
constexpr int64_t kQueryLabel = -1;
constexpr int64_t kUnnamedPassage = -2;

}  // namespace automodel::tensor
