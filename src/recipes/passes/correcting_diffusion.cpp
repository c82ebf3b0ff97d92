#include "recipes/passes/correcting_diffusion.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

constexpr double kTiny = 1e-30;  // upstream's floor below logarithms and divisors

/// What the noise leaves of a token at a time; all [B].
struct Schedule {
  at::Tensor exchanged;  ///< probability to be drawn anew among all tokens but the mask
  at::Tensor hidden;     ///< probability to be hidden
  at::Tensor visible;    ///< the rest: 1 - hidden
  at::Tensor kept;       ///< share of what is visible that was not drawn anew
};

Schedule schedule_at(const at::Tensor& time, const CorrectingDiffusionOptions& options) {
  const at::Tensor t = time.clamp(0.0, 1.0);
  const double rise = options.schedule_shape * options.schedule_peak;
  const double fall = options.schedule_shape * (1.0 - options.schedule_peak);
  const double peak =
      std::pow(options.schedule_peak, rise) * std::pow(1.0 - options.schedule_peak, fall);
  const double scale = options.uniform_ratio / (1.0 - options.uniform_ratio) / peak;
  const at::Tensor c = at::pow(t, rise) * scale * at::pow(1.0 - t, fall);
  const at::Tensor clean = (1.0 - t) / (1.0 + c);
  Schedule out;
  out.exchanged = c / (1.0 + c);
  out.hidden = 1.0 - clean - out.exchanged;
  out.visible = clean + out.exchanged;
  out.kept = clean / out.visible.clamp_min(kTiny);
  return out;
}

class CorrectingDiffusion final : public DiffusionObjective {
 public:
  CorrectingDiffusion(models::CausalLM& model, const CorrectingDiffusionOptions& options)
      : model_(model), options_(options) {}

  const char* mode() const override { return "scdd"; }

  NoisedBatch noised(const tensor::Batch& batch, const MicroBatchPlace& place) const override {
    const at::Tensor& ids = batch.input_ids;
    std::vector<at::Tensor> rows, times;
    for (int64_t row = 0; row < ids.size(0); ++row) {
      const at::Generator generator =
          seeded_generator(corruption_sample_seed(options_.seed, place, ids.size(0), row));
      times.push_back(drawn_time(generator));
      const at::Tensor is_supervised = batch.labels.narrow(0, row, 1).ne(options_.ignore_index);
      rows.push_back(noised_row(ids.narrow(0, row, 1), is_supervised, times.back(), generator));
    }
    NoisedBatch out;
    out.batch.input_ids = at::cat(rows);
    out.batch.labels = batch.labels;
    out.times = at::cat(times);
    return out;
  }

  DiffusionLoss loss(const NoisedBatch& batch, double divisor) const override {
    const at::Tensor labels = batch.batch.labels.reshape({-1});
    const at::Tensor rows = labels.ne(options_.ignore_index).nonzero().squeeze(1);
    const at::Tensor hidden = model_.hidden_states(batch.batch);
    const at::Tensor logits =
        model_.logits(hidden.reshape({-1, hidden.size(-1)}).index_select(0, rows));
    const at::Tensor visible = batch.batch.input_ids.reshape({-1}).index_select(0, rows);
    const at::Tensor times =
        batch.times.repeat_interleave(batch.batch.sequence_length()).index_select(0, rows);
    return {bound(logits, labels.index_select(0, rows), visible, times).sum() / divisor, {}};
  }

 private:
  /// On the grid, [1]; the last point, where everything is hidden, is left out.
  at::Tensor drawn_time(const at::Generator& generator) const {
    const auto steps = static_cast<double>(options_.num_timesteps);
    const at::Tensor u = at::rand({1}, generator) * (1.0 - options_.eps) + options_.eps;
    return (((u * steps).to(at::kLong).to(at::kFloat) + 1.0) / steps).clamp_max(1.0 - 1.0 / steps);
  }

  at::Tensor noised_row(const at::Tensor& ids, const at::Tensor& is_supervised,
                        const at::Tensor& time, const at::Generator& generator) const {
    const Schedule schedule = schedule_at(time, options_);
    const auto others = static_cast<double>(options_.vocab_size - 1);  // all but the mask
    // A token that is drawn anew may be itself, and is not exchanged then.
    const at::Tensor exchanged = schedule.exchanged * (others - 1) / others;
    const at::Tensor u = at::rand({1, ids.size(1)}, generator);
    const at::Tensor is_hidden = u.lt(schedule.hidden).logical_and(is_supervised);
    const at::Tensor is_exchanged = u.ge(schedule.hidden)
                                        .logical_and(u.lt(schedule.hidden + exchanged))
                                        .logical_and(is_supervised)
                                        .logical_and(ids.ne(options_.mask_token_id));
    // One of the ids that are neither the token nor the mask: those two are stepped over.
    at::Tensor drawn =
        at::randint(0, options_.vocab_size - 2, {1, ids.size(1)}, generator, ids.options());
    drawn = drawn + drawn.ge(ids.clamp_max(options_.mask_token_id));
    drawn = drawn + drawn.ge(ids.clamp_min(options_.mask_token_id));
    return at::where(is_exchanged, drawn, ids.masked_fill(is_hidden, options_.mask_token_id));
  }

  /// The bound's term of each token [T]: logits [T, V], the true and the visible ids, times [T].
  at::Tensor bound(const at::Tensor& logits, const at::Tensor& truth, const at::Tensor& visible,
                   const at::Tensor& times) const {
    const auto steps = static_cast<double>(options_.num_timesteps);
    const auto others = static_cast<double>(logits.size(-1) - 1);
    // Differences of neighbouring times are small beside what they are taken from: in float64.
    const at::Tensor wide_times = times.to(at::kDouble);
    const Schedule now = schedule_at(wide_times, options_);
    const Schedule before = schedule_at((wide_times - 1.0 / steps).clamp_min(0.0), options_);
    const at::Tensor base_now = (1.0 - now.kept) / others;
    const at::Tensor base = (1.0 - before.kept) / others;
    const auto log_of = [](const at::Tensor& x) { return x.clamp_min(kTiny).log(); };
    const auto at_ids = [](const at::Tensor& x, const at::Tensor& ids) {
      return x.gather(-1, ids.unsqueeze(-1)).squeeze(-1);
    };
    // The model's tokens are all but the mask.
    const at::Tensor mask = at::full({1}, options_.mask_token_id, visible.options());
    const at::Tensor scores = logits.index_fill(-1, mask, -std::numeric_limits<float>::infinity())
                                  .to(tensor::wide_dtype(logits.scalar_type()));
    const at::Tensor log_sum = scores.logsumexp(-1);
    // log(base + kept * p(token)), [T, V], one step before.
    const auto column = [&](const at::Tensor& x) { return x.to(scores.dtype()).unsqueeze(-1); };
    const at::Tensor posterior =
        at::logaddexp(column(log_of(base)), column(log_of(before.kept) - log_sum) + scores);
    const at::Tensor all = posterior.sum(-1) - log_of(base);  // without the mask's column
    const at::Tensor of_truth = at_ids(posterior, truth);

    const at::Tensor released = (before.visible - now.visible) / now.hidden.clamp_min(kTiny);
    const at::Tensor where_hidden = -released * (base * all + before.kept * of_truth);

    const at::Tensor log_visible =
        at::logaddexp(log_of(base_now), log_of(now.kept) + at_ids(scores, visible) - log_sum);
    const at::Tensor is_kept = visible.eq(truth).to(at::kFloat);
    const at::Tensor kept_before = before.kept.clamp_min(kTiny);
    const at::Tensor drawn_between = (before.kept - now.kept) / kept_before / others;
    const at::Tensor kept_between = now.kept / kept_before;
    const at::Tensor expected = base * drawn_between * (all - others * log_visible) +
                                before.kept * drawn_between * (of_truth - log_visible) +
                                base * kept_between * (at_ids(posterior, visible) - log_visible) +
                                before.kept * kept_between * is_kept * (of_truth - log_visible);
    const at::Tensor where_visible = -expected / (base_now + now.kept * is_kept).clamp_min(kTiny);
    const at::Tensor terms =
        at::where(visible.eq(options_.mask_token_id), where_hidden, where_visible) * steps;
    return terms.to(scores.dtype());
  }

  models::CausalLM& model_;
  CorrectingDiffusionOptions options_;
};

}  // namespace

std::unique_ptr<DiffusionObjective> make_correcting_diffusion(
    models::CausalLM& model, const CorrectingDiffusionOptions& options) {
  return std::make_unique<CorrectingDiffusion>(model, options);
}

}  // namespace automodel::recipes
