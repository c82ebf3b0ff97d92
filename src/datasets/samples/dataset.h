#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "datasets/rows/fingerprint.h"
#include "tensor/batch.h"

namespace automodel::datasets {

/// No row of a dataset has a token that counts in the loss.
class NoLabelsError final : public InputError {
 public:
  using InputError::InputError;
};

/// The label of positions that do not count in the loss.
constexpr int64_t kIgnoreIndex = -100;

/// One training sequence, its labels already shifted: labels[i] is the target at input_ids[i].
struct Sample {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;  ///< same size; kIgnoreIndex where there is no loss
  int64_t num_attended = 0;     ///< leading positions with attention mask 1; the rest are padding
  int64_t pad_id = 0;           ///< id with which a collater pads input_ids
  int64_t row = 0;              ///< row from which it was made
  /// The lengths of a pack's documents, in order, with the sum num_attended; empty: all tokens are
  /// one document. Attention stays inside a document, and its positions begin at 0.
  std::vector<int64_t> document_lengths = {};
  int64_t num_cut = 0;  ///< tokens that truncation left out
  /// Types of the tokens, 1 in the second text of a pair, for encoders that tell them apart; those
  /// behind its end are 0.
  std::vector<int64_t> token_types = {};
  /// The tokens that an encoder reads, whose decoder has the sequence; empty: there is no encoder.
  std::vector<int64_t> source_ids = {};
  /// The prompt's end and the answer's beginning are one token, which counts as the prompt's.
  bool has_merged_border = false;

  bool has_label() const;
};

/// Samples with random access. Safe to read from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;

  /// The sample of an index in [0, size()). Its row is another one than the index if a row without
  /// any label was skipped. Throws InputError for bad rows.
  virtual Sample at(int64_t index) const = 0;

  /// Rows that samples name are below this: more than size() where a row that took another's place
  /// is none of the indices.
  virtual int64_t row_end() const { return size(); }

  /// Where a row came from, for messages: "data.jsonl:17".
  virtual std::string origin(int64_t row) const = 0;

  /// The files from which samples are made; by them a checkpoint checks that a run continues with
  /// the same data.
  virtual std::vector<DataFingerprint> files() const = 0;

  /// A checksum of which of the files' rows lies where, by which a checkpoint checks that a run
  /// continues in the same order (OrderChecksum); of a long order a part is looked at.
  virtual uint64_t order_checksum() const { return 0; }

  /// Whether what lies where depends on the lengths of all rows, as with packs: then one row that
  /// changes moves others.
  virtual bool depends_on_lengths() const { return false; }

  /// What it knows of itself, for the record of a run: {"num_samples", ...}.
  virtual Json facts() const { return Json::Object{{"num_samples", size()}}; }

  /// The index of the sample that is shown as the `number`th, in [0, size()), to someone who looks
  /// at the first ones.
  virtual int64_t index_to_show(int64_t number) const { return number; }
};

/// Batches in the order in which this rank trains on them, epoch after epoch. Used from one thread.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  /// The next batch, on the CPU; nullopt at the end of the epoch and until the stream is restarted.
  virtual std::optional<tensor::Batch> next() = 0;

  /// Batches of a whole epoch on this rank; nullopt for a stream that has no end.
  virtual std::optional<int64_t> size() const = 0;

  /// Goes to the beginning of an epoch. Does nothing if the stream is in this epoch already, so
  /// that a resumed loop can call it as usual.
  virtual void set_epoch(int64_t epoch) = 0;

  /// Goes back to the beginning of the epoch (validation reads the same epoch repeatedly).
  virtual void rewind() = 0;

  /// The position after the batches returned so far: the same on all data-parallel ranks, and
  /// independent of their number.
  virtual Json state() const = 0;

  /// What its data know of themselves (Dataset::facts); an empty object where nothing is known.
  virtual Json facts() const { return Json::object(); }

  /// Continues after `state`, on any number of ranks. Throws InputError when it belongs to other
  /// data, or when the position is not a whole number of samples per rank.
  virtual void load_state(const Json& state) = 0;

  /// Whether load_state() began the epoch anew, since the data are others than the position's.
  virtual bool has_begun_anew() const { return false; }
};

/// Batches that a source makes in order, without random access; positions are exact all the same.
class IterableDataset : public BatchStream {};

}  // namespace automodel::datasets
