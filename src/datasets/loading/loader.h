#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "core/field.h"
#include "core/reporter.h"
#include "datasets/loading/collate.h"
#include "datasets/loading/prefetcher.h"
#include "datasets/loading/sampler.h"
#include "datasets/loading/window_collate.h"
#include "datasets/samples/dataset.h"

namespace automodel::datasets {

/// The `dataloader` section; names and defaults are upstream's.
struct DataloaderConfig {
  std::optional<int64_t> batch_size = std::nullopt;
  std::optional<bool> shuffle = std::nullopt;
  int64_t num_workers = 0;
  std::optional<int64_t> prefetch_factor = std::nullopt;
  bool drop_last = false;
  bool group_by_length = false;
  std::optional<MegatronOrder> dataloader_type = std::nullopt;
  int64_t shuffle_buffer_size = 10000;
  bool pin_memory = false;
  bool persistent_workers = false;

  static constexpr auto fields() {
    using Config = DataloaderConfig;
    return std::tuple{
        field("batch_size", &Config::batch_size,
              "samples in a micro-batch (default: step_scheduler.local_batch_size)")
            .at_least(1),
        field("shuffle", &Config::shuffle,
              "new order every epoch (default: true); validations all have the same one"),
        field("num_workers", &Config::num_workers,
              "threads that prepare batches; 0 means one, beside the training thread")
            .at_least(0)
            .at_most(1024),
        field("prefetch_factor", &Config::prefetch_factor,
              "batches that each thread prepares ahead (default: 2)")
            .at_least(1)
            .at_most(1 << 20),
        field("drop_last", &Config::drop_last, "leave out a last batch that is not full"),
        field("group_by_length", &Config::group_by_length,
              "batches of samples of similar length, in a new order every epoch; every sample is "
              "tokenized at the start"),
        field("dataloader_type", &Config::dataloader_type,
              "of MegatronPretraining: single takes samples in their order, cyclic shuffles each "
              "rank's own part"),
        field("shuffle_buffer_size", &Config::shuffle_buffer_size,
              "rows mixed at a time in a stream")
            .at_least(1)
            .without_effect("no dataset is a stream here: all its rows are shuffled"),
        field("pin_memory", &Config::pin_memory, "batches in pinned memory")
            .without_effect("batches are pinned whenever the device is a GPU"),
        field("persistent_workers", &Config::persistent_workers, "keep workers between epochs")
            .without_effect("batches are prepared by threads, which start in microseconds")};
  }
};

/// A loader's settings from outside its section.
struct LoaderContext {
  int num_replicas = 1;  ///< data-parallel ranks
  int rank = 0;          ///< this rank's number among them
  int64_t seed = 42;
  int64_t local_batch_size = 1;   ///< batch_size when the section has none
  bool drop_last = false;         ///< also drop a last batch that is not full (needed by pipelines)
  int64_t vocab_size = 0;         ///< of the model; larger ids are an error; 0: not checked
  bool labels_are_tokens = true;  ///< else they are classes, or tell texts apart
  bool stacks = false;            ///< collate with stack_collater
  bool has_one_order = false;     ///< every pass is in the same order, shuffled or not
  bool allows_changed_data = false;  ///< a position of other data is taken, as load_state says
  CollaterConfig collater = {};
  std::optional<WindowCollaterConfig> window_collater;  ///< replaces the other collaters
  Reporter* reporter = nullptr;         ///< gets warnings; may be null, must outlive the loader
  std::string dataset = "the dataset";  ///< what texts call it
};

/// Warns of samples that do not fill all data-parallel ranks; in order, they are the last ones.
void warn_of_samples_left_out(int64_t num_samples, const LoaderContext& context,
                              bool is_in_order = true);

/// Batches of a dataset: a RowSampler shuffles rows and assigns them to ranks, threads tokenize and
/// collate them, and batches are returned in order. Order and contents do not depend on the
/// threads.
class DataLoader final : public BatchStream {
 public:
  /// Tokenizes every sample for group_by_length, on num_workers threads. Throws InputError for an
  /// empty dataset.
  DataLoader(std::unique_ptr<const Dataset> dataset, const DataloaderConfig& config,
             const LoaderContext& context);

  std::optional<tensor::Batch> next() override;
  std::optional<int64_t> size() const override;
  void set_epoch(int64_t epoch) override;
  void rewind() override;
  Json state() const override;
  /// With `allows_changed_data`, of a dataset with other files too. The position stays where there
  /// are as many samples and the order does not depend on their lengths; else the epoch that was
  /// under way begins anew.
  void load_state(const Json& state) override;
  bool has_begun_anew() const override { return has_begun_anew_; }
  Json facts() const override { return dataset_->facts(); }

  const Dataset& dataset() const { return *dataset_; }

 private:
  int64_t num_batches(int64_t num_rows) const;
  void begin_epoch_anew(const Json& state);
  /// Whether what lies where depends on the lengths of all rows.
  bool depends_on_lengths() const;
  /// Whether a position is of other rows of the files, or of another order of them.
  bool is_in_other_order(const Json& state) const;
  /// Throws InputError for a position of other rows, unless these may be others.
  void refuse_other_rows(const Json& state) const;
  void start();
  PreparedBatch make(int64_t batch) const;
  void check_tokens(const Sample& sample) const;
  Json dealt() const;
  std::unique_ptr<const RowSampler> make_sampler(const DataloaderConfig& config) const;

  std::unique_ptr<const Dataset> dataset_;
  LoaderContext context_;
  int64_t batch_size_;
  bool shuffle_;
  bool drop_last_;
  int64_t num_threads_;
  int64_t capacity_;
  std::unique_ptr<const RowSampler> sampler_;
  Json files_;  ///< fingerprints of the dataset's files

  int64_t epoch_ = 0;
  int64_t consumed_ = 0;  ///< samples returned in this epoch, on this rank
  bool has_begun_anew_ = false;
  bool is_exhausted_ = false;
  bool has_warned_ = false;
  std::vector<int64_t> rows_;  ///< of the running prefetcher
  std::unique_ptr<Prefetcher>
      prefetcher_;  ///< null until the next batch is requested; reads the above
};

}  // namespace automodel::datasets
