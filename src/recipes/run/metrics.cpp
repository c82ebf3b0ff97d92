#include "recipes/run/metrics.h"

#include <utility>

#include "core/clock.h"
#include "models/catalog.h"
#include "recipes/build/build_model.h"
#include "tensor/memory.h"

namespace automodel::recipes {

namespace {
double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(1 << 30);
}

/// Below 1 in a benchmark of adapters, whose frozen weights have no gradients. Upstream counts so
/// only there.
double computed_share(const Recipe& recipe, const SessionModel& model) {
  if (!recipe.benchmark || !recipe.peft) return 1;
  const auto trained = static_cast<double>(model.engine().num_trained_parameters());
  const int64_t all =
      recipe.quantization ? num_elements(model.model()) : model.engine().num_parameters();
  const double frozen = static_cast<double>(all) - trained;
  return (2 + trained / frozen) / 3;
}
}  // namespace

StepMeter::StepMeter(int64_t world_size, std::optional<double> peak_tflops, MemoryGauge peak_bytes)
    : world_size_(world_size),
      peak_tflops_(peak_tflops),
      peak_bytes_(std::move(peak_bytes)),
      last_seconds_(monotonic_seconds()) {}

void StepMeter::restart() {
  last_seconds_ = monotonic_seconds();
}

Json StepMeter::record(const training::StepResult& result, int64_t step, int64_t epoch,
                       double flops) {
  const double now = monotonic_seconds();
  const double seconds = now - last_seconds_;
  last_seconds_ = now;
  const double tokens_per_second = static_cast<double>(result.counts.num_tokens) / seconds;
  const auto ranks = static_cast<double>(world_size_);
  Json record = Json::object();
  record["step"] = step;
  record["epoch"] = epoch;
  record["timestamp"] = utc_timestamp();
  record["loss"] = static_cast<double>(static_cast<float>(result.loss));
  record["grad_norm"] = result.grad_norm;
  record["lr"] = result.lr;
  record["mem"] = gib(peak_bytes_());
  record["tps"] = tokens_per_second;
  record["tps_per_gpu"] = tokens_per_second / ranks;
  record["mfu"] =
      peak_tflops_ ? Json(100.0 * flops / 1e12 / (ranks * seconds) / *peak_tflops_) : Json();
  record["num_tokens_per_step"] = result.counts.num_tokens;
  record["num_label_tokens"] = result.counts.num_label_tokens;
  return record;
}

Json StepMeter::validation_record(const training::TrainStep::Evaluation& result, double lr,
                                  int64_t step, int64_t epoch) const {
  Json record = Json::object();
  record["step"] = step;
  record["epoch"] = epoch;
  record["timestamp"] = utc_timestamp();
  record["val_loss"] = result.loss;
  record["lr"] = lr;
  record["num_label_tokens"] = result.num_label_tokens;
  record["mem"] = gib(peak_bytes_());
  return record;
}

StepOperations::StepOperations(const Recipe& recipe, const SessionModel& model, int64_t num_readers)
    : count_(models::training_flops(model.model().hf_config())),
      factor_(static_cast<double>(num_readers) * computed_share(recipe, model)) {}

double StepOperations::of(const std::vector<tensor::Batch>& batches) const {
  if (!count_) return 0;
  double flops = 0;
  for (const tensor::Batch& batch : batches) {
    flops += count_(batch.num_sequences(), batch.sequence_length());
  }
  return flops * factor_;
}

std::optional<double> peak_of(const Recipe& recipe, const RunContext& context) {
  // Operations are counted for one pass of a decoder only.
  if (recipe.dllm || models::reads_sources(recipe.model.hf_config)) return std::nullopt;
  if (recipe.mfu.peak_tflops) return recipe.mfu.peak_tflops;
  const std::string device =
      context.cuda == nullptr ? "cpu" : context.cuda->device_name(context.device.index());
  return models::peak_tflops(recipe.mfu.device.value_or(device));
}

StepMeter build_step_meter(const Recipe& recipe, const RunContext& context) {
  const tensor::CudaRuntime* cuda = context.cuda;
  const int index = context.device.index();
  return {context.group.size(), peak_of(recipe, context), [cuda, index] {
            return cuda == nullptr ? tensor::peak_resident_bytes()
                                   : cuda->peak_allocated_bytes(index);
          }};
}

}  // namespace automodel::recipes
