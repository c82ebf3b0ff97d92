#include "recipes/commands/sample_lines.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/json.h"
#include "datasets/loading/loader.h"

namespace automodel::recipes {

namespace {

Json list_of(const std::vector<int64_t>& ids) {
  Json list = Json::array();
  for (const int64_t id : ids) list.push_back(Json(id));
  return list;
}

Json list_of(const at::Tensor& ids) {
  const at::Tensor whole = ids.to(at::kLong).contiguous();
  const auto* const first = whole.const_data_ptr<int64_t>();
  return list_of(std::vector<int64_t>(first, first + whole.numel()));
}

Json line_of(const datasets::Sample& sample, const datasets::Dataset& dataset) {
  Json line = Json::object();
  line["origin"] = dataset.origin(sample.row);
  line["input_ids"] = list_of(sample.input_ids);
  line["labels"] = list_of(sample.labels);
  line["num_attended"] = sample.num_attended;
  if (sample.num_cut > 0) line["num_cut"] = sample.num_cut;
  if (!sample.document_lengths.empty()) line["document_lengths"] = list_of(sample.document_lengths);
  if (!sample.token_types.empty()) line["token_types"] = list_of(sample.token_types);
  if (!sample.source_ids.empty()) line["source_ids"] = list_of(sample.source_ids);
  return line;
}

}  // namespace

void write_sample_lines(datasets::BatchStream& stream, int64_t num_samples, std::ostream& out) {
  if (const auto* const loader = dynamic_cast<const datasets::DataLoader*>(&stream)) {
    const datasets::Dataset& dataset = loader->dataset();
    for (int64_t i = 0; i < std::min(num_samples, dataset.size()); ++i) {
      out << line_of(dataset.at(i), dataset).dump() << "\n";
    }
    return;
  }
  stream.set_epoch(0);
  for (int64_t num_written = 0; num_written < num_samples;) {
    const std::optional<tensor::Batch> batch = stream.next();
    if (!batch) return;
    for (int64_t row = 0; row < batch->input_ids.size(0) && num_written < num_samples; ++row) {
      Json line = Json::object();
      line["input_ids"] = list_of(batch->input_ids[row]);
      line["labels"] = list_of(batch->labels[row]);
      out << line.dump() << "\n";
      ++num_written;
    }
  }
}

}  // namespace automodel::recipes
