#include "recipes/read/read_benchmark.h"

#include "config/bind.h"
#include "config/registry.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Sets an integer key of the dataset; warns when the recipe gives another value.
void fill_in(Node& dataset, const char* key, int64_t value, const char* origin,
             Diagnostics& diagnostics) {
  Node* found = dataset.find(key);
  if (found == nullptr || found->is_null()) {
    dataset.put(key, Node::integer(value));
    return;
  }
  if (found->int_value() == value) return;
  diagnostics.warning(*found, cat("a benchmark takes ", key, " from ", origin, ": ", value));
  found->assume_value(Node::integer(value));
}

/// Sets random data's vocabulary from the model and its batch size from the step scheduler.
void fill_in_random_data(Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  Node* dataset = root.find("dataset");
  if (dataset == nullptr || !config::has_target(*dataset)) return;
  const Node* target = dataset->find("_target_");
  if (!target->is_string() || !target->string_value()->ends_with("MockIterableDataset")) return;
  const Json* text = &recipe.model.hf_config;
  if (text->is_object() && text->contains("text_config")) text = text->find("text_config");
  const Json* vocab_size = text->is_object() ? text->find("vocab_size") : nullptr;
  if (vocab_size != nullptr && vocab_size->is_int()) {
    fill_in(*dataset, "vocab_size", vocab_size->as_int(), "the model", diagnostics);
  }
  fill_in(*dataset, "batch_size", recipe.step_scheduler.local_batch_size,
          "step_scheduler.local_batch_size", diagnostics);
}

void warn_of_profiler(const Node& section, Diagnostics& diagnostics) {
  for (const char* key : {"nsys_start", "nsys_end", "nsys_ranks"}) {
    const Node* node = section.find(key);
    if (node == nullptr || node->is_null()) continue;
    const bool is_off = node->is_sequence() ? node->empty() : node->int_value() == -1;
    if (is_off) continue;
    diagnostics.warning_at_key(
        *node, cat("'", key, "' has no effect: ranges for a profiler are in --trace"));
  }
}

void warn_of_other_sections(const Node& root, Diagnostics& diagnostics) {
  for (const Node& child : root.children()) {
    const bool is_unused = child.key() == "lr_scheduler" || child.key() == "clip_grad_norm" ||
                           child.key().starts_with("validation_dataset") ||
                           child.key() == "tool_call_eval" ||
                           child.key() == "validation_dataloader" || child.key() == "tensorboard" ||
                           child.key() == "mlflow" || child.key() == "wandb";
    const Node* enabled = child.key() == "checkpoint" ? child.find("enabled") : nullptr;
    const bool is_saving = child.key() == "checkpoint" && !child.is_null() &&
                           (enabled == nullptr || enabled->bool_value() == true);
    const Node* switched = child.key() == "wandb" ? child.find("enable") : nullptr;
    const bool is_off = switched != nullptr && switched->bool_value() == false;
    if (child.is_null() || is_off || (!is_unused && !is_saving)) continue;
    diagnostics.warning_at_key(child, cat("'", child.key(),
                                          "' has no effect: a benchmark does not schedule, clip, "
                                          "validate, save or log"));
  }
}

}  // namespace

void read_benchmark(Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  fill_in_random_data(root, recipe, diagnostics);
  warn_of_other_sections(root, diagnostics);
  BenchmarkSection& section = recipe.benchmark.emplace();
  const Node* node = root.find("benchmark");
  if (node == nullptr || node->is_null()) {
    diagnostics.missing(root, "benchmark",
                        "missing key 'benchmark': what is measured, e.g. warmup_steps: 10");
    return;
  }
  section = config::bind<BenchmarkSection>(*node, diagnostics);
  warn_of_profiler(*node, diagnostics);
  if (section.flops_scope != "model" && section.flops_scope != "text") {
    diagnostics.error(*node->find("flops_scope"),
                      cat("flops_scope takes model or text, found '", section.flops_scope, "'"));
  }
  const auto max_steps = recipe.step_scheduler.max_steps;
  const Node* warmup = node->find("warmup_steps");
  if (max_steps && section.warmup_steps >= *max_steps) {
    diagnostics.error(warmup == nullptr ? *node : *warmup,
                      cat("warmup_steps ", section.warmup_steps,
                          " leaves no step to time: step_scheduler.max_steps is ", *max_steps));
  }
}

}  // namespace automodel::recipes
