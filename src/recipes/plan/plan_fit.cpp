#include "recipes/plan/plan_fit.h"

#include <algorithm>

#include "core/text.h"
#include "recipes/plan/columns.h"
#include "recipes/plan/json_list.h"
#include "recipes/plan/plan_text.h"

namespace automodel::recipes {

namespace {

using distributed::Strategy;

/// Memory that is kept free: on a device for its context, its libraries' workspaces and buffers,
/// and gaps of the allocator; on a CPU for the program itself.
int64_t reserve_of(const RecipePlan& plan, const DeviceMemory& memory) {
  if (plan.options.device.is_cpu()) return int64_t{256} << 20;
  return (int64_t{3} << 29) + memory.bytes / 25;
}

/// A change of the recipe that may need less memory.
struct Change {
  std::vector<std::string> overrides;
  int64_t world_size = 0;
};

/// The changes in the order in which they are proposed, each alone; the cheap ones together are
/// last.
class Changes final {
 public:
  Changes(const RecipePlan& plan, const Recipe& recipe)
      : setup_(recipe.distributed),
        has_teacher_(recipe.distillation.has_value()),
        is_fsdp2_(setup_.strategy == Strategy::kFsdp2),
        world_size_(plan.sizes.world_size()) {
    const bool defers = is_fsdp2_ && plan.options.sharding && setup_.fsdp2.defer_fsdp_grad_sync &&
                        (plan.options.num_micro_batches > 1 || plan.sizes.pp > 1);
    if (defers) add_cheap({"--distributed.defer_fsdp_grad_sync=false"});
    if (!plan.options.recomputes) add_cheap({"--distributed.activation_checkpointing=true"});
    const bool replicates = setup_.strategy == Strategy::kDdp || setup_.sizes.dp_replicate_size > 1;
    if (replicates && world_size_ > 1) {
      add_cheap({"--distributed.strategy=fsdp2", "--distributed.dp_replicate_size=1"});
    }
    const int64_t batch = recipe.step_scheduler.local_batch_size;
    if (batch > 1 && plan.sizes.pp == 1) {
      add({cat("--step_scheduler.local_batch_size=", batch / 2),
           cat("--dataset.batch_size=", batch / 2)});
      add({cat("--step_scheduler.local_batch_size=", batch / 2)});
    }
    const bool can_offload = is_fsdp2_ && !plan.options.device.is_cpu() && plan.options.sharding &&
                             !setup_.fsdp2.offload_policy;
    if (can_offload) add({"--distributed.offload_policy.pin_memory=true"});
    add_splits(plan);
    if (cheap_.size() > 1) {
      Change all{{}, world_size_};
      for (const Change& change : cheap_) {
        all.overrides.insert(all.overrides.end(), change.overrides.begin(), change.overrides.end());
      }
      all_.push_back(all);
    }
  }

  const std::vector<Change>& all() const { return all_; }

 private:
  void add(std::vector<std::string> overrides) {
    all_.push_back({std::move(overrides), world_size_});
  }
  void add_cheap(std::vector<std::string> overrides) {
    add(std::move(overrides));
    cheap_.push_back(all_.back());
  }

  /// Adds recipes on the same number of ranks with one larger axis, and recipes on twice the ranks.
  void add_splits(const RecipePlan& plan) {
    if (setup_.strategy != Strategy::kDdp) {
      for (const auto& [key, size] : {std::pair<const char*, int64_t>{"tp_size", plan.sizes.tp},
                                      {"cp_size", plan.sizes.cp}}) {
        if (world_size_ % (2 * size) == 0) add({cat("--distributed.", key, "=", 2 * size)});
      }
      // A teacher's stages are not planned.
      const bool may_cut = is_fsdp2_ && !has_teacher_ && plan.sizes.pp == 1 && world_size_ % 2 == 0;
      if (may_cut) {
        add({"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
             "--distributed.pipeline.pp_microbatch_size=1"});
      }
    }
    all_.push_back({{}, 2 * world_size_});
  }

  const distributed::DistributedSetup& setup_;
  bool has_teacher_;
  bool is_fsdp2_;
  int64_t world_size_;
  std::vector<Change> all_, cheap_;
};

std::string text_of(const Change& change, int64_t world_size) {
  std::vector<std::string> words;
  for (const std::string& override : change.overrides) words.push_back(override.substr(2));
  if (change.world_size != world_size) words.push_back(cat(change.world_size, " ranks"));
  return join(words, ", ");
}

}  // namespace

PlanFit fit_plan(const RecipePlan& plan, const Recipe& recipe, const DeviceMemory& memory,
                 const PlanAgain& again) {
  PlanFit fit;
  fit.device = memory.name;
  fit.memory = memory.bytes;
  fit.reserve = reserve_of(plan, memory);
  fit.needed = plan.most_bytes() + fit.reserve;
  fit.fits = fit.needed <= fit.memory;
  fit.largest = plan.parts();
  std::stable_sort(fit.largest.begin(), fit.largest.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  constexpr size_t kPartsNamed = 3;
  if (fit.largest.size() > kPartsNamed) fit.largest.resize(kPartsNamed);
  if (fit.fits) return fit;
  const int64_t world_size = plan.sizes.world_size();
  const Changes changes(plan, recipe);
  for (const Change& change : changes.all()) {
    const auto changed = again(change.overrides, change.world_size);
    if (!changed) continue;
    const int64_t needed = changed->most_bytes() + fit.reserve;
    if (needed >= fit.needed) continue;
    fit.changes.push_back(
        {text_of(change, world_size), needed, changed->host_bytes(), needed <= fit.memory});
  }
  return fit;
}

std::string fit_text(const PlanFit& fit) {
  std::string text = cat(fit.device, fit.fits ? ": fits, " : ": does not fit, ",
                         bytes_text(fit.needed), " of ", bytes_text(fit.memory), ", with ",
                         bytes_text(fit.reserve), " for the runtime and its libraries\n");
  if (fit.fits) return text;
  std::vector<std::string> largest;
  for (const PlanPart& part : fit.largest) {
    largest.push_back(cat(part.name, " ", bytes_text(part.bytes)));
  }
  text += cat("  largest: ", join(largest, ", "), "\n");
  if (fit.changes.empty()) return text + "  no change that is known makes it smaller\n";
  Rows rows = {{"with", "needs", "", ""}};
  for (const PlanChange& change : fit.changes) {
    rows.push_back({change.change, bytes_text(change.needed), change.fits ? "fits" : "too much",
                    change.host == 0 ? "" : cat("and ", bytes_text(change.host), " of the host")});
  }
  return text + columns(rows, Alignment::kLeft);
}

Json fit_json(const PlanFit& fit) {
  Json out = Json::object();
  out["device"] = fit.device;
  out["memory"] = fit.memory;
  out["reserve"] = fit.reserve;
  out["needed"] = fit.needed;
  out["fits"] = fit.fits;
  out["largest"] = Json::object();
  for (const PlanPart& part : fit.largest) out["largest"][part.name] = part.bytes;
  out["changes"] = json_list(fit.changes, [](const PlanChange& change) {
    return Json::Object{{"change", change.change},
                        {"needed", change.needed},
                        {"host", change.host},
                        {"fits", change.fits}};
  });
  return out;
}

}  // namespace automodel::recipes
