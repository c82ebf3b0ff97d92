#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizers/component.h"

namespace automodel::tokenizers {

/// Turns tokens back into text. Safe to use from several threads.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the texts of the tokens; in the end they are joined. Never empty when called.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// Throws InputError naming the component when it is not known.
std::unique_ptr<Decoder> make_decoder(const Component& component);

}  // namespace automodel::tokenizers
