#pragma once

#include <string>

namespace automodel::test {

/// A fresh directory that is removed with everything in it at the end of the test.
class TemporaryDirectory final {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// The path of a name inside the directory.
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file inside the directory (parents included) and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

/// A file of the repository: source_file("tests/data/x.json").
std::string source_file(const std::string& relative);

}  // namespace automodel::test
