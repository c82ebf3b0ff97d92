#include "datasets/pretraining/mock_iterable.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"
#include "datasets/loading/position.h"
#include "tensor/random.h"

namespace automodel::datasets {

void MockIterableDatasetConfig::validate() const {
  if (!exclude_token_ids) return;
  for (const int64_t id : *exclude_token_ids) {
    if (id < 0 || id >= vocab_size) {
      throw UserError(cat("exclude_token_ids: ", id, " is outside [0, ", vocab_size, ")"));
    }
  }
  std::vector<int64_t> ids = *exclude_token_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (static_cast<int64_t>(ids.size()) == vocab_size) {
    throw UserError(cat("exclude_token_ids leaves none of the ", vocab_size, " token ids"));
  }
}

MockIterableDataset::MockIterableDataset(const MockIterableDatasetConfig& config,
                                         const Place& place)
    : config_(config), place_(place) {
  config.validate();
  if (!config.exclude_token_ids) return;
  const std::vector<int64_t>& excluded = *config.exclude_token_ids;
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    if (std::find(excluded.begin(), excluded.end(), id) == excluded.end())
      allowed_ids_.push_back(id);
  }
}

std::optional<tensor::Batch> MockIterableDataset::next() {
  if (taken_ >= config_.num_samples) return std::nullopt;
  const int64_t numel = config_.batch_size * config_.seq_len;
  const auto first = static_cast<uint64_t>((taken_ * place_.num_replicas + place_.rank) * numel);
  const int64_t num_ids =
      allowed_ids_.empty() ? config_.vocab_size : static_cast<int64_t>(allowed_ids_.size());
  const tensor::RandomKey key(static_cast<uint64_t>(place_.seed),
                              cat("mock tokens of epoch ", epoch_));

  tensor::Batch batch;
  const auto options = at::TensorOptions().dtype(at::kLong);
  batch.input_ids = at::empty({config_.batch_size, config_.seq_len}, options);
  batch.labels = at::empty({config_.batch_size, config_.seq_len}, options);
  int64_t* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < numel; ++i) {
    const double uniform = tensor::random_uniform(key, first + static_cast<uint64_t>(i));
    const int64_t choice =
        std::min(static_cast<int64_t>(uniform * static_cast<double>(num_ids)), num_ids - 1);
    ids[i] = allowed_ids_.empty() ? choice : allowed_ids_[static_cast<size_t>(choice)];
  }
  for (int64_t i = 0; i < numel; ++i) {
    labels[i] = (i + 1) % config_.seq_len == 0 ? kIgnoreIndex : ids[i + 1];
  }
  ++taken_;
  return batch;
}

void MockIterableDataset::set_epoch(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  rewind();
}

Json MockIterableDataset::state() const {
  Json state = Position{.epoch = epoch_,
                        .consumed = taken_ * place_.num_replicas,
                        .is_exhausted = taken_ >= config_.num_samples,
                        .num_rows = config_.num_samples}
                   .to_json();
  state["batch_size"] = config_.batch_size;  // of the batches that `consumed` counts
  return state;
}

void MockIterableDataset::load_state(const Json& saved) {
  Json state = saved;
  const Json* batch_size = saved.find("batch_size");
  if (batch_size != nullptr && batch_size->as_int() != config_.batch_size) {
    const int64_t sequences = saved.at("consumed").as_int() * batch_size->as_int();
    if (sequences % config_.batch_size != 0) {
      throw InputError(cat(
          "the saved data position is behind ", sequences,
          " sequences, which are no whole number of batches of ", config_.batch_size,
          "; continue with a batch_size that divides them, as ", batch_size->as_int(), " does"));
    }
    state["consumed"] = sequences / config_.batch_size;
  }
  const Position position = Position::from_json(state, config_.num_samples, place_.num_replicas);
  epoch_ = position.epoch;
  taken_ = position.is_exhausted ? config_.num_samples : position.consumed / place_.num_replicas;
}

}  // namespace automodel::datasets
