#pragma once

#include <map>
#include <memory>
#include <string>

#include "comm/process_group.h"
#include "core/file.h"
#include "core/json.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Writes a run's records: a line of JSON each in checkpoint_dir, and a line on the console. Only
/// rank 0 writes. Every record reaches the kernel before the call returns.
class RunLog final {
 public:
  /// A run that continues from a checkpoint drops the records from `first_step` on, since it
  /// repeats these steps. A fresh run begins new files and renames those of an earlier run to
  /// NAME.old. The caller has locked the folder. Throws InputError.
  RunLog(const Recipe& recipe, const comm::ProcessGroup& group, Reporter& reporter,
         int64_t first_step, bool is_resumed);

  void train(const Json& record);
  void validation(const std::string& set, const Json& record);

 private:
  LineWriter& writer(const std::string& file);

  Reporter& reporter_;
  std::string folder_;
  bool is_writing_;
  std::map<std::string, std::unique_ptr<LineWriter>> writers_;
};

/// The console lines of records, in upstream's format.
std::string train_line(const Json& record);
std::string validation_line(const std::string& set, const Json& record);

}  // namespace automodel::recipes
