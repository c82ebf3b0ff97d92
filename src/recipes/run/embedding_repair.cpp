#include "recipes/run/embedding_repair.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "recipes/build/base_weights.h"

namespace automodel::recipes {

namespace {

/// A matrix in the base's folder; rows are read in the dtype that the run stores.
class BaseTable final {
 public:
  BaseTable(const checkpoint::HfFolder& folder, const std::string& name, at::ScalarType dtype)
      : folder_(folder),
        file_name_(checkpoint::find_name(folder, name).value_or("")),
        dtype_(dtype) {
    if (file_name_.empty()) throw InputError(cat(folder.path(), " has no ", name));
    place_ = *folder.find(file_name_);
  }

  const std::string& name() const { return file_name_; }
  int64_t num_rows() const { return place_.entry->shape[0]; }
  int64_t width() const { return place_.entry->shape[1]; }

  /// [count, width] float32.
  at::Tensor rows(int64_t first, int64_t count) const {
    const at::Tensor out = at::empty({count * width()}, at::TensorOptions().dtype(dtype_));
    folder_.read_elements(place_, first * width(), out);
    return out.view({count, width()}).to(at::kFloat);
  }

  /// Squared lengths of all rows, float64.
  at::Tensor squares() const {
    std::vector<at::Tensor> parts;
    constexpr int64_t kRows = 4096;
    for (int64_t row = 0; row < num_rows(); row += kRows) {
      const at::Tensor some = rows(row, std::min(kRows, num_rows() - row));
      parts.push_back(some.square().sum(1, false, at::kDouble));
    }
    return at::cat(parts);
  }

 private:
  const checkpoint::HfFolder& folder_;
  std::string file_name_;
  at::ScalarType dtype_;
  checkpoint::HfFolder::Place place_;
};

at::Tensor is_wrong(const at::Tensor& squares, double min_norm) {
  return at::isfinite(squares).logical_not().logical_or(squares.sqrt().le(min_norm));
}

std::vector<int64_t> indices_of(const at::Tensor& mask) {
  const at::Tensor ids = mask.nonzero().view({-1});
  const int64_t* data = ids.const_data_ptr<int64_t>();
  return {data, data + ids.numel()};
}

/// The first of the ids, for messages.
std::string ids_text(const std::vector<int64_t>& ids) {
  return join_first(ids, 20);
}

/// The rows that replace the wrong ones, [ids, width] float32.
at::Tensor replacements(const BaseTable& head, const std::vector<int64_t>& ids, double length,
                        double min_norm) {
  std::vector<at::Tensor> rows;
  std::vector<int64_t> unusable;
  for (const int64_t id : ids) {
    const at::Tensor row = head.rows(id, 1);
    const at::Tensor square = row.square().sum(1, false, at::kDouble);
    if (is_wrong(square, min_norm).item<bool>()) unusable.push_back(id);
    rows.push_back(row * static_cast<float>(length / std::sqrt(square.item<double>())));
  }
  if (!unusable.empty()) {
    throw InputError(cat("embedding_row_repair: rows ", ids_text(unusable), " of ", head.name(),
                         ", which would repair the embedding's, are not finite or too short too"));
  }
  return at::cat(rows);
}

/// Writes the rows, as far as this rank's shards hold them.
void write_rows(const std::vector<tensor::FlatShard>& parameters, const std::string& name,
                const std::vector<int64_t>& ids, const at::Tensor& rows) {
  const int64_t width = rows.size(1);
  for (const tensor::FlatShard& shard : parameters) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (segment.fqn != name) continue;
      const at::Tensor held = shard.view(segment);
      for (const tensor::ShardRun& run : tensor::shard_runs(segment.spec)) {
        for (size_t i = 0; i < ids.size(); ++i) {
          const int64_t begin = std::max(run.global, ids[i] * width);
          const int64_t end = std::min(run.global + run.numel, (ids[i] + 1) * width);
          if (begin >= end) continue;
          held.narrow(0, run.local + begin - run.global, end - begin)
              .copy_(rows[static_cast<int64_t>(i)].narrow(0, begin - ids[i] * width, end - begin));
        }
      }
    }
  }
}

/// The Hugging Face name of the first tensor in a parameter.
std::string name_of(const models::CausalLM& model, const std::string& parameter) {
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (part.parameter == parameter) return part.name;
  }
  throw InternalError(cat("no tensor is the parameter ", parameter));
}

}  // namespace

void repair_embedding_rows(const Recipe& recipe, const models::CausalLM& model,
                           const std::vector<tensor::FlatShard>& parameters, Reporter& reporter) {
  if (!recipe.embedding_row_repair) return;
  const EmbeddingRowRepairSection& section = *recipe.embedding_row_repair;
  const at::NoGradGuard no_grad;
  const nn::ParallelPlan plan = model.parallel_plan();
  const auto folder = checkpoint::HfFolder::open(recipe.model.folder);
  const at::ScalarType dtype = storage_dtype(recipe.model);
  const std::string embedding = name_of(model, plan.embedding + ".weight");
  const BaseTable table(folder, embedding, dtype);
  const at::Tensor squares = table.squares();
  const at::Tensor wrong = is_wrong(squares, section.min_norm);
  const std::vector<int64_t> ids = indices_of(wrong);
  if (ids.empty()) {
    reporter.info(cat("embedding: no row of ", embedding, " is as short as ", section.min_norm));
    return;
  }
  if (static_cast<int64_t>(ids.size()) > section.max_rows) {
    throw InputError(cat("embedding_row_repair: ", ids.size(), " rows of ", embedding, " in ",
                         recipe.model.folder, " are not finite or no longer than ",
                         section.min_norm, ", more than max_rows ", section.max_rows,
                         ": these may be the weights of another model"));
  }
  if (plan.head.empty()) {
    throw InputError(cat("embedding_row_repair: rows ", ids_text(ids), " of ", embedding,
                         " cannot be repaired: the head is the embedding"));
  }
  const at::Tensor healthy = squares.masked_select(wrong.logical_not());
  if (healthy.numel() == 0) throw InputError(cat(embedding, " has no row that is not zero"));
  const double length = std::sqrt(healthy.mean().item<double>());
  const BaseTable head(folder, name_of(model, plan.head + ".weight"), dtype);
  write_rows(parameters, embedding, ids, replacements(head, ids, length, section.min_norm));
  reporter.warning(cat("embedding: repaired ", ids.size(), ids.size() == 1 ? " row" : " rows",
                       " of ", embedding, " by ", head.name(), ": ", ids_text(ids),
                       "; their length is ", length, " now"));
}

}  // namespace automodel::recipes
