#include "tables/same_thread_file.h"

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/util/future.h>

#include <utility>

namespace automodel::tables {

namespace {

using Bytes = std::shared_ptr<arrow::Buffer>;

class SameThreadFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SameThreadFile(std::shared_ptr<arrow::io::RandomAccessFile> file)
      : file_(std::move(file)) {}

  arrow::Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  arrow::Status Seek(int64_t position) override { return file_->Seek(position); }
  arrow::Result<int64_t> GetSize() override { return file_->GetSize(); }
  bool supports_zero_copy() const override { return file_->supports_zero_copy(); }

  arrow::Result<int64_t> Read(int64_t num_bytes, void* out) override {
    return file_->Read(num_bytes, out);
  }
  arrow::Result<Bytes> Read(int64_t num_bytes) override { return file_->Read(num_bytes); }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, void* out) override {
    return file_->ReadAt(position, num_bytes, out);
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, bool allow_short,
                                void* out) override {
    return file_->ReadAt(position, num_bytes, allow_short, out);
  }
  arrow::Result<Bytes> ReadAt(int64_t position, int64_t num_bytes) override {
    return file_->ReadAt(position, num_bytes);
  }
  arrow::Result<Bytes> ReadAt(int64_t position, int64_t num_bytes, bool allow_short) override {
    return file_->ReadAt(position, num_bytes, allow_short);
  }
  arrow::Future<Bytes> ReadAsync(const arrow::io::IOContext& /*context*/, int64_t position,
                                 int64_t num_bytes) override {
    return arrow::Future<Bytes>::MakeFinished(file_->ReadAt(position, num_bytes));
  }
  arrow::Future<Bytes> ReadAsync(const arrow::io::IOContext& /*context*/, int64_t position,
                                 int64_t num_bytes, bool allow_short) override {
    return arrow::Future<Bytes>::MakeFinished(file_->ReadAt(position, num_bytes, allow_short));
  }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
};

}  // namespace

std::shared_ptr<arrow::io::RandomAccessFile> read_by_same_thread(
    std::shared_ptr<arrow::io::RandomAccessFile> file) {
  return std::make_shared<SameThreadFile>(std::move(file));
}

}  // namespace automodel::tables
