#include "datasets/texts/text_file.h"

#include <functional>
#include <string_view>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "datasets/rows/data_layout.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

/// A folder stands for its *.txt files or, when it has none, for its files of rows.
std::vector<std::string> expand(const TextFileDatasetConfig& config) {
  std::vector<std::string> files;
  for (const std::string& path : config.path) {
    std::vector<std::string> texts;
    if (is_directory(path)) {
      for (const std::string& name : list_directory(path)) {
        if (name.ends_with(".txt")) texts.push_back(path_join(path, name));
      }
    }
    if (texts.empty()) texts = find_data_files({.paths = {path}, .split = std::nullopt}, "");
    files.insert(files.end(), texts.begin(), texts.end());
  }
  if (files.empty()) throw UserError("the dataset names no data file");
  return files;
}

/// `origin` is made for errors only.
const std::string* document_text(const Json& row, const std::string& column,
                                 const std::function<std::string()>& origin) {
  const Json* text = row.find(column);
  if (text == nullptr) {
    std::vector<std::string> columns;
    for (const auto& [name, value] : row.as_object()) columns.push_back(name);
    throw InputError(cat(origin(), ": ", *missing_column(column, columns)));
  }
  if (text->is_null()) return nullptr;
  if (!text->is_string()) {
    throw InputError(
        cat(origin(), ": column '", column, "' must hold text, it holds ", text->kind()));
  }
  return &text->as_string();
}

DataFingerprint for_each_document(const std::string& path, const std::string& column,
                                  const std::function<void(std::string_view)>& visit) {
  if (!is_data_name(path)) {
    const DataFile file(path);
    const std::string text = file.read(0, file.size());
    visit(text);
    return {path, file.state(), checksum_of(text)};
  }
  const auto file = open_row_file(path, {column});
  for (int64_t i = 0; i < file->size(); ++i) {
    const Json row = file->row(i);
    const std::string* text = document_text(row, column, [&] { return file->origin(i); });
    if (text != nullptr) visit(*text);
  }
  return file->fingerprint();
}

/// Errors of the tokenizer (text that is not UTF-8) do not know the file.
std::vector<int64_t> encode(const TextEncoder& encoder, std::string_view text,
                            const std::string& path) {
  try {
    return encoder.encode(text, /*add_special_tokens=*/false);
  } catch (const InputError& error) {
    throw InputError(cat(path, ": ", error.what()));
  }
}

}  // namespace

SourceDescription check(const TextFileDatasetConfig& config) {
  Split::parse(config.split);
  SourceDescription description;
  description.files = expand(config);
  for (const std::string& path : description.files) {
    if (!is_data_name(path)) continue;
    if (!path_exists(path)) {
      description.note = "its files are fetched from the hub when it runs";
      return description;
    }
    const Json row = first_row_of(path, {config.text_column});
    if (row.is_null()) continue;
    document_text(row, config.text_column, [&] { return first_origin_of(path); });
    for (const auto& [name, value] : row.as_object()) description.columns.push_back(name);
    break;
  }
  return description;
}

TextFileDataset::TextFileDataset(const TextFileDatasetConfig& config, const TextEncoder& encoder)
    : name_(join(config.path, ", ")), seq_length_(config.seq_length) {
  const std::optional<int64_t> bos = config.add_bos ? encoder.bos_token_id() : std::nullopt;
  const std::optional<int64_t> eos = config.add_eos ? encoder.eos_token_id() : std::nullopt;
  for (const std::string& path : expand(config)) {
    files_.push_back(for_each_document(path, config.text_column, [&](std::string_view text) {
      if (text.empty()) return;
      if (bos) tokens_.push_back(static_cast<int32_t>(*bos));
      for (const int64_t id : encode(encoder, text, path)) {
        tokens_.push_back(static_cast<int32_t>(id));
      }
      if (eos) tokens_.push_back(static_cast<int32_t>(*eos));
    }));
  }
  const int64_t num_samples = (num_tokens() - 1) / seq_length_;
  if (num_tokens() == 0) throw InputError(cat("dataset ", name_, " is empty"));
  if (num_samples == 0) {
    throw InputError(cat("dataset ", name_, " holds ", num_tokens(), " tokens; seq_length ",
                         seq_length_, " needs at least ", seq_length_ + 1));
  }
  const auto [begin, end] = Split::parse(config.split).range(num_samples);
  if (begin == end) {
    throw InputError(cat("dataset ", name_, ": split '", config.split, "' holds none of its ",
                         num_samples, " samples of ", seq_length_, " tokens"));
  }
  first_sample_ = begin;
  num_samples_ = end - begin;
}

uint64_t TextFileDataset::order_checksum() const {
  return OrderChecksum().add(seq_length_).add(first_sample_).value();
}

Sample TextFileDataset::at(int64_t index) const {
  AM_CHECK(index >= 0 && index < num_samples_, "sample ", index, " of ", num_samples_);
  const auto begin = tokens_.begin() + (first_sample_ + index) * seq_length_;
  return {std::vector<int64_t>(begin, begin + seq_length_),
          std::vector<int64_t>(begin + 1, begin + seq_length_ + 1), seq_length_, 0, index};
}

std::string TextFileDataset::origin(int64_t row) const {
  return cat(name_, " tokens ", (first_sample_ + row) * seq_length_, " to ",
             (first_sample_ + row + 1) * seq_length_);
}

}  // namespace automodel::datasets
