#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "core/reporter.h"

namespace automodel::loggers {

/// The events of one rank as a Chrome trace (chrome://tracing, Perfetto): the rank is the process,
/// the category the lane. Written in large pieces; the array's closing bracket is optional in the
/// format, so a file left by a killed process can be read too. Any thread may record.
class ChromeTrace final : public TraceSink {
 public:
  /// Throws InputError when the file cannot be created. What cannot be written later is lost, which
  /// `reporter` is told once.
  ChromeTrace(std::string path, int rank, Reporter& reporter);
  ~ChromeTrace() override;
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  void record(const TraceEvent& event) override;

 private:
  void flush();

  std::string path_;
  int rank_;
  Reporter& reporter_;
  std::mutex mutex_;  // guards what follows
  std::ofstream out_;
  std::string pending_;
};

/// The file a rank's trace goes to: `trace.json` of rank 0, `trace.rank1.json` of rank 1.
std::string trace_path_of_rank(const std::string& path, int rank);

}  // namespace automodel::loggers
