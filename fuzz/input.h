#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::fuzz {

/// The texts between lines of three dashes.
inline std::vector<std::string> split_parts(const uint8_t* data, size_t size) {
  constexpr std::string_view kBorder = "\n---\n";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts;
  for (size_t at = rest.find(kBorder); at != std::string_view::npos; at = rest.find(kBorder)) {
    parts.emplace_back(rest.substr(0, at));
    rest.remove_prefix(at + kBorder.size());
  }
  parts.emplace_back(rest);
  return parts;
}

/// A folder in memory for one process's files, overwritten by every input.
class Folder final {
 public:
  Folder() : path_("/dev/shm/automodel-fuzz-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::string path_;
};

/// A safetensors file of a header's text and zeros.
inline std::string safetensors_file(std::string header, size_t num_zeros) {
  uint64_t length = header.size();
  std::string bytes(8, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(length & 255);
    length >>= 8;
  }
  return bytes + std::move(header) + std::string(num_zeros, '\0');
}

}  // namespace automodel::fuzz
