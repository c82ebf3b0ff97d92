#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::config {

/// A text that keys and values come from: a recipe file, or one override argument.
struct Source {
  std::string name;  ///< the path as the person wrote it, or "command line"
  std::string text;
  bool is_argument = false;  ///< an override: positions in it are shown without line and column

  /// The text of a line (from 1), without its end; empty beyond the last.
  std::string_view line(int number) const;
};

using Sources = std::vector<Source>;

/// A place in a source. Lines and columns count from 1, columns in characters.
struct Position {
  int source = -1;  ///< index into Sources; -1: made by the program
  int line = 0;
  int column = 0;

  bool is_known() const { return source >= 0; }
  bool operator==(const Position&) const = default;
};

}  // namespace automodel::config
