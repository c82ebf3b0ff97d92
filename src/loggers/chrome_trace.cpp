#include "loggers/chrome_trace.h"

#include <filesystem>

#include "core/error.h"
#include "core/json.h"

namespace automodel::loggers {

namespace {
constexpr size_t kPieceBytes = 1 << 16;
constexpr double kMicroseconds = 1e6;
}  // namespace

ChromeTrace::ChromeTrace(std::string path, int rank, Reporter& reporter)
    : path_(std::move(path)), rank_(rank), reporter_(reporter), out_(path_, std::ios::trunc) {
  out_ << "[\n" << std::flush;
  if (!out_) throw InputError(cat("cannot write the trace ", path_));
}

ChromeTrace::~ChromeTrace() {
  flush();
}

void ChromeTrace::record(const TraceEvent& event) {
  Json line = Json::object();
  line["name"] = std::string(event.name);
  line["cat"] = std::string(event.category);
  line["ph"] = "X";
  line["ts"] = event.begin_seconds * kMicroseconds;
  line["dur"] = (event.end_seconds - event.begin_seconds) * kMicroseconds;
  line["pid"] = static_cast<int64_t>(rank_);
  line["tid"] = std::string(event.category);
  const std::lock_guard lock(mutex_);
  pending_ += line.dump() + ",\n";
  if (pending_.size() >= kPieceBytes) flush();
}

void ChromeTrace::flush() {
  const bool could_write = out_.good();
  out_ << pending_ << std::flush;
  pending_.clear();
  if (could_write && !out_.good()) {  // of other ranks than the first, errors alone are printed
    reporter_.error(cat("cannot write the trace ", path_,
                        " any more: what comes is left out; the run goes on"));
  }
}

std::string trace_path_of_rank(const std::string& path, int rank) {
  if (rank == 0) return path;
  const std::filesystem::path whole(path);
  std::filesystem::path file = whole.stem();
  file += cat(".rank", rank);
  file += whole.extension();
  return (whole.parent_path() / file).string();
}

}  // namespace automodel::loggers
