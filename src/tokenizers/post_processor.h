#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/component.h"
#include "tokenizers/typed_ids.h"

namespace automodel::tokenizers {

/// Puts special tokens around the ids of a text, or of two: templates of ids and places for the
/// texts'.
class PostProcessor final {
 public:
  /// Does nothing.
  PostProcessor() = default;
  /// Throws InputError naming the component when it is not known.
  explicit PostProcessor(const Component& component);

  std::vector<int64_t> apply(std::vector<int64_t> ids, bool add_special_tokens) const;
  /// The ids and types of a text, or of a pair of texts if `second` is not null.
  TypedIds apply(const std::vector<int64_t>& first, const std::vector<int64_t>* second,
                 bool add_special_tokens) const;
  /// How many special tokens it adds to a text, or to a pair.
  size_t num_added(bool is_pair) const;

 private:
  /// A text's place, or special tokens.
  struct Part {
    char sequence = 0;  ///< 'A' or 'B'; 0: special tokens
    std::vector<int64_t> ids = {};
    int64_t type = 0;  ///< of its tokens
  };
  using Template = std::vector<Part>;
  struct Templates {
    Template of_text;
    Template of_pair;
  };

  void add_stage(const Component& component);
  static Template read_template(const Component& component, std::string_view key);
  static Templates read_separators(const Component& component, int64_t num_between);

  std::optional<Templates> templates_;  // nothing: ids stay as they are, a pair's one after another
};

}  // namespace automodel::tokenizers
