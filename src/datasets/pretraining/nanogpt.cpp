#include "datasets/pretraining/nanogpt.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/divide.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

/// The seed of upstream's first worker.
constexpr uint32_t kOrderSeed = 12345;

constexpr const char* kFilesKey = "files";

std::vector<BinShard> open_shards(const NanogptDatasetConfig& config) {
  config.validate();
  std::vector<BinShard> shards;
  for (const std::string& pattern : config.file_pattern) {
    const std::vector<std::string> paths =
        path_exists(pattern) ? std::vector{pattern} : matching_paths(pattern);
    if (paths.empty()) throw InputError(cat("file_pattern: no file is named like '", pattern, "'"));
    for (const std::string& path : paths) shards.push_back(BinShard::read(path));
  }
  if (shards.empty()) throw UserError("file_pattern names no file");
  const auto has_sample = [&](const BinShard& shard) { return shard.num_tokens > config.seq_len; };
  if (std::ranges::none_of(shards, has_sample)) {
    throw InputError(cat("file_pattern: none of the files (", shards.front().path,
                         shards.size() > 1 ? ", ..." : "", ") has the ", config.seq_len + 1,
                         " tokens of a sample of seq_len ", config.seq_len));
  }
  return shards;
}

void check_vocabulary(const std::vector<int64_t>& tokens, int64_t vocab_size, const BinShard& shard,
                      int64_t begin) {
  if (vocab_size == 0) return;
  const auto bad = std::ranges::find_if(tokens, [&](int64_t id) { return id >= vocab_size; });
  if (bad == tokens.end()) return;
  const int64_t at = begin + (bad - tokens.begin());
  throw InputError(cat(shard.path, ": token id ", *bad, " (token ", at, ", at byte ",
                       shard.byte_of(at), ") is outside the model's vocabulary (vocab_size ",
                       vocab_size, "); the tokens were made for another model"));
}

int64_t entry(const Json& state, const char* key, int64_t end) {
  const int64_t value = state.at(key).as_int();
  if (value < 0 || value >= end) {
    throw InputError(cat("the saved data position is damaged: ", key, " ", value));
  }
  return value;
}

}  // namespace

void NanogptDatasetConfig::validate() const {
  if (align_to_bos && !bos_token) throw UserError("align_to_bos: true needs bos_token");
}

void check(const NanogptDatasetConfig& config) {
  open_shards(config);
}

NanogptDataset::NanogptDataset(const NanogptDatasetConfig& config, const DataloaderConfig& loader,
                               const LoaderContext& context, Passes passes)
    : config_(config),
      context_(context),
      passes_(passes),
      batch_size_(loader.batch_size.value_or(context.local_batch_size)),
      drop_last_(loader.drop_last || context.drop_last),
      shards_(open_shards(config)),
      files_(fingerprints_to_json(fingerprints())),
      random_(kOrderSeed) {
  AM_CHECK(batch_size_ > 0, "batch_size is ", batch_size_);
  go_to({});
  if (passes_ == Passes::kEndless) return;
  const int64_t num_samples = count_samples();
  warn_of_samples_left_out(num_samples, context_);
  samples_of_pass_ = num_samples / context_.num_replicas;
  if (samples_of_pass_ == 0) {
    throw InputError(cat(context_.dataset, ": ", num_samples, " samples are fewer than the ",
                         context_.num_replicas, " data-parallel ranks"));
  }
  rewind();
}

std::vector<DataFingerprint> NanogptDataset::fingerprints() const {
  std::vector<DataFingerprint> all;
  for (const BinShard& shard : shards_) all.push_back(shard.fingerprint);
  return all;
}

std::optional<int64_t> NanogptDataset::size() const {
  if (passes_ == Passes::kEndless) return std::nullopt;
  return drop_last_ ? samples_of_pass_ / batch_size_ : ceil_div(samples_of_pass_, batch_size_);
}

const BinShard& NanogptDataset::shard() const {
  return shards_[static_cast<size_t>(order_[static_cast<size_t>(place_.file)])];
}

const BinTokens& NanogptDataset::tokens() {
  if (!tokens_) tokens_ = std::make_unique<const BinTokens>(shard());
  return *tokens_;
}

/// Every pass shuffles the order of the one before.
void NanogptDataset::begin_pass() {
  if (config_.shuffle_files) random_.shuffle(order_);
}

void NanogptDataset::go_to(const Place& place) {
  random_ = PythonRandom(kOrderSeed);
  order_.resize(shards_.size());
  std::iota(order_.begin(), order_.end(), 0);
  for (int64_t pass = 0; pass <= place.pass; ++pass) begin_pass();
  place_ = place;
  num_barren_ = 0;
  tokens_.reset();
}

void NanogptDataset::leave_file() {
  tokens_.reset();
  ++num_barren_;
  place_.token = 0;
  if (++place_.file < std::ssize(shards_)) return;
  place_.file = 0;
  ++place_.pass;
  begin_pass();
}

/// Moves to the next sample at or behind the place; false when the one pass is over. Two passes
/// without a sample show that there is none: together they hold every file, wherever they begin.
bool NanogptDataset::find_sample() {
  while (passes_ == Passes::kEndless || place_.pass == 0) {
    const int64_t last = shard().num_tokens - sample_tokens();
    if (config_.align_to_bos && place_.token <= last) {
      place_.token = tokens().find(*config_.bos_token, place_.token);
    }
    if (place_.token <= last) {
      num_barren_ = 0;
      return true;
    }
    leave_file();
    if (num_barren_ < 2 * std::ssize(shards_)) continue;
    throw InputError(cat(shards_.front().path, shards_.size() > 1 ? ", ..." : "", ": no sample of ",
                         sample_tokens(), " tokens begins with bos_token ", *config_.bos_token));
  }
  return false;
}

/// Passes over samples that other ranks take; false when the one pass is over.
bool NanogptDataset::skip(int64_t num_samples) {
  while (num_samples > 0) {
    if (!find_sample()) return false;
    int64_t skipped = 1;
    if (!config_.align_to_bos) {
      const int64_t num_left = (shard().num_tokens - place_.token) / sample_tokens();
      skipped = std::min(num_left, num_samples);
    }
    place_.token += skipped * sample_tokens();
    num_samples -= skipped;
  }
  return true;
}

int64_t NanogptDataset::count_samples() {
  int64_t count = 0;
  while (find_sample()) {
    int64_t found = 1;
    if (!config_.align_to_bos) found = (shard().num_tokens - place_.token) / sample_tokens();
    place_.token += found * sample_tokens();
    count += found;
  }
  return count;
}

Sample NanogptDataset::take_sample() {
  const bool is_found = find_sample();
  AM_CHECK(is_found, "sample ", taken_, " of ", samples_of_pass_);
  const std::vector<int64_t> read = tokens().read(place_.token, sample_tokens());
  check_vocabulary(read, context_.vocab_size, shard(), place_.token);
  place_.token += sample_tokens();
  Sample sample;
  sample.input_ids.assign(read.begin(), read.end() - 1);
  sample.labels.assign(read.begin() + 1, read.end());
  sample.num_attended = config_.seq_len;
  return sample;
}

std::optional<tensor::Batch> NanogptDataset::next() {
  int64_t wanted = batch_size_;
  if (passes_ == Passes::kOne) {
    wanted = std::min(batch_size_, samples_of_pass_ - taken_);
    if (wanted == 0 || (drop_last_ && wanted < batch_size_)) return std::nullopt;
  }
  std::vector<Sample> samples;
  for (int64_t i = 0; i < wanted; ++i) {
    skip(context_.rank);
    samples.push_back(take_sample());
    ++taken_;
    skip(context_.num_replicas - 1 - context_.rank);
  }
  return context_.stacks ? stack_collater(samples) : default_collater(samples, context_.collater);
}

void NanogptDataset::set_epoch(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  rewind();
}

void NanogptDataset::rewind() {
  taken_ = 0;
  go_to({});
}

Json NanogptDataset::state() const {
  Json state = Json::object();
  state["epoch"] = epoch_;
  state["consumed"] = taken_ * context_.num_replicas;
  state["pass"] = place_.pass;
  state["file"] = place_.file;
  state["token"] = place_.token;
  state["shuffle_files"] = config_.shuffle_files;
  state[kFilesKey] = files_;
  return state;
}

void NanogptDataset::load_state(const Json& state) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const bool has_changed = check_fingerprints(state.at(kFilesKey), fingerprints(),
                                              context_.allows_changed_data, context_.reporter);
  if (state.at("shuffle_files").as_bool() != config_.shuffle_files) {
    throw InputError(cat("the saved data position is one with shuffle_files ",
                         config_.shuffle_files ? "false" : "true", ", this run has ",
                         config_.shuffle_files ? "true" : "false",
                         ": the files come in another order"));
  }
  if (has_changed) {
    go_to({});
    if (context_.reporter != nullptr) {
      context_.reporter->warning(cat(context_.dataset, ": its files are read from the beginning"));
    }
  } else {
    Place place;
    place.pass = entry(state, "pass", int64_t{1} << 32);
    place.file = entry(state, "file", std::ssize(shards_));
    go_to(place);
    place_.token = entry(state, "token", shard().num_tokens + 1);
  }
  epoch_ = entry(state, "epoch", kMost);
  taken_ = entry(state, "consumed", kMost) / context_.num_replicas;
}

}  // namespace automodel::datasets
