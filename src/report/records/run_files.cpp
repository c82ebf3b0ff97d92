#include "report/records/run_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "core/text.h"
#include "report/records/growing_file.h"

namespace automodel::report {

namespace {

/// "" when there is no such file.
std::string text_of_file(const std::string& path) {
  return path_exists(path) ? read_file(path) : "";
}

/// Piece by piece, so that a file of a million steps is never in memory whole.
int64_t add_steps_of_file(const std::string& path, StepTable& steps) {
  constexpr uint64_t kPiece = 1 << 25;
  const uint64_t size = look_at(path).size;
  uint64_t offset = 0;
  int64_t num_unread = 0;
  while (offset < size) {
    const std::string lines = whole_lines(path, offset, kPiece);
    if (lines.empty()) break;
    offset += lines.size();
    num_unread += add_steps(lines, steps);
  }
  if (offset >= size) return num_unread;
  std::string rest(size - offset, '\0');  // a line without an end
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(rest.data(), static_cast<std::streamsize>(rest.size()));
  rest.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return num_unread + add_steps(rest, steps);
}

/// "default" of validation.jsonl, "x" of validation_x.jsonl; absent for other files.
std::optional<std::string> set_of_file(std::string_view name) {
  constexpr std::string_view kBegin = "validation", kEnd = ".jsonl";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  if (name.empty()) return "default";
  if (name[0] != '_') return std::nullopt;
  return std::string(name.substr(1));
}

/// "; it holds the runs a, b", or "".
std::string runs_below(const std::string& folder) {
  constexpr size_t kMost = 5;
  std::vector<std::string> found;
  for (const std::string& name : list_directory(folder)) {
    if (holds_a_run(path_join(folder, name))) found.push_back(name);
  }
  return found.empty() ? "" : cat("; there are runs in it: ", join_first(found, kMost));
}

std::string name_of_folder(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  if (name != "." && name != "..") return name;
  std::error_code error;
  const std::string whole = std::filesystem::canonical(folder, error).filename().string();
  return error ? folder : whole;
}

}  // namespace

std::optional<int64_t> RecordedRun::max_steps() const {
  const double steps = number_of(description, "max_steps");
  return is_step(steps) ? std::optional(static_cast<int64_t>(steps)) : std::nullopt;
}

bool holds_a_run(const std::string& folder) {
  return path_exists(path_join(folder, "training.jsonl")) ||
         path_exists(path_join(folder, "run.json"));
}

void check_run_folder(const std::string& folder) {
  if (!path_exists(folder)) throw UserError(cat("no such folder: ", folder));
  if (!is_directory(folder)) throw UserError(cat(folder, " is not a folder"));
  for (const char* name : {"training.jsonl", "events.jsonl", "run.json"}) {
    std::error_code error;
    const auto kind = std::filesystem::status(path_join(folder, name), error).type();
    const bool is_readable = kind == std::filesystem::file_type::regular ||
                             kind == std::filesystem::file_type::not_found;
    if (!is_readable) {  // a pipe, say, that never ends
      throw UserError(cat(path_join(folder, name), " is no plain file"));
    }
  }
  if (holds_a_run(folder)) return;
  throw UserError(cat(folder,
                      " is not the folder of a run: it has neither training.jsonl nor "
                      "run.json; a run's folder is its checkpoint.checkpoint_dir",
                      runs_below(folder)));
}

std::vector<std::string> validation_files(const std::string& folder) {
  std::vector<std::string> files = list_directory(folder);
  std::erase_if(files, [](const std::string& name) { return !set_of_file(name); });
  return files;
}

Validations read_validations(const std::string& folder, int64_t* num_unread) {
  static const std::vector<std::string> kOfTraining = {
      "step", "epoch", "val_loss", "lr", "num_label_tokens", "mem"};
  Validations read;
  int64_t num_lost = 0;
  for (const std::string& name : validation_files(folder)) {
    const std::string set = *set_of_file(name);
    num_lost += for_each_record(text_of_file(path_join(folder, name)), [&](const Json& record) {
      const double step = number_of(record, "step");
      read.losses.push_back({set, step, number_of(record, "val_loss")});
      for (const auto& [key, value] : record.as_object()) {
        if (!value.is_number() || is_one_of(kOfTraining, key)) continue;
        if (read.others.size() == kMostExtras && !read.others.contains(key)) continue;
        read.others[key].push_back({set, step, value.as_double()});
      }
    });
  }
  if (num_unread != nullptr) *num_unread += num_lost;
  return read;
}

Json read_run_description(const std::string& folder) {
  const std::string text = text_of_file(path_join(folder, "run.json"));
  try {
    Json description = Json::parse(text, "run.json");
    return description.is_object() ? description : Json();
  } catch (const InputError&) {
    return {};
  }
}

RecordedRun read_run(const std::string& folder) {
  check_run_folder(folder);
  RecordedRun run;
  run.folder = folder;
  run.name = name_of_folder(folder);
  run.lock = lock_state(folder);
  run.description = read_run_description(folder);
  run.num_unread_lines = add_steps_of_file(path_join(folder, "training.jsonl"), run.steps);
  run.validations = read_validations(folder, &run.num_unread_lines);
  run.events.add(text_of_file(path_join(folder, "events.jsonl")));
  run.num_unread_lines += run.events.num_unread();
  return run;
}

std::vector<std::string> run_names(const std::vector<std::string>& folders) {
  std::vector<std::string> names, all;
  for (const std::string& folder : folders) names.push_back(name_of_folder(folder));
  for (size_t i = 0; i < folders.size(); ++i) {
    all.push_back(std::ranges::count(names, names[i]) > 1 ? folders[i] : names[i]);
  }
  return all;
}

std::vector<RecordedRun> read_runs(const std::vector<std::string>& folders) {
  const std::vector<std::string> names = run_names(folders);
  std::vector<RecordedRun> runs;
  for (size_t i = 0; i < folders.size(); ++i) {
    runs.push_back(read_run(folders[i]));
    runs.back().name = names[i];
  }
  return runs;
}

}  // namespace automodel::report
