#include "recipes/records/run_log.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "recipes/records/record_cut.h"

namespace automodel::recipes {

namespace {

/// Renames an earlier run's records, so that a fresh run does not append to them.
void set_aside(const std::string& path) {
  if (path_exists(path) && file_size(path) > 0) rename_path(path, path + ".old");
}

/// The records of training and of each validation set that a run has left.
std::vector<std::string> logs_in(const std::string& folder) {
  std::vector<std::string> logs;
  for (const std::string& name : list_directory(folder)) {
    const bool may_be_log = name == kTrainingLog || name.starts_with("validation");
    if (!may_be_log || !name.ends_with(".jsonl")) continue;
    const std::string path = path_join(folder, name);
    if (std::filesystem::is_regular_file(path) && holds_records(path)) logs.push_back(name);
  }
  return logs;
}

/// Refuses to write records into somebody's data.
void check_place(const std::string& folder, const std::string& name) {
  const std::string path = path_join(folder, name);
  if (!path_exists(path) || holds_records(path)) return;
  throw InputError(cat(path, " is no log of a run, and this run would write its log there; choose ",
                       "another checkpoint.checkpoint_dir, or another name for the file"));
}

}  // namespace

std::string log_of(const std::string& validation_set) {
  return validation_set == "default" ? "validation.jsonl"
                                     : cat("validation_", validation_set, ".jsonl");
}

void check_log_places(const std::string& folder, const std::vector<std::string>& validation_sets) {
  check_place(folder, kTrainingLog);
  for (const std::string& set : validation_sets) check_place(folder, log_of(set));
}

namespace {

/// Removes temporary files of a run that was killed while it rewrote a log.
void remove_leftovers(const std::string& folder) {
  for (const std::string& name : list_directory(folder)) {
    const bool is_log = name.starts_with(kTrainingLog) || name.starts_with("validation");
    const bool is_record = name.starts_with(cat(loggers::kRunFile, kTemporaryEnding));
    if (is_record || (is_log && name.find(cat(".jsonl", kTemporaryEnding)) != std::string::npos)) {
      remove_tree(path_join(folder, name));
    }
  }
}

}  // namespace

RunLog::RunLog(const RunLogOptions& options, Reporter& reporter, loggers::RunEvents& events)
    : reporter_(reporter),
      events_(events),
      folder_(options.folder),
      is_writing_(options.is_writing) {
  if (!is_writing_) return;
  create_directories(folder_);
  remove_leftovers(folder_);
  check_log_places(folder_, options.validation_sets);
  file(kTrainingLog);
  for (const std::string& name : logs_in(folder_)) {
    const std::string path = path_join(folder_, name);
    if (options.is_resumed) {
      drop_records_from(path, options.first_step);
      file(name);
    } else {
      set_aside(path);
    }
  }
  // What cannot be read or made ends the run now, before records are lost.
  for (auto& [name, log] : files_) log.lines.open();
}

RunLog::File& RunLog::file(const std::string& name) {
  return files_.try_emplace(name, File{loggers::LogFile(path_join(folder_, name))}).first->second;
}

void RunLog::write(const std::string& name, const Json& record) {
  File& to = file(name);
  const loggers::LogFile::Outcome outcome = to.lines.append(record.dump());
  if (!outcome.problem.empty()) {
    if (!std::exchange(to.has_warned, true)) {
      reporter_.warning(cat("records of the run are lost: ", outcome.problem));
    }
  } else if (outcome.num_lost > 0) {
    reporter_.info(cat(to.lines.path(), " is written again; it lacks ", outcome.num_lost,
                       outcome.num_lost == 1 ? " record" : " records"));
    events_.add(loggers::kLostRecords, loggers::lost_records(to.lines, outcome.num_lost));
  }
}

void RunLog::train(const Json& record) {
  if (!is_writing_) return;
  write(kTrainingLog, record);
  reporter_.info(train_line(record));
}

void RunLog::validation(const std::string& set, const Json& record) {
  if (!is_writing_) return;
  write(log_of(set), record);
  reporter_.info(validation_line(set, record));
}

void RunLog::end() {
  for (const auto& [name, file] : files_) {
    const int64_t num_lost = file.lines.num_lost();
    if (num_lost == 0) continue;
    events_.add(loggers::kLostRecords, loggers::lost_records(file.lines, num_lost));
  }
}

/// " | accuracy 0.9062" of a record that has one under `key`; "" of others.
static std::string accuracy_text(const Json& record, const char* key) {
  const Json* const accuracy = record.find(key);
  if (accuracy == nullptr || !accuracy->is_number()) return "";
  return cat(" | accuracy ", format_fixed(accuracy->as_double(), 4));
}

std::string train_line(const Json& record) {
  const Json* const dllm_loss = record.find("dllm_loss");
  const bool is_diffusion = dllm_loss != nullptr;
  const std::string canvas =
      is_diffusion ? cat(" | dllm_loss ", format_fixed(dllm_loss->as_double(), 4)) : "";
  const std::string end = is_diffusion
                              ? cat("mode ", record.at("mode").as_string())
                              : cat("num_label_tokens ", record.at("num_label_tokens").as_int());
  return cat("step ", record.at("step").as_int(), " | epoch ", record.at("epoch").as_int(),
             " | loss ", format_fixed(record.at("loss").as_double(), 4), canvas,
             accuracy_text(record, "accuracy"), " | grad_norm ",
             format_fixed(record.at("grad_norm").as_double(), 4), " | lr ",
             format_scientific(record.at("lr").as_double(), 2), " | mem ",
             format_fixed(record.at("mem").as_double(), 2), " GiB | tps ",
             format_fixed(record.at("tps").as_double(), 2), "(",
             format_fixed(record.at("tps_per_gpu").as_double(), 2), "/gpu) | ", end);
}

/// " | tool_call/name_correct 0.9062 | ..." of the main scores of tool calls; "" without any.
static std::string tool_call_text(const Json& record) {
  std::string text;
  for (const auto& [name, value] : record.as_object()) {
    if (!name.ends_with("/name_correct") && !name.ends_with("/args_exact_match")) continue;
    text += cat(" | ", name, " ", format_fixed(value.as_double(), 4));
  }
  return text;
}

std::string validation_line(const std::string& set, const Json& record) {
  return cat("[val] name \"", set, "\" | step ", record.at("step").as_int(), " | epoch ",
             record.at("epoch").as_int(), " | loss ",
             format_fixed(record.at("val_loss").as_double(), 4),
             accuracy_text(record, "val_accuracy"), tool_call_text(record), " | lr ",
             format_scientific(record.at("lr").as_double(), 2), " | num_label_tokens ",
             record.at("num_label_tokens").as_int());
}

}  // namespace automodel::recipes
