#include "tables/table_file.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>

#include <algorithm>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tables/arrow_result.h"
#include "tables/batches.h"
#include "tables/file_copy.h"
#include "tables/row_json.h"
#include "tables/same_thread_file.h"

namespace automodel::tables {

namespace {

/// Runs `work`; what Arrow throws becomes an InputError that names the file.
template <typename Work>
auto with_name(const std::string& path, const Work& work) {
  try {
    return work();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw InputError(cat(path, ": ", error.what()));
  }
}

/// The ending of copies; another one for every change of what a copy holds.
constexpr const char* kCopyEnding = "-2.arrow";

/// Throws InputError for CSV that ends inside a quoted field: what is left of it is no row.
void check_quotes(const std::string& path) {
  const DataFile file(path);
  const char delimiter = path.ends_with(".tsv") ? '\t' : ',';
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  bool is_field_begin = true;
  bool is_quoted = false;
  bool may_be_end = false;  // a quote in a quoted field, before what follows it is known
  int64_t line = 1;
  int64_t line_of_quote = 0;
  const uint64_t first = file.read(0, 3) == "\xEF\xBB\xBF" ? 3 : 0;
  for (uint64_t at = first; at < file.size(); at += kBytes) {
    for (const char c : file.read(at, std::min(kBytes, file.size() - at))) {
      if (c == '\n') ++line;
      if (is_quoted && !may_be_end) {
        may_be_end = c == '"';
        continue;
      }
      if (may_be_end) {
        may_be_end = false;
        if (c == '"') continue;  // two stand for one
        is_quoted = false;
      }
      if (is_field_begin && c == '"') {
        is_quoted = true;
        line_of_quote = line;
      }
      is_field_begin = c == delimiter || c == '\n' || c == '\r';
    }
  }
  if (is_quoted && !may_be_end) {
    throw InputError(
        cat(path, ":", line_of_quote, ": the file ends in the quoted field that begins here"));
  }
}

std::shared_ptr<arrow::DataType> without_dictionary(const std::shared_ptr<arrow::DataType>& type) {
  if (type->id() == arrow::Type::DICTIONARY) {
    return without_dictionary(static_cast<const arrow::DictionaryType&>(*type).value_type());
  }
  arrow::FieldVector fields;
  for (const auto& field : type->fields()) {
    fields.push_back(field->WithType(without_dictionary(field->type())));
  }
  switch (type->id()) {
    case arrow::Type::LIST:
      return arrow::list(fields[0]);
    case arrow::Type::LARGE_LIST:
      return arrow::large_list(fields[0]);
    case arrow::Type::FIXED_SIZE_LIST:
      return arrow::fixed_size_list(
          fields[0], static_cast<const arrow::FixedSizeListType&>(*type).list_size());
    case arrow::Type::STRUCT:
      return arrow::struct_(fields);
    case arrow::Type::MAP:
      return std::make_shared<arrow::MapType>(
          fields[0], static_cast<const arrow::MapType&>(*type).keys_sorted());
    default:
      return type;
  }
}

/// The values of numbers of a dictionary.
std::shared_ptr<arrow::Array> values_of(const arrow::DictionaryArray& numbers,
                                        const std::string& path) {
  const arrow::ArraySpan values(*numbers.dictionary()->data());
  const auto builder = take(arrow::MakeBuilder(numbers.dictionary()->type()), path);
  check(builder->Reserve(numbers.length()), path);
  for (int64_t i = 0; i < numbers.length(); ++i) {
    check(numbers.IsNull(i) ? builder->AppendNull()
                            : builder->AppendArraySlice(values, numbers.GetValueIndex(i), 1),
          path);
  }
  return take(builder->Finish(), path);
}

/// A column with the values in place of numbers of a dictionary, inside lists and structs too: a
/// file has one dictionary a column, and what is read may have one a batch.
std::shared_ptr<arrow::Array> without_dictionary(const std::shared_ptr<arrow::Array>& column,
                                                 const std::string& path) {
  const std::shared_ptr<arrow::DataType> type = without_dictionary(column->type());
  if (type->Equals(column->type())) return column;
  if (column->type_id() == arrow::Type::DICTIONARY) {
    return without_dictionary(values_of(static_cast<const arrow::DictionaryArray&>(*column), path),
                              path);
  }
  const std::shared_ptr<arrow::ArrayData> data = column->data()->Copy();
  data->type = type;
  for (auto& child : data->child_data) {
    child = without_dictionary(arrow::MakeArray(child), path)->data();
  }
  return arrow::MakeArray(data);
}

/// All rows as an Arrow file without compression, so that rows can be read where they lie.
void write_copy(const std::string& path, const std::vector<std::string>& texts,
                const std::string& to) {
  if (is_delimited_text(path)) check_quotes(path);
  const Batches batches = open_batches(path, texts);
  const auto schema = batches.reader->schema();
  arrow::FieldVector fields;
  for (const int column : batches.columns) {
    const auto& field = schema->field(column);
    fields.push_back(field->WithType(without_dictionary(field->type())));
  }
  const auto written = arrow::schema(fields);
  const auto out = take(arrow::io::FileOutputStream::Open(to), to);
  const auto writer = take(arrow::ipc::MakeFileWriter(out, written), to);
  int64_t num_rows = 0;
  while (const auto batch = next_batch(batches, path, num_rows)) {
    arrow::ArrayVector columns;
    for (const auto& column : batch->columns()) {
      columns.push_back(without_dictionary(column, path));
    }
    const auto plain = arrow::RecordBatch::Make(written, batch->num_rows(), std::move(columns));
    check(writer->WriteRecordBatch(*plain), to);
    num_rows += batch->num_rows();
  }
  check(writer->Close(), to);
  check(out->Close(), to);
}

Json row_json(const arrow::RecordBatch& batch, int64_t row) {
  Json object = Json::object();
  for (int i = 0; i < batch.num_columns(); ++i) {
    object.as_object().emplace_back(batch.schema()->field(i)->name(),
                                    value_json(*batch.column(i), row));
  }
  return object;
}

}  // namespace

namespace {

/// What the name of a file's copy ends with: copies in which other columns are texts are others.
std::string copy_ending(const std::string& path, const std::vector<std::string>& texts) {
  if (texts.empty() || !is_delimited_text(path)) return kCopyEnding;
  std::vector<std::string> sorted = texts;
  std::ranges::sort(sorted);
  return cat("-", format_checksum(checksum_of(join(sorted, "\n"))), kCopyEnding);
}

}  // namespace

struct TableFile::State {
  State(const std::string& path, const std::string& copies, const std::vector<std::string>& texts)
      : copy(find_or_make_copy(path, copies, copy_ending(path, texts),
                               [&](const std::string& to) { write_copy(path, texts, to); })) {
    // Our own file, that nobody writes to: reading it cannot fail later.
    map = read_by_same_thread(
        take(arrow::io::MemoryMappedFile::Open(copy.path, arrow::io::FileMode::READ), path));
    const auto reader = take(arrow::ipc::RecordBatchFileReader::Open(map), path);
    for (const auto& field : reader->schema()->fields()) columns.push_back(field->name());
    first_rows.push_back(0);
    for (int i = 0; i < reader->num_record_batches(); ++i) {
      batches.push_back(take(reader->ReadRecordBatch(i), path));
      first_rows.push_back(first_rows.back() + batches.back()->num_rows());
    }
  }

  FileCopy copy;
  std::shared_ptr<arrow::io::RandomAccessFile> map;
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  std::vector<int64_t> first_rows;  ///< of each batch, and the total at the end
  std::vector<std::string> columns;
};

bool is_table_name(std::string_view path) {
  return path.ends_with(".parquet") || path.ends_with(".arrow") || path.ends_with(".feather") ||
         is_delimited_text(path);
}

TableFile::TableFile(const std::string& path, const std::string& copies,
                     const std::vector<std::string>& texts)
    : path_(path),
      state_(with_name(path, [&] { return std::make_unique<State>(path, copies, texts); })) {}

TableFile::~TableFile() = default;
TableFile::TableFile(TableFile&&) noexcept = default;

int64_t TableFile::size() const {
  return state_->first_rows.back();
}

const std::vector<std::string>& TableFile::columns() const {
  return state_->columns;
}

std::vector<std::string> TableFile::left_out() const {
  return with_name(path_, [&] { return open_batches(path_, {}).left_out; });
}

uint64_t TableFile::checksum() const {
  return state_->copy.checksum;
}

Json TableFile::row(int64_t index) const {
  AM_CHECK(index >= 0 && index < size(), "row ", index, " of ", size());
  const auto& firsts = state_->first_rows;
  const auto batch =
      static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin()) -
      1;
  return row_json(*state_->batches[batch], index - firsts[batch]);
}

Json read_first_row(const std::string& path, const std::vector<std::string>& texts) {
  return with_name(path, [&]() -> Json {
    const Batches batches = open_batches(path, texts);
    while (const auto batch = next_batch(batches, path, 0)) {
      if (batch->num_rows() > 0) return row_json(*batch, 0);
    }
    return {};
  });
}

}  // namespace automodel::tables
