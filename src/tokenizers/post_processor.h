#pragma once

#include <cstdint>
#include <vector>

#include "tokenizers/component.h"

namespace automodel::tokenizers {

/// Puts special tokens around the ids of a text: for each stage, a template of ids and places for
/// what came before.
class PostProcessor final {
 public:
  /// Does nothing.
  PostProcessor() = default;
  /// Throws InputError naming the component when it is not known.
  explicit PostProcessor(const Component& component);

  std::vector<int64_t> apply(std::vector<int64_t> ids, bool add_special_tokens) const;

 private:
  struct Part {
    bool is_sequence = false;
    std::vector<int64_t> ids;
  };

  void add_stage(const Component& component);
  void add_template(const Component& component);
  void add_pair(const Component& component);

  std::vector<std::vector<Part>> stages_;
};

}  // namespace automodel::tokenizers
