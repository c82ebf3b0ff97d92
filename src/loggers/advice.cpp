#include "loggers/advice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/text.h"

namespace automodel::loggers {

namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string number(double value) {
  const double size = std::abs(value);
  if (size != 0 && (size < 0.01 || size >= 1e5)) return format_scientific(value, 2);
  return format_fixed(value, size < 10 ? 3 : 1);
}

std::string percent(double share) {
  return cat(format_fixed(100 * share, 0), " %");
}

}  // namespace

void LastValues::add(double value) {
  values_.push_back(value);
  if (values_.size() > most_) values_.pop_front();
}

double LastValues::median() const {
  return median_of({values_.begin(), values_.end()});
}

double LastValues::spread() const {
  const double middle = median();
  std::vector<double> distances;
  for (const double value : values_) distances.push_back(std::abs(value - middle));
  constexpr double kOfNormal = 1.4826;
  return kOfNormal * median_of(std::move(distances));
}

void CurveParts::add(double value) {
  constexpr size_t kMostParts = 256;
  if (parts_.empty() || parts_.back().count == steps_of_part_) {
    if (parts_.size() == kMostParts) {
      for (size_t i = 0; i < kMostParts / 2; ++i) {
        const Part &a = parts_[2 * i], &b = parts_[2 * i + 1];
        parts_[i] = {a.sum + b.sum, a.squares + b.squares, a.count + b.count};
      }
      parts_.resize(kMostParts / 2);
      steps_of_part_ *= 2;
    }
    parts_.emplace_back();
  }
  Part& part = parts_.back();
  part.sum += value;
  part.squares += value * value;
  ++part.count;
  ++num_steps_;
}

CurveParts::Mean CurveParts::mean(size_t begin, size_t end) const {
  Part all;
  for (size_t i = begin / steps_of_part_; i < end / steps_of_part_ && i < parts_.size(); ++i) {
    all.sum += parts_[i].sum;
    all.squares += parts_[i].squares;
    all.count += parts_[i].count;
  }
  const auto count = static_cast<double>(std::max<size_t>(all.count, 1));
  const double value = all.sum / count;
  const double variance = std::max(0.0, all.squares / count - value * value);
  return {value, std::sqrt(variance / count)};
}

std::vector<Advice> Adviser::after_step(const StepFacts& facts) {
  std::vector<Advice> all;
  const auto add = [&](std::optional<Advice> advice) {
    if (advice) all.push_back(std::move(*advice));
  };
  const bool counts_nothing = facts.loss == 0 && facts.grad_norm == 0;  // a step without labels
  if (std::isfinite(facts.loss) && !counts_nothing) {
    add(find_explosion(facts));
    if (num_exploded_ == 0) add(find_divergence(facts));
    add(find_spike(facts));
    add(find_plateau(facts));
  }
  add(find_slow_data(facts));
  return all;
}

std::optional<Advice> Adviser::find_spike(const StepFacts& facts) {
  constexpr size_t kLeastSteps = 20;
  constexpr int64_t kPersists = 16;  // so many high steps are a new level
  constexpr int64_t kQuietSteps = 100;
  constexpr double kSpreads = 8, kShare = 0.25, kLeast = 0.1, kTimesNorm = 10;
  const bool has_norm = std::isfinite(facts.grad_norm) && facts.grad_norm > 0;
  bool is_high = false;
  std::string text;
  if (losses_.size() >= kLeastSteps) {
    const double median = losses_.median();
    const double limit =
        median + std::max({kSpreads * losses_.spread(), kShare * std::abs(median), kLeast});
    const double norm = norms_.size() >= kLeastSteps ? norms_.median() : 0;
    const bool is_loss_high = facts.loss > limit;
    is_high = is_loss_high || (has_norm && norm > 0 && facts.grad_norm > kTimesNorm * norm);
    text = cat("spike at step ", facts.step, ": ", is_loss_high ? "loss " : "gradient norm ",
               number(is_loss_high ? facts.loss : facts.grad_norm), ", where the median of the ",
               losses_.size(), " steps before was ", number(is_loss_high ? median : norm),
               is_loss_high && norm > 0 ? cat(" (gradient norm ", number(facts.grad_norm),
                                              ", median ", number(norm), ")")
                                        : "",
               "; look at its data, and if more follow take a lower learning rate than ",
               number(facts.lr), " or a longer warm-up");
  }
  num_high_ = is_high ? num_high_ + 1 : 0;
  if (num_high_ >= kPersists) {
    losses_.clear();
    norms_.clear();
    num_high_ = 0;
  }
  if (!is_high) {
    losses_.add(facts.loss);
    if (has_norm) norms_.add(facts.grad_norm);
    return std::nullopt;
  }
  const bool is_told = last_spike_ && facts.step - *last_spike_ < kQuietSteps;
  last_spike_ = facts.step;
  if (is_told) return std::nullopt;
  return Advice{"spike", std::move(text)};
}

std::optional<Advice> Adviser::find_divergence(const StepFacts& facts) {
  constexpr size_t kStepsOfBlock = 16, kRisenBlocks = 3, kLeastChanges = 3;
  constexpr double kSpreads = 8, kShare = 0.2, kLeast = 0.1, kGoneShare = 0.05;
  block_.add(facts.loss);
  if (block_.size() < kStepsOfBlock) return std::nullopt;
  const double median = block_.median();
  block_.clear();
  if (!recent_.empty()) changes_.add(median - recent_.back());
  recent_.push_back(median);
  if (recent_.size() > kRisenBlocks) recent_.erase(recent_.begin());
  const double before = lowest_.value_or(median);
  lowest_ = std::min(before, median);
  if (median <= before + kGoneShare * std::abs(before)) has_diverged_ = false;
  if (has_diverged_ || changes_.size() < kLeastChanges || recent_.size() < kRisenBlocks) {
    return std::nullopt;
  }
  const double limit =
      before + std::max({kSpreads * changes_.spread(), kShare * std::abs(before), kLeast});
  if (!std::ranges::all_of(recent_, [&](double value) { return value > limit; })) {
    return std::nullopt;
  }
  has_diverged_ = true;
  return Advice{"divergence",
                cat("the loss has risen and stays up: median ", number(median), " over the ",
                    kStepsOfBlock, " steps to step ", facts.step, ", after ", number(before),
                    " at its lowest; take a lower learning rate than ", number(facts.lr),
                    " and go on from a checkpoint before the rise")};
}

std::optional<Advice> Adviser::find_explosion(const StepFacts& facts) {
  constexpr int64_t kInARow = 4;
  constexpr double kTimes = 3, kLeast = 3;
  if (!first_) first_ = facts;
  const double first = first_->loss;
  const bool is_high = facts.loss > std::max(kTimes * first, first + kLeast);
  num_exploded_ = is_high ? num_exploded_ + 1 : 0;
  if (num_exploded_ != kInARow) return std::nullopt;
  return Advice{"divergence",
                cat("the loss is ", number(facts.loss), " at step ", facts.step, " and was ",
                    number(first), " at step ", first_->step, ": ", kInARow,
                    " steps in a row are far above it; take a lower learning rate than ",
                    number(facts.lr), " or a longer warm-up, and begin anew")};
}

std::optional<Advice> Adviser::find_plateau(const StepFacts& facts) {
  constexpr size_t kLeastSteps = 400, kPeriod = 100;
  constexpr double kShare = 0.005, kMostShare = 0.01, kErrors = 2, kEndOfDecay = 0.2;
  curve_.add(facts.loss);
  highest_lr_ = std::max(highest_lr_, facts.lr);
  const size_t steps = curve_.num_steps();
  if (steps < kLeastSteps || steps % kPeriod != 0) return std::nullopt;
  const CurveParts::Mean before = curve_.mean(steps / 2, steps * 3 / 4);
  const CurveParts::Mean last = curve_.mean(steps * 3 / 4, steps);
  const double better = before.value - last.value;
  const double doubt = kErrors * std::hypot(before.error, last.error);
  const double size = std::abs(before.value);
  if (better >= std::max(kShare * size, doubt)) is_flat_ = false;
  const bool is_better = better >= kShare * size || better >= doubt;
  // In much noise a fall that matters may hide.
  const bool is_known = better + doubt < kMostShare * size;
  // At the end of a schedule little is learned, as it should be.
  const bool is_ending = facts.lr < kEndOfDecay * highest_lr_;
  if (is_flat_ || is_better || !is_known || is_ending) return std::nullopt;
  is_flat_ = true;
  return Advice{"plateau",
                cat("the loss no longer falls: mean ", number(last.value), " over the last ",
                    steps - steps * 3 / 4, " steps, ", number(before.value), " over the ",
                    steps * 3 / 4 - steps / 2, " before (to step ", facts.step, ", learning rate ",
                    number(facts.lr), "); validation tells whether more steps still help"),
                /*is_warning=*/false};
}

std::optional<Advice> Adviser::find_slow_data(const StepFacts& facts) {
  constexpr size_t kSteps = 50, kLeastSteps = 20;
  constexpr double kShare = 0.2, kGoneShare = 0.1, kLeastSeconds = 1;
  times_.emplace_back(facts.seconds, facts.waited_seconds);
  if (times_.size() > kSteps) times_.pop_front();
  double seconds = 0, waited = 0;
  for (const auto& [of_step, of_data] : times_) {
    seconds += of_step;
    waited += of_data;
  }
  if (times_.size() < kLeastSteps || seconds <= 0) return std::nullopt;
  if (waited < kGoneShare * seconds) waits_ = false;
  if (waits_ || waited < kShare * seconds || waited < kLeastSeconds) return std::nullopt;
  waits_ = true;
  return Advice{
      "slow_data",
      cat("steps wait for the data: ", percent(waited / seconds), " of the last ", times_.size(),
          " steps' time (", number(waited), " of ", number(seconds),
          " s); data on a faster disk, or in a form that takes less work a sample, helps")};
}

std::vector<Advice> Adviser::after_routing(int64_t step, const std::vector<ExpertFacts>& layers) {
  constexpr double kKept = 0.98;  // of the steps before: the last fifty count
  constexpr int64_t kLeastSteps = 50;
  constexpr double kNothing = 0.05, kCollapsed = 0.5, kGone = 0.25;
  std::vector<Advice> all;
  for (const ExpertFacts& layer : layers) {
    Shares& shares = layers_[layer.layer];
    shares.tokens.resize(layer.tokens.size());
    const auto num_steps = static_cast<double>(layer.num_steps);
    const double kept = std::pow(kKept, num_steps);
    for (size_t i = 0; i < layer.tokens.size(); ++i) {
      shares.tokens[i] = kept * shares.tokens[i] + (1 - kept) * layer.tokens[i] / num_steps;
    }
    const double sum = std::accumulate(shares.tokens.begin(), shares.tokens.end(), 0.0);
    shares.num_steps += layer.num_steps;
    if (shares.num_steps < kLeastSteps || sum <= 0) continue;
    const auto num_experts = static_cast<double>(shares.tokens.size());
    const double even = sum / num_experts;
    const auto num_unused = std::ranges::count_if(
        shares.tokens, [&](double tokens) { return tokens < kNothing * even; });
    const double share = static_cast<double>(num_unused) / num_experts;
    if (share < kGone) shares.is_collapsed = false;
    if (shares.is_collapsed || share < kCollapsed) continue;
    shares.is_collapsed = true;
    const double busiest = *std::ranges::max_element(shares.tokens);
    all.push_back(
        {"routing",
         cat("routing collapse in ", layer.layer, " at step ", step, ": ", num_unused, " of ",
             shares.tokens.size(), " experts get less than ", percent(kNothing),
             " of an even share of the tokens, the busiest ", format_fixed(busiest / even, 1),
             " times one; a larger aux_loss_coeff or bias update factor of "
             "the router spreads them")});
  }
  return all;
}

std::optional<Advice> Adviser::after_times(const RankTimes& times) {
  constexpr int64_t kLeastSteps = 8;
  constexpr double kLeastSeconds = 1;
  constexpr int kSlowBlocks = 10;
  paces_.resize(times.seconds.size());
  for (size_t rank = 0; rank < paces_.size(); ++rank) paces_[rank].of_block += times.seconds[rank];
  ++steps_of_block_;
  seconds_of_block_ += *std::ranges::max_element(times.seconds);
  if (steps_of_block_ < kLeastSteps || seconds_of_block_ < kLeastSeconds) return std::nullopt;
  const size_t ranks_of_stage = paces_.size() / static_cast<size_t>(times.num_stages);
  for (size_t first = 0; first < paces_.size(); first += ranks_of_stage) {
    end_block(std::span(paces_).subspan(first, ranks_of_stage),
              static_cast<double>(steps_of_block_));
  }
  steps_of_block_ = 0;
  seconds_of_block_ = 0;
  std::vector<int64_t> ranks;
  double slow = 0, usual = 0;
  for (size_t rank = 0; rank < paces_.size(); ++rank) {
    RankPace& pace = paces_[rank];
    if (pace.is_told || pace.num_slow < kSlowBlocks) continue;
    pace.is_told = true;
    ranks.push_back(static_cast<int64_t>(rank));
    slow += pace.slow_seconds / pace.num_slow;
    usual += pace.usual_seconds / pace.num_slow;
  }
  if (ranks.empty()) return std::nullopt;
  const bool is_one = ranks.size() == 1;
  const auto count = static_cast<double>(ranks.size());
  return Advice{
      "straggler",
      cat(is_one ? "rank " : "ranks ", join_first(ranks, 8), is_one ? " holds" : " hold",
          " the others up (step ", times.step, "): by ",
          is_one ? "itself it works " : "themselves they work ", number(slow / count),
          " s on a step, where the median of the ranks with the same work is ",
          number(usual / count), " s; look at what else ",
          is_one ? "its machine does" : "their machines do",
          ", at a throttled clock, at the disk of the data, and at the tokens that experts get")};
}

void Adviser::end_block(std::span<RankPace> stage, double num_steps) {
  constexpr double kSlow = 1.25, kUsual = 1.1;
  constexpr int kUsualBlocks = 10;
  std::vector<double> seconds;
  for (const RankPace& pace : stage) seconds.push_back(pace.of_block);
  std::ranges::sort(seconds);
  const double usual = seconds[(seconds.size() - 1) / 2];  // of two ranks the faster one's
  for (RankPace& pace : stage) {
    const double own = std::exchange(pace.of_block, 0);
    if (own < kSlow * usual) {
      pace.num_slow = 0;
      pace.slow_seconds = pace.usual_seconds = 0;
    } else {
      ++pace.num_slow;
      pace.slow_seconds += own / num_steps;
      pace.usual_seconds += usual / num_steps;
    }
    pace.num_usual = own < kUsual * usual ? pace.num_usual + 1 : 0;
    if (pace.num_usual >= kUsualBlocks) pace.is_told = false;
  }
}

std::optional<Advice> Adviser::after_save(const DiskFacts& facts) {
  constexpr double kEnough = 1.2;
  const int64_t needed = facts.num_to_come * facts.checkpoint_bytes;
  if (static_cast<double>(facts.free_bytes) > kEnough * static_cast<double>(needed)) {
    is_disk_short_ = false;
  }
  if (is_disk_short_ || facts.free_bytes >= needed) return std::nullopt;
  is_disk_short_ = true;
  const auto bytes = [](int64_t count) { return format_bytes(static_cast<uint64_t>(count)); };
  return Advice{"disk", cat("the disk of ", facts.folder,
                            " will be full before the end: ", bytes(facts.free_bytes),
                            " are free, and ", facts.num_to_come, " more checkpoints of ",
                            bytes(facts.checkpoint_bytes), " need ", bytes(needed),
                            "; free some, or set checkpoint.max_recent_checkpoints")};
}

}  // namespace automodel::loggers
