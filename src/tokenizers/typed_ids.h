#pragma once

#include <cstdint>
#include <vector>

namespace automodel::tokenizers {

/// Token ids, and of each the type of its text: 0, or what the post-processor says of the second of
/// a pair, 1 for BERT's (transformers' token_type_ids).
struct TypedIds {
  std::vector<int64_t> ids;
  std::vector<int64_t> types;  ///< as many
};

}  // namespace automodel::tokenizers
