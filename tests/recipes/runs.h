#pragma once

#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::test {

/// The records of a JSONL file.
inline std::vector<Json> read_records(const std::string& path) {
  std::vector<Json> records;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (!line.empty()) records.push_back(Json::parse(line, path));
  }
  return records;
}

/// `automodel run recipes/smoke/tiny_llama_sft.yaml` with its results in `folder`.
inline std::vector<std::string> smoke_run(const std::string& folder,
                                          const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {automodel_binary(), "run",
                                        source_file("recipes/smoke/tiny_llama_sft.yaml"),
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace automodel::test
