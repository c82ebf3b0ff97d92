#include "support/temporary_directory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/file.h"

namespace automodel::test {

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "automodel-test-XXXXXX").string();
  AM_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(const std::string& name, const std::string& bytes) const {
  const std::string path = file(name);
  create_directories(parent_path(path));
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string source_file(const std::string& relative) {
  const char* root = std::getenv("AUTOMODEL_SOURCE_DIR");
  return path_join(root != nullptr ? root : AUTOMODEL_SOURCE_DIR, relative);
}

}  // namespace automodel::test
