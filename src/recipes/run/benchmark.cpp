#include "recipes/run/benchmark.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/file.h"
#include "core/output_file.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

constexpr double kTera = 1e12;

std::string percent_text(const Json& percent) {
  return percent.is_null() ? "unknown" : cat(format_fixed(percent.as_double(), 2), "%");
}

Json milliseconds(const RankTimes& sums, int64_t num_steps) {
  const double per_step = 1000.0 / static_cast<double>(num_steps);
  Json times = Json::object();
  times["min"] = sums.least * per_step;
  times["max"] = sums.most * per_step;
  return times;
}

}  // namespace

Benchmark::Benchmark(const Recipe& recipe, const BenchmarkPlace& place, double setup_seconds)
    : recipe_(recipe),
      place_(place),
      peak_tflops_(recipe.benchmark->peak_tflops ? recipe.benchmark->peak_tflops
                                                 : place.peak_tflops),
      setup_seconds_(over_ranks(setup_seconds).most),
      begin_seconds_(monotonic_seconds()) {
  const auto& path = recipe.benchmark->json_output_path;
  if (path && place_.group.rank() == 0) create_directories(parent_path(*path));
}

RankTimes Benchmark::over_ranks(double seconds) const {
  constexpr double kNano = 1e9;
  const auto nanoseconds = static_cast<int64_t>(std::llround(seconds * kNano));
  const int64_t most = place_.group.agree_max(nanoseconds);
  const int64_t least = -place_.group.agree_max(-nanoseconds);
  return {static_cast<double>(least) / kNano, static_cast<double>(most) / kNano};
}

Json Benchmark::utilisation(double flops, double seconds) const {
  if (!peak_tflops_) return {};
  return Json(100.0 * flops / kTera / (place_.group.size() * seconds) / *peak_tflops_);
}

void Benchmark::record(const training::StepResult& result, double flops, int64_t sequence_length) {
  const RankTimes iteration = over_ranks(monotonic_seconds() - begin_seconds_);
  const RankTimes forward_backward = over_ranks(result.forward_backward_seconds);
  const RankTimes update = over_ranks(result.update_seconds);
  sequence_length_ = sequence_length;
  const bool is_warmup = num_steps_ < recipe_.benchmark->warmup_steps;
  const int64_t step = num_steps_++;
  if (is_warmup) {
    warmup_seconds_ += iteration.most;
  } else {
    timed_seconds_ += iteration.most;
    timed_flops_ += flops;
    forward_backward_.least += forward_backward.least;
    forward_backward_.most += forward_backward.most;
    update_.least += update.least;
    update_.most += update.most;
  }
  const double tflops = flops / kTera;
  place_.reporter->info(cat(is_warmup ? "warmup step " : "step ", step,
                            " | num_label_tokens=", result.counts.num_label_tokens,
                            " | loss=", format_fixed(result.loss, 4),
                            " | Max iter time: ", format_fixed(iteration.most, 4),
                            " seconds | forward_backward ", format_fixed(forward_backward.most, 4),
                            " | optimizer ", format_fixed(update.most, 4),
                            " | MFU: ", percent_text(utilisation(flops, iteration.most)),
                            " | TFLOPs/global step: ", format_fixed(tflops, 4),
                            " | TFLOPs/GPU/step: ", format_fixed(tflops / place_.group.size(), 4),
                            " | FLOPs scope: ", recipe_.benchmark->flops_scope));
  begin_seconds_ = monotonic_seconds();
}

double Benchmark::average_seconds() const {
  const int64_t num_timed = num_steps_ - recipe_.benchmark->warmup_steps;
  return num_timed > 0 ? timed_seconds_ / static_cast<double>(num_timed) : 0;
}

Json Benchmark::report() const {
  const int64_t warmup_steps = std::min(recipe_.benchmark->warmup_steps, num_steps_);
  const int64_t num_timed = num_steps_ - warmup_steps;
  const double tflops = num_timed > 0 ? timed_flops_ / kTera / static_cast<double>(num_timed) : 0;
  Json report = Json::object();
  report["total_steps"] = num_steps_;
  report["warmup_steps"] = warmup_steps;
  report["training_steps"] = num_timed;
  report["setup_time_seconds"] = setup_seconds_;
  report["warmup_time_seconds"] = warmup_seconds_;
  report["training_time_seconds"] = timed_seconds_;
  report["avg_iter_time_seconds"] = average_seconds();
  report["avg_mfu_percent"] = num_timed > 0 ? utilisation(timed_flops_, timed_seconds_) : Json();
  report["tflops_per_gpu"] = tflops / place_.group.size();
  report["tflops_total"] = tflops;
  report["flops_scope"] = recipe_.benchmark->flops_scope;
  report["peak_tflops"] = peak_tflops_ ? Json(*peak_tflops_) : Json();
  report["world_size"] = place_.group.size();
  report["global_batch_size"] = recipe_.step_scheduler.global_batch_size;
  report["local_batch_size"] = recipe_.step_scheduler.local_batch_size;
  report["seq_len"] = sequence_length_;
  if (num_timed > 0) {
    report["forward_backward_milliseconds"] = milliseconds(forward_backward_, num_timed);
    report["optimizer_milliseconds"] = milliseconds(update_, num_timed);
  }
  return report;
}

void Benchmark::finish() const {
  const Json report = this->report();
  Reporter& log = *place_.reporter;
  const auto seconds = [&](const char* key) {
    return cat(format_fixed(report.at(key).as_double(), 4), " seconds");
  };
  log.info(cat("Total setup time: ", seconds("setup_time_seconds")));
  log.info(cat("Total warmup time (", report.at("warmup_steps").as_int(),
               " steps): ", seconds("warmup_time_seconds")));
  log.info(cat("Total iteration time (", report.at("training_steps").as_int(),
               " steps): ", seconds("training_time_seconds")));
  log.info(cat("Average iteration time: ", seconds("avg_iter_time_seconds")));
  log.info(cat("Average MFU: ", percent_text(report.at("avg_mfu_percent")),
               " | TFLOPs/global step: ", format_fixed(report.at("tflops_total").as_double(), 4),
               " | TFLOPs/GPU/step: ", format_fixed(report.at("tflops_per_gpu").as_double(), 4),
               " | FLOPs scope: ", recipe_.benchmark->flops_scope));
  const auto& path = recipe_.benchmark->json_output_path;
  if (!path || place_.group.rank() != 0) return;
  write_output_file(*path, report.dump(2) + "\n");
  log.info(cat("report: ", *path));
}

}  // namespace automodel::recipes
