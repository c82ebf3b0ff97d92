#pragma once

#include "config/bind.h"
#include "config/diagnostic.h"
#include "config/node.h"

namespace automodel::recipes {

/// Reads a section into an options struct; absent or null gives the defaults.
template <typename T>
T read_section(const config::Node& root, const char* key, config::Diagnostics& diagnostics,
               const config::BindOptions& options = {}) {
  const config::Node* node = root.find(key);
  if (node != nullptr) return config::bind<T>(*node, diagnostics, options);
  config::note_defaults(T{}, key, diagnostics);
  return T{};
}

}  // namespace automodel::recipes
