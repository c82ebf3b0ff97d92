#pragma once

#include <cmath>
#include <string>

#include "core/file.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::test {

/// A record as a run writes it.
inline std::string step_line(int64_t step, const std::string& loss,
                             const std::string& timestamp = "2026-08-01T00:00:00.000Z") {
  return cat("{\"step\": ", step, ", \"epoch\": 0, \"timestamp\": \"", timestamp,
             "\", \"loss\": ", loss,
             ", \"grad_norm\": 1.5, \"lr\": 0.001, \"mem\": 0.25, \"tps\": ",
             "5000.5, \"tps_per_gpu\": 5000.5, \"mfu\": null, \"num_tokens_per_step\": 100, ",
             "\"num_label_tokens\": 80}\n");
}

/// A folder in which a run was: its files, as given.
struct RunFiles {
  std::string name = "run";
  std::string training = "";
  std::string events = "";
  std::string description = "";
  std::string validation = "";
};

/// Returns the folder.
inline std::string write_run(const TemporaryDirectory& parent, const RunFiles& files) {
  const std::string folder = parent.file(files.name);
  create_directories(folder);
  const std::pair<const char*, const std::string&> all[] = {{"training.jsonl", files.training},
                                                            {"events.jsonl", files.events},
                                                            {"run.json", files.description},
                                                            {"validation.jsonl", files.validation}};
  for (const auto& [name, text] : all) {
    if (!text.empty()) write_file_atomic(path_join(folder, name), text);
  }
  return folder;
}

}  // namespace automodel::test
