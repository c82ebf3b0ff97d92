#include "datasets/loading/loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/checksum.h"
#include "core/divide.h"
#include "core/error.h"
#include "core/parallel.h"
#include "datasets/loading/position.h"

namespace automodel::datasets {

namespace {

constexpr const char* kFilesKey = "files";
constexpr const char* kOrderKey = "row_order";
constexpr const char* kDrawnKey = "drawn";
constexpr const char* kDealtKey = "dealt";

const Dataset& checked(const std::unique_ptr<const Dataset>& dataset) {
  AM_CHECK(dataset != nullptr, "a loader without a dataset");
  if (dataset->size() == 0) throw InputError("the dataset is empty");
  return *dataset;
}

}  // namespace

void warn_of_samples_left_out(int64_t num_samples, const LoaderContext& context, bool is_in_order) {
  const int64_t num_left = num_samples % context.num_replicas;
  if (num_left == 0 || num_samples < context.num_replicas) return;
  if (context.reporter == nullptr) return;
  context.reporter->warning(cat(context.dataset, ": ",
                                !is_in_order ? cat(num_left, num_left == 1 ? " sample" : " samples")
                                : num_left == 1 ? "the last sample"
                                                : cat("the last ", num_left, " samples"),
                                " of ", num_samples, num_left == 1 ? " is" : " are",
                                " left out, so that each of the ", context.num_replicas,
                                " data-parallel ranks gets as many"));
}

DataLoader::DataLoader(std::unique_ptr<const Dataset> dataset, const DataloaderConfig& config,
                       const LoaderContext& context)
    : dataset_(std::move(dataset)),
      context_(context),
      batch_size_(config.batch_size.value_or(context.local_batch_size)),
      shuffle_(config.shuffle.value_or(true)),
      drop_last_(config.drop_last || context.drop_last),
      num_threads_(std::max<int64_t>(config.num_workers, 1)),
      capacity_(num_threads_ * config.prefetch_factor.value_or(2)),
      sampler_(make_sampler(config)),
      files_(fingerprints_to_json(dataset_->files())) {}

std::unique_ptr<const RowSampler> DataLoader::make_sampler(const DataloaderConfig& config) const {
  AM_CHECK(batch_size_ > 0, "batch_size is ", batch_size_);
  const SamplerOptions options{
      checked(dataset_).size(), context_.num_replicas, context_.rank, shuffle_, context_.seed,
      context_.dataset};
  if (config.dataloader_type) {
    return std::make_unique<MegatronSampler>(*config.dataloader_type, batch_size_, options);
  }
  if (!config.group_by_length) {
    // Then it is the same rows in every epoch.
    if (!shuffle_ || context_.has_one_order) {
      warn_of_samples_left_out(options.num_rows, context_, !shuffle_);
    }
    return std::make_unique<DistributedSampler>(options);
  }
  std::vector<int64_t> lengths(static_cast<size_t>(options.num_rows));
  run_tasks(lengths.size(), static_cast<int>(num_threads_), [&](size_t row) {
    lengths[row] = std::ssize(dataset_->at(static_cast<int64_t>(row)).input_ids);
  });
  return std::make_unique<LengthGroupedSampler>(lengths, batch_size_, options);
}

int64_t DataLoader::num_batches(int64_t num_rows) const {
  return drop_last_ ? num_rows / batch_size_ : ceil_div(num_rows, batch_size_);
}

std::optional<int64_t> DataLoader::size() const {
  return num_batches(sampler_->size());
}

std::optional<tensor::Batch> DataLoader::next() {
  if (is_exhausted_) return std::nullopt;
  if (!prefetcher_) start();
  std::optional<PreparedBatch> prepared = prefetcher_->take();
  if (!prepared) {
    is_exhausted_ = true;
    prefetcher_.reset();
    return std::nullopt;
  }
  consumed_ += prepared->batch.num_sequences();
  if (!prepared->note.empty() && !has_warned_ && context_.reporter != nullptr) {
    context_.reporter->warning(prepared->note);
    has_warned_ = true;
  }
  return std::move(prepared->batch);
}

void DataLoader::start() {
  rows_ = sampler_->rows(epoch_, consumed_);
  const int64_t batches = num_batches(static_cast<int64_t>(rows_.size()));
  prefetcher_ = std::make_unique<Prefetcher>(
      Prefetcher::Options{batches, std::min(num_threads_, std::max<int64_t>(batches, 1)),
                          capacity_},
      [this](int64_t batch) { return make(batch); });
}

PreparedBatch DataLoader::make(int64_t batch) const {
  const auto begin = static_cast<size_t>(batch * batch_size_);
  const size_t end = std::min(begin + static_cast<size_t>(batch_size_), rows_.size());
  PreparedBatch prepared;
  std::vector<Sample> samples;
  samples.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) {
    samples.push_back(dataset_->at(rows_[i]));
    check_tokens(samples.back());
    if (samples.back().row != rows_[i] && prepared.note.empty()) {
      prepared.note =
          cat(dataset_->origin(rows_[i]),
              ": no token of this row counts in the loss; the next row that has some takes "
              "its place, here and wherever this happens again");
    }
  }
  if (context_.window_collater) {
    prepared.batch = window_collater(samples, *context_.window_collater);
    return prepared;
  }
  prepared.batch =
      context_.stacks ? stack_collater(samples) : default_collater(samples, context_.collater);
  return prepared;
}

void DataLoader::check_tokens(const Sample& sample) const {
  if (context_.vocab_size == 0) return;
  const auto is_bad = [this](int64_t id) { return id < 0 || id >= context_.vocab_size; };
  auto bad = std::find_if(sample.input_ids.begin(), sample.input_ids.end(), is_bad);
  if (bad == sample.input_ids.end()) {
    if (!context_.labels_are_tokens) return;
    bad = std::find_if(sample.labels.begin(), sample.labels.end(),
                       [&](int64_t id) { return id != kIgnoreIndex && is_bad(id); });
    if (bad == sample.labels.end()) return;
  }
  throw InputError(
      cat(dataset_->origin(sample.row), ": token id ", *bad,
          " is outside the model's vocabulary (vocab_size ", context_.vocab_size,
          "); the tokenizer belongs to another model, or was given tokens that the model has "
          "no rows for"));
}

void DataLoader::set_epoch(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  rewind();
}

void DataLoader::rewind() {
  prefetcher_.reset();
  consumed_ = 0;
  is_exhausted_ = false;
}

Json DataLoader::dealt() const {
  Json dealt = Json::object();
  dealt["ranks"] = context_.num_replicas;
  dealt["batch_size"] = batch_size_;
  return dealt;
}

Json DataLoader::state() const {
  const int64_t rest = sampler_->size() - consumed_;
  Json state = Position{.epoch = epoch_,
                        .consumed = consumed_ * context_.num_replicas,
                        .is_exhausted = is_exhausted_ || num_batches(rest) == 0,
                        .num_rows = dataset_->size()}
                   .to_json();
  if (files_.size() > 0) state[kFilesKey] = files_;
  if (const uint64_t order = dataset_->order_checksum(); order != 0) {
    state[kOrderKey] = format_checksum(order);
  }
  state[kDrawnKey] = format_checksum(sampler_->order_checksum());
  if (sampler_->depends_on_ranks()) state[kDealtKey] = dealt();
  return state;
}

void DataLoader::load_state(const Json& state) {
  const Json* const files = state.find(kFilesKey);
  const bool has_changed =
      files != nullptr && check_fingerprints(*files, dataset_->files(),
                                             context_.allows_changed_data, context_.reporter);
  const bool are_other_rows =
      state.at("num_rows").as_int() != dataset_->size() || is_in_other_order(state);
  if (!has_changed && are_other_rows) refuse_other_rows(state);
  has_begun_anew_ = are_other_rows || (has_changed && depends_on_lengths());
  if (has_begun_anew_) return begin_epoch_anew(state);
  const Json* const dealt_then = state.find(kDealtKey);
  const bool depends = sampler_->depends_on_ranks();
  if (depends ? (dealt_then == nullptr || *dealt_then != dealt()) : dealt_then != nullptr) {
    throw InputError(
        cat("the saved data position is of rows dealt as ",
            dealt_then == nullptr ? "any number of ranks takes them" : dealt_then->dump(),
            ", these are dealt as ", depends ? dealt().dump() : "any number of ranks takes them",
            ": with group_by_length or dataloader_type cyclic a run continues on as many "
            "ranks, with the same batch_size"));
  }
  const Position position = Position::from_json(state, dataset_->size(), context_.num_replicas);
  if (position.consumed > position.num_rows) {
    throw InputError(cat("the saved data position is damaged: sample ", position.consumed, " of ",
                         position.num_rows));
  }
  prefetcher_.reset();
  epoch_ = position.epoch;
  consumed_ = std::min(position.consumed / context_.num_replicas, sampler_->size());
  is_exhausted_ = position.is_exhausted;
}

bool DataLoader::depends_on_lengths() const {
  return dataset_->depends_on_lengths() || sampler_->depends_on_lengths();
}

bool DataLoader::is_in_other_order(const Json& state) const {
  const auto differs = [&](const char* key, uint64_t now) {
    const Json* const then = state.find(key);
    return then != nullptr && then->as_string() != format_checksum(now);
  };
  // The order of an epoch that has ended decides nothing more.
  const bool draws_more = !state.get("is_exhausted", false);
  return differs(kOrderKey, dataset_->order_checksum()) ||
         (draws_more && differs(kDrawnKey, sampler_->order_checksum()));
}

void DataLoader::refuse_other_rows(const Json& state) const {
  if (context_.allows_changed_data) return;
  const int64_t num_rows_then = state.at("num_rows").as_int();
  const std::string what =
      num_rows_then != dataset_->size()
          ? cat("the saved data position is one in a dataset of ", num_rows_then,
                " samples; this dataset has ", dataset_->size())
          : cat("the saved data position is one in other rows of the files, or in another order of "
                "them, so that an epoch would have some rows twice and others never");
  throw InputError(cat(
      what,
      ": a run continues with the seed, shuffle, group_by_length, split, shuffle_seed, limits, "
      "filters, seq_length, packing, num_train_samples and, of a mixture, datasets, probabilities, "
      "seed and stopping_strategy that it began with; checkpoint.allow_changed_data: true begins "
      "the epoch anew"));
}

void DataLoader::begin_epoch_anew(const Json& state) {
  const int64_t num_rows_then = state.at("num_rows").as_int();
  const Position position = Position::from_json(state, num_rows_then, /*num_replicas=*/1);
  rewind();
  epoch_ = position.epoch;
  is_exhausted_ = position.is_exhausted;
  if (context_.reporter == nullptr) return;
  const std::string why = num_rows_then != dataset_->size()
                              ? cat("there are ", dataset_->size(),
                                    dataset_->depends_on_lengths() ? " packs" : " samples",
                                    ", and there were ", num_rows_then)
                          : depends_on_lengths()
                              ? "the order of the samples depends on their lengths"
                              : "the rows are in another order";
  context_.reporter->warning(
      cat(context_.dataset, ": ", why, ": ",
          is_exhausted_ ? "the next epoch takes what is there now"
                        : cat("epoch ", epoch_, " begins anew with what is there now")));
}

}  // namespace automodel::datasets
