#include "recipes/records/data_tally.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace automodel::recipes {

namespace {

/// The elements of a contiguous tensor; null where there is none.
template <typename Value>
const Value* elements(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<Value>() : nullptr;
}

}  // namespace

void DataTally::add_document(int64_t length) {
  if (length == 0) return;
  ++num_documents_;
  ++lengths_[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length - 1)))];
}

void DataTally::add(const tensor::Batch& batch) {
  const auto contiguous = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.contiguous() : tensor;
  };
  const at::Tensor labels_BS = batch.labels.contiguous();
  const at::Tensor padding_BS = contiguous(batch.padding_mask);
  const at::Tensor documents_BS = contiguous(batch.document_ids);
  AM_CHECK(labels_BS.is_cpu(), "counted on the CPU");
  const int64_t num_rows = batch.num_sequences(), length = batch.sequence_length();
  const int64_t* const labels = elements<int64_t>(labels_BS);
  num_sequences_ += num_rows;
  num_label_tokens_ +=
      num_rows * length - std::count(labels, labels + num_rows * length, ignore_index_);
  const bool* const padding = elements<bool>(padding_BS);
  const int64_t* const documents = elements<int64_t>(documents_BS);
  for (int64_t row = 0; row < num_rows; ++row) {
    const bool* const is_padding = padding == nullptr ? nullptr : padding + row * length;
    const int64_t num_padding =
        is_padding == nullptr ? 0 : std::count(is_padding, is_padding + length, true);
    num_padding_tokens_ += num_padding;
    num_tokens_ += length - num_padding;
    if (documents == nullptr) {
      add_document(length - num_padding);
      continue;
    }
    const int64_t* const ids = documents + row * length;
    for (int64_t begin = 0; begin < length;) {
      const int64_t* const end =
          std::find_if(ids + begin, ids + length, [&](int64_t id) { return id != ids[begin]; });
      const int64_t next = end - ids;
      const int64_t unused =
          is_padding == nullptr ? 0 : std::count(is_padding + begin, is_padding + next, true);
      add_document(next - begin - unused);
      begin = next;
    }
  }
}

Json DataTally::record() const {
  Json record = Json::object();
  record["num_sequences"] = num_sequences_;
  record["num_tokens"] = num_tokens_;
  record["num_label_tokens"] = num_label_tokens_;
  record["num_padding_tokens"] = num_padding_tokens_;
  record["num_documents"] = num_documents_;
  Json lengths = Json::array();
  for (size_t bits = 0; bits < lengths_.size(); ++bits) {
    if (lengths_[bits] == 0) continue;
    lengths.push_back(Json::Array{int64_t{1} << bits, lengths_[bits]});
  }
  record["lengths"] = std::move(lengths);
  return record;
}

}  // namespace automodel::recipes
