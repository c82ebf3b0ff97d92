#include "loggers/chrome_trace.h"

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/json.h"

namespace automodel::loggers {

namespace {
constexpr size_t kPieceBytes = 1 << 16;
constexpr double kMicroseconds = 1e6;
}  // namespace

ChromeTrace::ChromeTrace(std::string path, int rank) : path_(std::move(path)), rank_(rank) {
  std::ofstream out(path_, std::ios::trunc);
  out << "[\n";
  out.flush();
  if (!out) throw InputError(cat("cannot write the trace ", path_));
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
  std::ofstream out(path_, std::ios::app);
  out << pending_;
  pending_.clear();
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
