#pragma once

#include <memory>

namespace arrow::io {
class RandomAccessFile;
}

namespace automodel::tables {

/// `file`, whose reads are all done by the thread that asks for them. Arrow's files give some to
/// threads of its own, which stay, and a process that has them cannot be forked into ranks.
std::shared_ptr<arrow::io::RandomAccessFile> read_by_same_thread(
    std::shared_ptr<arrow::io::RandomAccessFile> file);

}  // namespace automodel::tables
