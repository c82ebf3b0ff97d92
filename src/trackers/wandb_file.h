#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trackers/record_file.h"

namespace automodel::trackers {

/// A file of a run in the wandb package's form (run-ID.wandb): a log of LevelDB's, in blocks of
/// 32 KiB, behind a head of W&B's own.
class WandbFile final {
 public:
  /// Makes the file; throws InputError "cannot write PATH: reason" where it cannot or is there.
  explicit WandbFile(const std::string& path);

  /// Writes records, all or none, as RecordFile::append does.
  void append(const std::vector<std::string>& records);

 private:
  RecordFile file_;
};

/// The whole records of a file, up to the first that is torn or broken; none of a file that is not
/// W&B's. Throws InputError where the file cannot be read.
std::vector<std::string> read_wandb_file(const std::string& path);

}  // namespace automodel::trackers
