// rooms: checkpoint
// A Hugging Face folder. The input has, between lines of three dashes, its config.json, its index
// of weights, and the header of the one file of weights that lies beside them.
#include <cstdlib>

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "fuzz/input.h"

using namespace automodel;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::vector<std::string> parts = fuzz::split_parts(data, size);
  parts.resize(3);
  folder.write("config.json", parts[0]);
  folder.write("model.safetensors.index.json", parts[1]);
  folder.write("model-00001-of-00001.safetensors", fuzz::safetensors_file(parts[2], 256));
  try {
    const auto opened = checkpoint::HfFolder::open(folder.path());
    opened.storage_dtype();
    for (const std::string& name : opened.names()) {
      if (!opened.find(name)) std::abort();
    }
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
