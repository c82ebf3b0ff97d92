#pragma once

#include <cstdint>
#include <string>

namespace automodel::recipes {

/// Keeps the records of a JSONL file whose step is below `first_step`; drops a torn last line too.
/// Steps ascend in a log, so the file is cut where `first_step` begins, which reads little of it
/// however long it is. A cut at the beginning of a line needs no second file to be safe in a crash:
/// the file has its old length or the new one. Where the lines that are looked at do not ascend,
/// the whole file is read, and written anew. Throws InputError.
void drop_records_from(const std::string& path, int64_t first_step);

/// Whether a file is a log of steps: empty, or with lines that begin with `step` and have a
/// `timestamp`, or begin so and were torn by a crash. Looks at its beginning. Throws InputError.
bool holds_records(const std::string& path);

}  // namespace automodel::recipes
