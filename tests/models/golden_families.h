#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_directory.h"

namespace automodel::test {

/// Every model of tests/golden that reads a text: the folders with a reference, but the one that
/// denoises, which has tests of its own.
inline std::vector<std::string> golden_families() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(source_file("tests/golden"))) {
    const std::string name = folder.path().filename();
    const bool has_reference = std::filesystem::exists(folder.path() / "reference.safetensors");
    if (has_reference && name != "diffusion_gemma") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace automodel::test
