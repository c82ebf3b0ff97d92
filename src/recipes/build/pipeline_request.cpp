#include "recipes/build/pipeline_request.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "distributed/pipeline/schedule_csv.h"
#include "distributed/pipeline/simulation.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/build/build_model.h"
#include "recipes/build/tp_request.h"
#include "recipes/read/recipe_paths.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using distributed::PipelineConfig;
using distributed::PipelineSchedule;
using distributed::ScheduleKind;
using distributed::ScheduleShape;
using distributed::StageModules;

constexpr const char* kPipeline = "distributed.pipeline";

bool is_trained(const models::CausalLM& model, const std::string& parameter) {
  const auto parameters = model.named_parameters();
  const at::Tensor* const found = parameters.find(parameter);
  return found != nullptr && found->requires_grad();
}

/// Makes a schedule from the recipe's options, one check after the other.
class PipelinePlanner final {
 public:
  PipelinePlanner(const Recipe& recipe, const models::CausalLM& model)
      : config_(*recipe.distributed.pipeline),
        plan_(model.parallel_plan()),
        trains_embedding_(is_trained(model, cat(plan_.embedding, ".weight"))),
        splits_sequences_(recipe.distributed.sizes.tp_size.value_or(1) > 1 &&
                          tp_request(recipe).sequence_parallel),
        num_ranks_(static_cast<int>(recipe.distributed.sizes.pp_size.value_or(1))),
        local_batch_size_(recipe.step_scheduler.local_batch_size) {}

  PipelineAnswer run() {
    // Copies of a weight that is not trained stay equal by themselves.
    if (plan_.head.empty() && trains_embedding_) {
      add("distributed", "pp_size",
          "Pipeline parallelism does not support tie_word_embeddings=True: the first and the last "
          "stage would hold the same weights. Train this model with another strategy (e.g. FSDP2)");
    }
    for (const std::string& reason : plan_.no_pp_reasons) {
      add("distributed", "pp_size", reason, true);
    }
    count_microbatches();
    find_kind();
    if (!answer_.findings.empty()) return std::move(answer_);
    find_stages();
    if (!answer_.findings.empty()) return std::move(answer_);
    find_schedule();
    return std::move(answer_);
  }

 private:
  void add(const char* section, const char* key, const std::string& text,
           bool is_unsupported = false) {
    answer_.findings.push_back({section, key, text, is_unsupported});
  }

  /// Runs a step; an error that it throws becomes a finding at the key.
  template <typename Step>
  void try_step(const char* key, const Step& step) {
    try {
      step();
    } catch (const UnsupportedError& error) {
      add(kPipeline, key, error.what(), true);
    } catch (const UserError& error) {
      add(kPipeline, key, error.what());
    }
  }

  /// Whether another part than the last norm's has the head.
  bool is_head_apart(const StageModules& parts) const {
    return std::ranges::any_of(parts, [this](const std::vector<std::string>& part) {
      return std::ranges::find(part, plan_.head) != part.end() &&
             std::ranges::find(part, plan_.final_norm) == part.end();
    });
  }

  void count_microbatches() {
    const int64_t size = config_.pp_microbatch_size;
    if (local_batch_size_ % size != 0) {
      add(kPipeline, "pp_microbatch_size",
          cat("local_batch_size (", local_batch_size_,
              ") must be divisible by pp_microbatch_size (", size, ")"));
    } else if (local_batch_size_ / size < num_ranks_) {
      add(kPipeline, "pp_microbatch_size",
          cat("local_batch_size ", local_batch_size_, " // pp_microbatch_size ", size,
              " must be >= pp_size ", num_ranks_));
    }
    num_microbatches_ = static_cast<int>(local_batch_size_ / size);
  }

  void find_kind() {
    if (!config_.pp_schedule_csv) {
      try_step("pp_schedule",
               [&] { kind_ = distributed::get_schedule_class(config_.pp_schedule); });
      return;
    }
    kind_ = ScheduleKind::kCsv;
    const std::string& path = *config_.pp_schedule_csv;
    if (!path_exists(path)) {
      add(kPipeline, "pp_schedule_csv",
          cat("The specified path ", path, " does not exist or is not a file."));
      return;
    }
    csv_ = read_file(path);
  }

  void find_stages() {
    if (const auto& parts = config_.module_fqns_per_model_part) {
      const char* key = "module_fqns_per_model_part";
      const std::string finding = distributed::stage_modules_finding(plan_, *parts);
      if (!finding.empty()) {
        add(kPipeline, key, finding);
      } else if (splits_sequences_ && !plan_.head.empty() && is_head_apart(*parts)) {
        add(kPipeline, key,
            cat(plan_.final_norm, " and ", plan_.head,
                " must be in one part with sequence_parallel, which ends between them"));
      }
      stages_ = distributed::normalize_stage_modules(*parts);
      check_stages_per_rank(key);
      return;
    }
    const auto& rounding = config_.round_virtual_stages_to_pp_multiple;
    const bool is_wrong = rounding && *rounding != "up" && *rounding != "down";
    int64_t count = 0;
    const char* key = is_wrong                   ? "round_virtual_stages_to_pp_multiple"
                      : config_.layers_per_stage ? "layers_per_stage"
                                                 : "pp_schedule";
    if (kind_ == ScheduleKind::kCsv && !config_.layers_per_stage) {
      count = distributed::count_csv_stages(csv_);
      key = "pp_schedule_csv";
    } else {
      try_step(key, [&] {
        count = distributed::calculate_virtual_stages(
            {.num_layers = static_cast<int64_t>(plan_.blocks.size()),
             .layers_per_stage = config_.layers_per_stage,
             .pp_size = num_ranks_,
             .is_multi_stage = distributed::is_multi_stage(kind_),
             .rounding = rounding});
      });
    }
    if (!answer_.findings.empty()) return;
    try_step(key, [&] { stages_ = distributed::split_into_stages(plan_, count); });
    if (answer_.findings.empty()) check_stages_per_rank(key);
  }

  void check_stages_per_rank(const char* key) {
    const auto count = static_cast<int>(stages_.size());
    const bool is_single = !distributed::is_multi_stage(kind_);
    if (count % num_ranks_ != 0) {
      add(kPipeline, key,
          cat("the number of stages (", count, ") must be divisible by pp_size (", num_ranks_,
              ")"));
    } else if (is_single && count != num_ranks_) {
      add(kPipeline, key,
          cat(distributed::schedule_name(kind_), " has one stage per rank, and these are ", count,
              " stages for ", num_ranks_, " ranks"));
    } else if (!is_single && kind_ != ScheduleKind::kCsv && count < 2 * num_ranks_) {
      add(kPipeline, key,
          cat(distributed::schedule_name(kind_), " has at least 2 stages per rank, and these are ",
              count, " stages for ", num_ranks_, " ranks"));
    }
  }

  void find_schedule() {
    const ScheduleShape shape{num_ranks_, static_cast<int>(stages_.size()) / num_ranks_,
                              num_microbatches_};
    PipelineSchedule schedule;
    if (kind_ == ScheduleKind::kCsv) {
      const std::string& path = *config_.pp_schedule_csv;
      try_step("pp_schedule_csv", [&] {
        schedule = distributed::parse_schedule_csv(csv_, path, shape);
        const std::string deadlock = distributed::simulate(schedule).deadlock;
        if (!deadlock.empty()) throw UserError(cat(path, ": a deadlock: ", deadlock));
      });
    } else {
      const std::string finding = distributed::schedule_finding(kind_, shape);
      if (!finding.empty()) add(kPipeline, "pp_schedule", finding);
      if (finding.empty()) schedule = distributed::make_schedule(kind_, shape);
    }
    if (answer_.findings.empty()) {
      answer_.request = PipelineRequest{std::move(schedule), std::move(stages_)};
    }
  }

  const PipelineConfig& config_;
  nn::ParallelPlan plan_;
  bool trains_embedding_;
  bool splits_sequences_;
  int num_ranks_;
  int64_t local_batch_size_;
  int num_microbatches_ = 0;
  ScheduleKind kind_ = ScheduleKind::k1F1B;
  std::string csv_;
  StageModules stages_;
  PipelineAnswer answer_;
};

const Node& place_of_finding(const Recipe& recipe, const PipelineFinding& finding) {
  const Node* node = &recipe.root;
  for (const std::string& name : split(finding.section + "." + finding.key, '.')) {
    const Node* child = node->find(name);
    if (child == nullptr) break;
    node = child;
  }
  return *node;
}

}  // namespace

PipelineAnswer ask_pipeline(const Recipe& recipe, const models::CausalLM& model) {
  return PipelinePlanner(recipe, model).run();
}

PipelineRequest pipeline_request(const Recipe& recipe, const models::CausalLM& model) {
  PipelineAnswer answer = ask_pipeline(recipe, model);
  if (!answer.findings.empty()) throw UserError(answer.findings[0].text);
  return std::move(*answer.request);
}

void check_pipeline(const Recipe& recipe, Diagnostics& diagnostics) {
  const distributed::DistributedSetup& setup = recipe.distributed;
  const bool is_used = setup.pipeline && setup.sizes.pp_size.value_or(1) > 1 &&
                       setup.strategy == distributed::Strategy::kFsdp2;
  if (!is_used) return;  // other checks report the rest
  const Json& config = recipe.model.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  std::shared_ptr<models::CausalLM> model;
  try {
    model = build_model(recipe, at::kFloat);
  } catch (const UserError&) {
    return;  // other checks say what is wrong with adapters or frozen parameters
  }
  for (const PipelineFinding& finding : ask_pipeline(recipe, *model).findings) {
    const Node& place = place_of_finding(recipe, finding);
    if (finding.is_unsupported) {
      diagnostics.unsupported(place, finding.text);
    } else {
      const bool is_file = finding.key == "pp_schedule_csv";
      diagnostics.error(
          place, is_file ? cat(finding.text, looked_for_text(place, diagnostics)) : finding.text);
    }
  }
}

}  // namespace automodel::recipes
