#include "recipes/run/session_data.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/long_work.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "recipes/passes/diffusion_batches.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/read_data.h"

namespace automodel::recipes {

namespace {

/// A stream whose unlabelled tokens have the loss's ignore_index as their label.
class RelabelledStream final : public datasets::BatchStream {
 public:
  RelabelledStream(std::unique_ptr<datasets::BatchStream> stream, int64_t ignore_index)
      : stream_(std::move(stream)), ignore_index_(ignore_index) {}

  std::optional<tensor::Batch> next() override {
    auto batch = stream_->next();
    if (!batch) return batch;
    batch->labels =
        batch->labels.masked_fill(batch->labels == datasets::kIgnoreIndex, ignore_index_);
    return batch;
  }
  std::optional<int64_t> size() const override { return stream_->size(); }
  void set_epoch(int64_t epoch) override { stream_->set_epoch(epoch); }
  void rewind() override { stream_->rewind(); }
  Json state() const override { return stream_->state(); }
  void load_state(const Json& state) override { stream_->load_state(state); }
  bool has_begun_anew() const override { return stream_->has_begun_anew(); }
  Json facts() const override { return stream_->facts(); }

 private:
  std::unique_ptr<datasets::BatchStream> stream_;
  int64_t ignore_index_;
};

/// Opens the datasets of a recipe one by one.
class DataBuilder final {
 public:
  DataBuilder(const Recipe& recipe, datasets::LoaderContext context, PhaseTimes& times)
      : recipe_(recipe), context_(context), times_(times) {}

  SessionData build() {
    data_.training = stream_of(recipe_.dataset, true);
    for (const DatasetSection& section : recipe_.validation_datasets) {
      data_.validation.push_back({section.name, stream_of(section, false)});
    }
    return std::move(data_);
  }

 private:
  std::unique_ptr<datasets::BatchStream> stream_of(const DatasetSection& section,
                                                   bool is_training) {
    DataContext data;
    if (section.plan->needs_tokenizer()) data.encoder = &encoder_of(section);
    data.loader = is_training ? recipe_.dataloader : recipe_.validation_dataloader;
    data.context = context_;
    data.context.dataset = section.key;
    data.context.has_one_order = !is_training;
    data.schedule = schedule_of(recipe_);
    data.classifier = classifier_facts(recipe_);
    data.texts = retrieval_texts(recipe_, !is_training);
    data.is_validation = !is_training;
    if (is_training) data.packing = recipe_.packing;
    data.context.stacks = is_training ? recipe_.stacks : recipe_.validation_stacks;
    data.context.collater = is_training ? recipe_.collater : recipe_.validation_collater;
    if (recipe_.dllm) data.context.window_collater = window_collater_of(recipe_, *data.encoder);
    const LongWork told(context_.reporter, cat("reading ", section.key));
    std::unique_ptr<datasets::BatchStream> stream;
    try {
      stream = section.plan->build(data);
    } catch (const datasets::NoLabelsError& error) {  // names rows, which several sets may have
      throw InputError(cat(section.key, ": ", error.what()));
    }
    times_.end("data");
    const int64_t of_loss = recipe_.loss.ignore_index;
    if (of_loss == datasets::kIgnoreIndex || recipe_.dllm) return stream;
    return std::make_unique<RelabelledStream>(std::move(stream), of_loss);
  }

  const datasets::TextEncoder& encoder_of(const DatasetSection& section) {
    const std::string folder = tokenizer_folder(recipe_, section);
    if (folder.empty()) {
      const std::string name =
          section.tokenizer_name ? section.tokenizer_name->name : recipe_.model.source;
      throw InputError(cat(section.key, ": the tokenizer", name.empty() ? "" : cat(" '", name, "'"),
                           " is not on this machine"));
    }
    const LongWork told(context_.reporter, "loading the tokenizer");
    data_.encoders.push_back(datasets::load_text_encoder(folder, section.encoder_options));
    times_.end("tokenizer");
    return *data_.encoders.back();
  }

  const Recipe& recipe_;
  datasets::LoaderContext context_;
  PhaseTimes& times_;
  SessionData data_;
};

}  // namespace

SessionData build_data(const Recipe& recipe, const comm::ProcessGroup& readers, int64_t vocab_size,
                       Reporter& reporter, PhaseTimes& times) {
  datasets::LoaderContext context;
  context.num_replicas = readers.size();
  context.rank = readers.rank();
  context.seed = recipe.seed;
  context.local_batch_size = recipe.step_scheduler.local_batch_size;
  context.vocab_size = vocab_size;
  context.labels_are_tokens = !recipe.model.classifies && !recipe.model.makes_embeddings;
  context.allows_changed_data = recipe.checkpoint.allow_changed_data;
  context.reporter = &reporter;
  SessionData data = DataBuilder(recipe, context, times).build();
  const Json facts = data.training->facts();
  const Json* found = facts.find("num_packs");
  if (found == nullptr) found = facts.find("num_samples");
  const int64_t a_step = recipe.step_scheduler.global_batch_size;
  if (found != nullptr && found->is_int() && found->as_int() < a_step) {
    reporter.warning(cat("a step takes ", a_step,
                         " sequences (step_scheduler.global_batch_size), and ", recipe.dataset.key,
                         " has ", found->as_int(), recipe.packing ? " packs" : "",
                         ": an epoch is one step at most"));
  }
  return data;
}

datasets::TrainingSchedule schedule_of(const Recipe& recipe) {
  const training::StepSchedulerConfig& scheduler = recipe.step_scheduler;
  return {scheduler.max_steps, scheduler.global_batch_size, scheduler.val_every_steps};
}

}  // namespace automodel::recipes
