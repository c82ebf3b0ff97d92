#include "tables/batches.h"

#include <arrow/api.h>
#include <arrow/csv/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/thread_pool.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tables/arrow_result.h"
#include "tables/row_json.h"
#include "tables/same_thread_file.h"

namespace automodel::tables {

namespace {

constexpr int64_t kRowsABatch = 1024;

std::shared_ptr<arrow::RecordBatchReader> open_parquet(
    const std::string& path, const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  parquet::ArrowReaderProperties properties;
  properties.set_use_threads(false);
  properties.set_batch_size(kRowsABatch);
  properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  parquet::ReaderProperties reading;
  reading.set_page_checksum_verification(true);  // of pages that have a checksum
  check(builder.Open(file, reading), path);
  builder.properties(properties);
  std::shared_ptr<parquet::arrow::FileReader> reader = take(builder.Build(), path);
  std::shared_ptr<arrow::RecordBatchReader> batches = take(reader->GetRecordBatchReader(), path);
  // The batches' reader does not own the file's.
  return take(arrow::RecordBatchReader::MakeFromIterator(
                  arrow::MakeFunctionIterator([reader, batches] { return batches->Next(); }),
                  batches->schema()),
              path);
}

/// An Arrow file that is read from its beginning to its end.
std::shared_ptr<arrow::RecordBatchReader> open_arrow_file(
    const std::string& path, const std::shared_ptr<arrow::io::RandomAccessFile>& file) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  auto reader = take(arrow::ipc::RecordBatchFileReader::Open(file, options), path);
  auto next = [reader, i = 0]() mutable -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
    if (i == reader->num_record_batches()) return std::shared_ptr<arrow::RecordBatch>();
    return reader->ReadRecordBatch(i++);
  };
  return take(arrow::RecordBatchReader::MakeFromIterator(
                  arrow::MakeFunctionIterator(std::move(next)), reader->schema()),
              path);
}

/// The threads that a reader of CSV needs even when it reads without any beside it. They end with
/// the reader: a process that still has Arrow's own cannot be forked.
class ReaderThreads final {
 public:
  explicit ReaderThreads(const std::string& path)
      : io_(take(arrow::internal::ThreadPool::Make(1), path)),
        parsing_(take(arrow::internal::ThreadPool::Make(1), path)) {}
  /// Both refuse new work before either is gone, since each gives work to the other.
  ~ReaderThreads() {
    (void)io_->Shutdown(/*wait=*/false);
    (void)parsing_->Shutdown(/*wait=*/false);
  }
  ReaderThreads(const ReaderThreads&) = delete;
  ReaderThreads& operator=(const ReaderThreads&) = delete;

  arrow::io::IOContext io() const { return arrow::io::IOContext(io_.get()); }
  arrow::internal::Executor* parsing() const { return parsing_.get(); }

 private:
  std::shared_ptr<arrow::internal::ThreadPool> io_;
  std::shared_ptr<arrow::internal::ThreadPool> parsing_;
};

/// A file as it is read first: from its beginning.
std::shared_ptr<arrow::io::RandomAccessFile> open_file(const std::string& path) {
  return read_by_same_thread(take(arrow::io::ReadableFile::Open(path), path));
}

/// Dates and times of a file stay the texts that they are in it.
void keep_times_as_texts(const arrow::Schema& schema, arrow::csv::ConvertOptions& convert) {
  for (const auto& field : schema.fields()) {
    if (arrow::is_temporal(field->type()->id()))
      convert.column_types[field->name()] = arrow::utf8();
  }
}

std::shared_ptr<arrow::RecordBatchReader> open_csv(const std::string& path,
                                                   const std::vector<std::string>& texts) {
  auto read = arrow::csv::ReadOptions::Defaults();
  read.use_threads = false;
  // A column's type is that of its first block, and a row is no longer than one.
  constexpr uint64_t kLargest = uint64_t{16} << 20;
  const uint64_t size = std::min(DataFile(path).size() + 1, kLargest);
  read.block_size = std::max(read.block_size, static_cast<int32_t>(size));
  auto parse = arrow::csv::ParseOptions::Defaults();
  parse.newlines_in_values = true;
  if (path.ends_with(".tsv")) parse.delimiter = '\t';
  auto convert = arrow::csv::ConvertOptions::Defaults();
  convert.strings_can_be_null = true;  // as pandas, which the datasets package reads CSV with
  convert.null_values.insert(convert.null_values.end(), {"None", "<NA>"});
  if (!texts.empty()) convert.null_values = {""};  // a text may be one of the words
  const auto threads = std::make_shared<ReaderThreads>(path);
  const auto open = [&] {
    return take(arrow::csv::StreamingReader::MakeAsync(threads->io(), open_file(path),
                                                       threads->parsing(), read, parse, convert)
                    .result(),
                path);
  };
  for (const std::string& text : texts) convert.column_types[text] = arrow::utf8();
  std::shared_ptr<arrow::csv::StreamingReader> reader = open();
  const size_t num_stated = convert.column_types.size();
  keep_times_as_texts(*reader->schema(), convert);
  if (convert.column_types.size() > num_stated) reader = open();
  arrow::RecordBatchReader* const batches = reader.get();
  return {batches, [reader = std::move(reader), threads](arrow::RecordBatchReader*) mutable {
            reader.reset();  // before its threads
          }};
}

}  // namespace

Batches open_batches(const std::string& path, const std::vector<std::string>& texts) {
  const std::shared_ptr<arrow::io::RandomAccessFile> file = open_file(path);
  Batches batches;
  if (path.ends_with(".parquet")) {
    batches.reader = open_parquet(path, file);
  } else if (is_delimited_text(path)) {
    batches.reader = open_csv(path, texts);
  } else if (DataFile(path).read(0, 6) == "ARROW1") {
    batches.reader = open_arrow_file(path, file);
  } else {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    batches.reader = take(arrow::ipc::RecordBatchStreamReader::Open(file, options), path);
  }
  const auto& fields = batches.reader->schema()->fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (is_json_type(*fields[i]->type())) {
      batches.columns.push_back(static_cast<int>(i));
    } else {
      batches.left_out.push_back(cat(fields[i]->name(), " (", fields[i]->type()->ToString(), ")"));
    }
  }
  return batches;
}

std::shared_ptr<arrow::RecordBatch> next_batch(const Batches& batches, const std::string& path,
                                               int64_t first_row) {
  std::shared_ptr<arrow::RecordBatch> batch;
  const std::string place = cat(path, ": rows from ", first_row, " on: ");
  if (const auto status = batches.reader->ReadNext(&batch); !status.ok()) {
    throw InputError(place + status.message());
  }
  if (batch == nullptr) return nullptr;
  for (const int column : batches.columns) {
    // Offsets and lengths come from the file: nothing reads past what is there after this.
    if (const auto status = batch->column(column)->ValidateFull(); !status.ok()) {
      throw InputError(
          cat(place, "column '", batch->schema()->field(column)->name(), "': ", status.message()));
    }
  }
  auto selected = batch->SelectColumns(batches.columns);
  if (!selected.ok()) throw InputError(place + selected.status().message());
  return *selected;
}

}  // namespace automodel::tables
