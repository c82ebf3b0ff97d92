#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizers/component.h"

namespace automodel::tokenizers {

/// Puts special tokens around the ids of a text: a template of ids and places for the text's.
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
  static std::vector<Part> read_template(const Component& component);
  static std::vector<Part> read_pair(const Component& component);

  std::optional<std::vector<Part>> template_;  // nothing: the ids stay as they are
};

}  // namespace automodel::tokenizers
