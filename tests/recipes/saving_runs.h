#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "recipes/runs.h"
#include "support/failing_calls.h"

namespace automodel::test {

/// A recipe of four steps that validates and saves all files after every second one, keeping one
/// checkpoint. Everything in it lies at absolute paths.
inline std::string write_saving_recipe(const TemporaryDirectory& folder) {
  const std::string base = read_file(source_file("tests/recipes/base.yaml"));
  const std::string root(source_file("."));
  return folder.write(
      "saving.yaml", replace_all(base + "  save_consolidated: every\n"
                                        "  max_recent_checkpoints: 1\n"
                                        "validation_dataset:\n"
                                        "  _target_: nemo_automodel.components.datasets.llm."
                                        "column_mapped_text_instruction_dataset."
                                        "ColumnMappedTextInstructionDataset\n"
                                        "  path_or_dataset_id: ROOT/tests/recipes/data/rows.jsonl\n"
                                        "  limit_dataset_samples: 4\n"
                                        "  column_mapping:\n"
                                        "    question: question\n"
                                        "    answer: answer\n"
                                        "  tokenizer:\n"
                                        "    _target_: transformers.AutoTokenizer.from_pretrained\n"
                                        "    pretrained_model_name_or_path: "
                                        "ROOT/configs/quickstart_tokenizer\n",
                                 "ROOT", root));
}

/// A run of that recipe with its results in `place`.
inline std::vector<std::string> saving_run(const std::string& recipe, const std::string& place,
                                           const Spread& spread) {
  return on(spread, {automodel_binary(), "run", recipe, cat("--checkpoint.checkpoint_dir=", place),
                     "--step_scheduler.max_steps=4", "--step_scheduler.ckpt_every_steps=2",
                     "--step_scheduler.val_every_steps=2"});
}

/// What a finished run has come to: the lines of its logs but for times, and the last export.
struct RunOutcome {
  std::vector<std::string> training;
  std::vector<std::string> validation;
  std::string weights;
};

/// The checkpoint that LATEST names; "" without one.
inline std::string latest_of(const std::string& place) {
  const std::string link = path_join(place, "LATEST");
  std::error_code error;
  if (std::filesystem::is_symlink(link, error)) {
    return path_join(place, std::filesystem::read_symlink(link).string());
  }
  const std::string text = cat(link, ".txt");
  return path_exists(text) ? path_join(place, trim(read_file(text))) : "";
}

inline std::vector<std::string> lines_of(const std::string& log) {
  std::vector<std::string> lines;
  for (const Json& record : read_records(log)) {
    std::string line;
    for (const char* key : {"step", "epoch", "loss", "val_loss", "grad_norm", "lr"}) {
      if (const Json* value = record.find(key)) line += cat(" ", value->dump());
    }
    lines.push_back(line);
  }
  return lines;
}

inline RunOutcome outcome_of(const std::string& place) {
  const std::string weights = "model/consolidated/model-00001-of-00001.safetensors";
  return {lines_of(path_join(place, "training.jsonl")),
          lines_of(path_join(place, "validation.jsonl")),
          read_file(path_join(latest_of(place), weights))};
}

/// Checkpoints in a folder that are finished, or those that are not.
inline std::vector<std::string> checkpoints_in(const std::string& place, bool is_finished) {
  std::vector<std::string> found;
  if (!path_exists(place)) return found;
  for (const std::string& name : list_directory(place)) {
    const std::string path = path_join(place, name);
    const bool is_checkpoint = name.starts_with("epoch_") && name.find('.') == std::string::npos;
    if (is_checkpoint && path_exists(path_join(path, ".incomplete")) != is_finished) {
      found.push_back(path);
    }
  }
  return found;
}

/// All that a run left in a folder, but for times, process numbers and random names: runs that are
/// started in two folders of the same state do the same.
inline std::string state_of(const std::string& place) {
  static const std::regex random("\\.(tmp|reserving|removing|damaged)-[0-9a-f]{16}");
  static const std::regex times(
      "\"(id|timestamp|mem|tps|tps_per_gpu|mfu|[a-z_]*seconds|[a-z_]*bytes)\": [^,}]*");
  std::vector<std::string> entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place, error)) {
    const std::string path = entry.path().string();
    std::string contents;
    if (entry.is_symlink()) {
      contents = cat("-> ", std::filesystem::read_symlink(entry.path()).string());
    } else if (path.find(".jsonl") != std::string::npos) {
      contents = std::regex_replace(read_file(path), times, "");
    } else if (entry.is_regular_file() && file_name(path) != ".lock" &&
               !file_name(path).starts_with("run.")) {
      contents = format_checksum(checksum_of_file(path));
    }
    entries.push_back(
        cat(std::regex_replace(path.substr(place.size()), random, ".$1"), ' ', contents, '\n'));
  }
  std::sort(entries.begin(), entries.end());
  return join(entries, "");
}

/// The numbers of one rank's calls whose name and path hold these words.
inline std::vector<int64_t> numbers_of(const std::vector<CountedCall>& calls, int rank,
                                       const std::string& call, const std::string& word) {
  std::vector<int64_t> numbers;
  for (const CountedCall& it : calls) {
    if (it.rank == rank && it.call == call && it.path.find(word) != std::string::npos) {
      numbers.push_back(it.number);
    }
  }
  return numbers;
}

}  // namespace automodel::test
