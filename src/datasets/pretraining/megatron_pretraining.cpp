#include "datasets/pretraining/megatron_pretraining.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

/// More samples than asked for, so that a blend never runs out of one source (Megatron's surplus).
constexpr double kSurplus = 0.005;

size_t number_of(MegatronSplit part) {
  return static_cast<size_t>(part);
}

/// Prefixes of the .bin and .idx files that a pattern finds.
std::vector<std::string> prefixes_of(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  std::set<std::string> prefixes;
  for (const std::string& path : matching_paths(pattern)) {
    if (!path.ends_with(".bin") && !path.ends_with(".idx")) {
      throw UserError(cat("paths: ", path, " is neither a .bin nor an .idx file"));
    }
    prefixes.insert(path.substr(0, path.size() - 4));
  }
  if (prefixes.empty()) throw InputError(cat("paths: no file is named like '", pattern, "'"));
  return {prefixes.begin(), prefixes.end()};
}

std::vector<std::string> entries_of(const Json& json, const std::string& where) {
  if (json.is_string()) return {json.as_string()};
  if (!json.is_array()) throw UserError(cat(where, ": expected a list, found ", json.kind()));
  std::vector<std::string> entries;
  for (const Json& entry : json.as_array()) {
    entries.push_back(entry.is_string() ? entry.as_string() : entry.dump());
  }
  return entries;
}

/// The blend of the part, and the share of its documents that is read.
std::pair<MegatronBlend, std::pair<double, double>> blend_of_part(
    const MegatronPretrainingConfig& config) {
  const std::string part(enum_name(config.part));
  if (!config.blend) {
    const auto& blend = config.blend_per_split[number_of(config.part)];
    if (!blend) throw UserError(cat("paths has no ", part, ", which splits_to_build asks for"));
    return {*blend, {0.0, 1.0}};
  }
  const auto bounds = parse_shares(config.split)[number_of(config.part)];
  if (!bounds) {
    throw UserError(cat("split '", config.split, "' leaves nothing to ", part,
                        ", which splits_to_build asks for"));
  }
  return {*config.blend, *bounds};
}

std::vector<int64_t> shares_of(const std::vector<double>& weights, int64_t size, double surplus) {
  std::vector<int64_t> shares;
  for (const double weight : weights) {
    const double share = std::ceil(static_cast<double>(size) * weight);
    shares.push_back(static_cast<int64_t>(std::ceil(share * (1 + surplus))));
  }
  return shares;
}

/// The trailing tokens that are padding when the pad token also ends documents: those behind the
/// first of them.
size_t begin_of_padding(const std::vector<int64_t>& ids, int64_t pad_id) {
  size_t end = ids.size();
  while (end > 0 && ids[end - 1] == pad_id) --end;
  return std::min(end + 1, ids.size());
}

void zero_padding(std::vector<int64_t>& ids, int64_t pad_id, std::optional<int64_t> eos_id) {
  if (eos_id != pad_id) {
    std::ranges::replace(ids, pad_id, int64_t{0});
    return;
  }
  std::fill(ids.begin() + static_cast<std::ptrdiff_t>(begin_of_padding(ids, pad_id)), ids.end(), 0);
}

}  // namespace

MegatronBlend MegatronBlend::parse(const std::vector<std::string>& entries) {
  if (entries.empty()) throw UserError("paths names no token file");
  std::vector<double> weights;
  for (size_t i = 0; i < entries.size() && entries.size() % 2 == 0; i += 2) {
    if (const auto weight = parse_double(trim(entries[i]))) weights.push_back(*weight);
  }
  MegatronBlend blend;
  if (weights.empty()) {
    blend.prefixes = entries;
    return blend;
  }
  if (2 * weights.size() != entries.size()) {
    throw UserError(
        "paths: expected prefixes, or weights and prefixes in turn: [30, /data/a, 70, /data/b]");
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0))
      throw UserError(cat("paths: weight ", entries[2 * i], " is not above 0"));
    blend.prefixes.emplace_back(trim(entries[2 * i + 1]));
  }
  blend.weights = std::move(weights);
  return blend;
}

void set_blend_of_part(const std::string& part, const std::vector<std::string>& entries,
                       MegatronPretrainingConfig& config) {
  const bool is_alias = part == "valid" || part == "val" || part == "dev";
  for (const auto& [name, value] : EnumNames<MegatronSplit>::values) {
    if (name != (is_alias ? "validation" : part)) continue;
    config.blend_per_split[number_of(value)] = entries.size() == 1
                                                   ? MegatronBlend{prefixes_of(entries[0])}
                                                   : MegatronBlend::parse(entries);
    return;
  }
  throw UserError(cat("paths: '", part, "' is none of train, validation and test"));
}

void read_blend_path(const std::string& path, MegatronPretrainingConfig& config) {
  if (!to_lower(path).ends_with(".json")) {
    config.blend = MegatronBlend{prefixes_of(path)};
    return;
  }
  const Json json = Json::parse_file(path);
  if (!json.is_object()) {
    config.blend = MegatronBlend::parse(entries_of(json, path));
    return;
  }
  for (const auto& [name, value] : json.as_object()) {
    set_blend_of_part(name, entries_of(value, cat(path, ": ", name)), config);
  }
}

std::optional<int64_t> wanted_samples(const MegatronPretrainingConfig& config,
                                      const TrainingSchedule& schedule) {
  std::optional<int64_t> steps = schedule.max_steps;
  std::optional<int64_t> of_training;
  if (steps) of_training = *steps * schedule.global_batch_size;
  if (const auto& asked = config.num_samples[number_of(MegatronSplit::kTrain)]) {
    if (of_training && *asked < *of_training) {
      throw UserError(cat("num_train_samples ", *asked, " is less than max_steps * ",
                          "global_batch_size, ", *of_training));
    }
    of_training = asked;
    steps = *asked / schedule.global_batch_size;
  }
  if (config.part == MegatronSplit::kTrain) return of_training;
  if (const auto& asked = config.num_samples[number_of(config.part)]) return asked;
  if (config.part == MegatronSplit::kTest || !steps || !config.limit_val_batches) {
    return std::nullopt;
  }
  constexpr int64_t kValEverySteps = 1000;
  return *steps / schedule.val_every_steps.value_or(kValEverySteps) * *config.limit_val_batches *
         schedule.global_batch_size;
}

void check(const MegatronPretrainingConfig& config) {
  for (const std::string& prefix : blend_of_part(config).first.prefixes) TokenFile file(prefix);
}

int64_t MegatronPretraining::Source::size() const {
  return num_samples ? std::min(*num_samples, index.size()) : index.size();
}

MegatronPretraining::Source MegatronPretraining::open(const std::string& prefix,
                                                      const std::pair<double, double>& bounds,
                                                      std::optional<int64_t> num_samples,
                                                      const MegatronPretrainingConfig& config) {
  Source source;
  source.tokens = std::make_unique<TokenFile>(prefix);
  source.num_samples = num_samples;
  const auto all = static_cast<double>(source.tokens->num_sequences());
  // Python's round: halves go to the even neighbour, as nearbyint does by default.
  const std::pair documents{static_cast<int64_t>(std::nearbyint(bounds.first * all)),
                            static_cast<int64_t>(std::nearbyint(bounds.second * all))};
  try {
    source.index = build_sample_index(source.tokens->lengths(), documents,
                                      {config.seq_length, num_samples, config.seed});
  } catch (const InputError& error) {
    throw InputError(cat(prefix, ": ", error.what()));
  }
  return source;
}

void MegatronPretraining::open_blend(const MegatronBlend& blend,
                                     const std::pair<double, double>& bounds,
                                     std::optional<int64_t> num_samples,
                                     const MegatronPretrainingConfig& config) {
  if (!blend.weights) {
    std::vector<int64_t> sizes;
    for (const std::string& prefix : blend.prefixes) {
      sources_.push_back(open(prefix, bounds, std::nullopt, config));
      sizes.push_back(sources_.back().size());
    }
    if (!num_samples) {
      blend_ = blend_all(sizes);
      return;
    }
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    const std::vector<double> weights = normalized({sizes.begin(), sizes.end()});
    blend_ = blend_by_weight(weights, std::min(*num_samples, total));
    return;
  }
  if (!num_samples) {
    throw UserError(
        "weights in paths need a number of samples: step_scheduler.max_steps, num_train_samples, "
        "num_val_samples or num_test_samples");
  }
  const std::vector<double> weights = normalized(*blend.weights);
  const std::vector<int64_t> with_surplus = shares_of(weights, *num_samples, kSurplus);
  for (size_t i = 0; i < weights.size(); ++i) {
    sources_.push_back(open(blend.prefixes[i], bounds, with_surplus[i], config));
  }
  int64_t total = 0;
  for (const int64_t share : shares_of(weights, *num_samples, 0)) total += share;
  blend_ = blend_by_weight(normalized(weights), total);
}

MegatronPretraining::MegatronPretraining(const MegatronPretrainingConfig& config,
                                         const TrainingSchedule& schedule,
                                         const TextEncoder& encoder)
    : seq_length_(config.seq_length),
      pad_id_(encoder.pad_token_id().value_or(0)),
      eos_id_(encoder.eos_token_id()) {
  const auto [blend, bounds] = blend_of_part(config);
  const std::optional<int64_t> num_samples = wanted_samples(config, schedule);
  if (blend.prefixes.size() == 1) {
    sources_.push_back(open(blend.prefixes[0], bounds, num_samples, config));
  } else {
    open_blend(blend, bounds, num_samples, config);
    for (const BlendedSample& sample : blend_) {
      const Source& source = sources_[static_cast<size_t>(sample.dataset)];
      if (sample.sample < source.size()) continue;
      throw InputError(cat(source.tokens->prefix(), ": the blend takes more than its ",
                           source.size(), " samples"));
    }
  }
  if (size() == 0) {
    throw InputError(cat(sources_[0].tokens->prefix(), ": no sample is asked for (",
                         enum_name(config.part), ")"));
  }
  order_checksum_ = checksum_of_order();
}

uint64_t MegatronPretraining::checksum_of_order() const {
  OrderChecksum sum;
  for (const Source& source : sources_) {
    const std::vector<int32_t>& documents = source.index.documents;
    sum.add(std::vector<int64_t>(documents.begin(), documents.end()));
    sum.add(source.index.shuffled);
  }
  std::vector<int64_t> blended;
  blended.reserve(blend_.size());
  for (const BlendedSample& sample : blend_) blended.push_back(sample.dataset);
  return sum.add(blended).value();
}

int64_t MegatronPretraining::size() const {
  return blend_.empty() ? sources_[0].size() : std::ssize(blend_);
}

std::pair<const MegatronPretraining::Source*, int64_t> MegatronPretraining::locate(
    int64_t index) const {
  if (blend_.empty()) return {sources_.data(), index};
  const BlendedSample& sample = blend_[static_cast<size_t>(index)];
  return {&sources_[static_cast<size_t>(sample.dataset)], sample.sample};
}

Sample MegatronPretraining::at(int64_t index) const {
  const auto [source, drawn] = locate(index);
  const auto place = static_cast<size_t>(source->index.shuffled[static_cast<size_t>(drawn)]);
  const SampleIndex::Begin begin = source->index.begins[place];
  const SampleIndex::Begin end = source->index.begins[place + 1];
  std::vector<int64_t> tokens;
  tokens.reserve(static_cast<size_t>(seq_length_) + 1);
  for (int64_t at = begin.place; at <= end.place; ++at) {
    const int64_t document = source->index.documents[static_cast<size_t>(at)];
    const int64_t from = at == begin.place ? begin.offset : 0;
    const int64_t to =
        at == end.place ? end.offset + 1 : source->tokens->lengths()[static_cast<size_t>(document)];
    source->tokens->read(document, from, to - from, tokens);
  }
  Sample sample;
  sample.input_ids.assign(tokens.begin(), tokens.end() - 1);
  sample.labels.assign(tokens.begin() + 1, tokens.end());
  zero_padding(sample.input_ids, pad_id_, eos_id_);
  zero_padding(sample.labels, pad_id_, eos_id_);
  sample.num_attended = std::ssize(sample.input_ids);
  sample.row = index;
  return sample;
}

std::string MegatronPretraining::origin(int64_t row) const {
  const auto [source, drawn] = locate(row);
  return cat(source->tokens->prefix(), " sample ", drawn);
}

std::vector<DataFingerprint> MegatronPretraining::files() const {
  std::vector<DataFingerprint> all;
  for (const Source& source : sources_) {
    for (DataFingerprint& file : source.tokens->files()) all.push_back(std::move(file));
  }
  return all;
}

}  // namespace automodel::datasets
