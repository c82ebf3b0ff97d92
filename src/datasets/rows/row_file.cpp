#include "datasets/rows/row_file.h"

#include "core/error.h"
#include "datasets/rows/json_rows.h"
#include "hub/settings.h"
#include "tables/table_file.h"

namespace automodel::datasets {

namespace {

/// How much of a packed file is read to find its first row.
constexpr size_t kFirstRowBytes = size_t{16} << 20;

class JsonRows final : public RowFile {
 public:
  explicit JsonRows(const std::string& path) : file_(path) {}

  int64_t size() const override { return file_.rows().size(); }
  Json row(int64_t index) const override { return file_.rows().row(index); }
  std::string origin(int64_t index) const override { return file_.rows().origin(index); }
  bool is_valid(int64_t index) const override { return file_.rows().is_valid(index); }
  DataFingerprint fingerprint() const override { return file_.fingerprint(); }

 private:
  JsonFile file_;
};

class PackedRows final : public RowFile {
 public:
  PackedRows(const std::string& path, const tables::UnpackedFile& unpacked)
      : path_(path),
        state_(DataFile(path).state()),
        checksum_(unpacked.checksum),
        file_(unpacked.path, path, /*max_rows=*/-1) {}

  int64_t size() const override { return file_.rows().size(); }
  Json row(int64_t index) const override { return file_.rows().row(index); }
  std::string origin(int64_t index) const override { return file_.rows().origin(index); }
  bool is_valid(int64_t index) const override { return file_.rows().is_valid(index); }
  DataFingerprint fingerprint() const override { return {path_, state_, checksum_}; }

 private:
  std::string path_;
  DataFile::State state_;
  uint64_t checksum_;
  JsonFile file_;
};

class TableRows final : public RowFile {
 public:
  TableRows(const std::string& path, const std::string& copies,
            const std::vector<std::string>& texts)
      : path_(path), state_(DataFile(path).state()), file_(path, copies, texts) {}

  int64_t size() const override { return file_.size(); }
  Json row(int64_t index) const override { return file_.row(index); }
  std::string origin(int64_t index) const override { return cat(path_, " row ", index); }
  std::string why_without(const std::string& column) const override {
    for (const std::string& text : file_.left_out()) {
      if (text.starts_with(column + " (")) {
        return cat("; the file has ", text, ", which rows cannot hold");
      }
    }
    return "";
  }
  DataFingerprint fingerprint() const override { return {path_, state_, file_.checksum()}; }

 private:
  std::string path_;
  DataFile::State state_;
  tables::TableFile file_;
};

}  // namespace

std::unique_ptr<RowFile> open_row_file(const std::string& path,
                                       const std::vector<std::string>& texts) {
  const std::string copies = hub::copies_folder(hub::process_environment());
  if (tables::is_table_name(path)) return std::make_unique<TableRows>(path, copies, texts);
  if (!tables::is_packed_name(path)) return std::make_unique<JsonRows>(path);
  return std::make_unique<PackedRows>(path, tables::unpack_file(path, copies));
}

Json first_row_of(const std::string& path, const std::vector<std::string>& texts) {
  if (tables::is_table_name(path)) return tables::read_first_row(path, texts);
  if (tables::is_packed_name(path)) {
    const RowIndex rows(tables::read_packed_start(path, kFirstRowBytes), path, /*max_rows=*/1);
    return rows.size() == 0 ? Json() : rows.row(0);
  }
  const JsonFile file(path, /*max_rows=*/1);
  return file.rows().size() == 0 ? Json() : file.rows().row(0);
}

Json first_valid_row_of(const std::string& path) {
  const std::unique_ptr<RowFile> file = open_row_file(path);
  for (int64_t row = 0; row < file->size(); ++row) {
    if (file->is_valid(row)) return file->row(row);
  }
  return {};
}

std::string first_origin_of(const std::string& path) {
  if (tables::is_table_name(path)) return cat(path, " row 0");
  if (tables::is_packed_name(path)) {
    return RowIndex(tables::read_packed_start(path, kFirstRowBytes), path, /*max_rows=*/1)
        .origin(0);
  }
  return JsonFile(path, /*max_rows=*/1).rows().origin(0);
}

}  // namespace automodel::datasets
