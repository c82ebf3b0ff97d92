#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizers/component.h"

namespace automodel::tokenizers {

/// A text on its way through the normalizers.
struct NormalizedText {
  std::string text;
  /// Whether its first character stands for the first character of the whole input (Metaspace's
  /// prepend_scheme "first" asks).
  bool is_at_start = false;
};

/// Changes a text before it is cut. Safe to use from several threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

/// Throws InputError naming the component when it is not known.
std::unique_ptr<Normalizer> make_normalizer(const Component& component);

/// SentencePiece's Precompiled normalizer.
std::unique_ptr<Normalizer> make_precompiled(const Component& component);

}  // namespace automodel::tokenizers
