#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/fingerprint.h"
#include "tensor/batch.h"

namespace automodel::datasets {

/// The label of positions that do not count in the loss.
constexpr int64_t kIgnoreIndex = -100;

/// One training sequence, its labels already shifted: labels[i] is the target at input_ids[i].
struct Sample {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;  ///< as many; kIgnoreIndex where there is no loss
  int64_t num_attended = 0;     ///< leading positions of attention mask 1; the rest are padding
  int64_t pad_id = 0;           ///< what a collater lengthens input_ids with
  int64_t row = 0;              ///< the row it was made of
  /// The lengths of a pack's documents, in order, num_attended together; empty: all tokens are one
  /// document. Attention stays inside a document and its positions begin at 0.
  std::vector<int64_t> document_lengths = {};
  int64_t num_cut = 0;  ///< tokens that truncation left out

  bool has_label() const;
};

/// Samples that can be had in any order. Safe to read from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;

  /// The sample of an index in [0, size()). Its row differs from the index when a row without any
  /// label was passed over for the next one. Throws InputError for bad rows.
  virtual Sample at(int64_t index) const = 0;

  /// Where a row came from, for messages: "data.jsonl:17".
  virtual std::string origin(int64_t row) const = 0;

  /// The files that the samples are made of, so that a checkpoint can tell whether a run continues
  /// with the same ones.
  virtual std::vector<DataFingerprint> files() const = 0;
};

/// Batches in the order in which this rank trains on them, epoch after epoch. Used from one thread.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  /// The next batch, on the CPU; nullopt at the end of the epoch, and again until it is restarted.
  virtual std::optional<tensor::Batch> next() = 0;

  /// Batches of a whole epoch on this rank.
  virtual int64_t size() const = 0;

  /// Enters an epoch at its beginning. The epoch that the stream is in already stays where it is,
  /// so a loop that resumes can enter its epoch as usual.
  virtual void set_epoch(int64_t epoch) = 0;

  /// Goes back to the beginning of the epoch (validation reads the same epoch again and again).
  virtual void rewind() = 0;

  /// The position after the batches handed out so far: the same on all ranks of the data-parallel
  /// group, and no function of how many they are.
  virtual Json state() const = 0;

  /// Continues after `state`, on as many or other ranks. Throws InputError when it is of other data
  /// or when the position is no whole number of samples a rank.
  virtual void load_state(const Json& state) = 0;
};

/// Batches that a source makes in order, without an index: its position is exact all the same.
class IterableDataset : public BatchStream {};

}  // namespace automodel::datasets
