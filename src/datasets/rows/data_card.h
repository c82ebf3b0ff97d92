#pragma once

#include <optional>
#include <string>
#include <vector>

namespace automodel::datasets {

/// One split's patterns in a card.
struct CardFiles {
  std::string split;
  std::vector<std::string> patterns;
};

/// An entry of `configs` at the head of a data set's README.md.
struct CardConfig {
  std::string name = "default";
  bool is_default = false;
  std::optional<std::string> folder;  ///< data_dir
  std::vector<CardFiles> data_files;  ///< empty: files are found by their names
};

/// The configurations in a README.md; none if it has no head. `name` is its name in errors. Throws
/// InputError.
std::vector<CardConfig> read_card(const std::string& text, const std::string& name);

}  // namespace automodel::datasets
