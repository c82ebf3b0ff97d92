#include "recipes/read/read_distillation.h"

#include "config/bind.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/read_model.h"
#include "recipes/read/targets_simple.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// A key of the recipe that is there and not null.
const Node* present(const Node& root, std::string_view key) {
  const Node* node = root.find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

DistillationKeys read_keys(const Node& root, Diagnostics& diagnostics) {
  Node own = root;
  for (const Node& child : root.children()) {
    bool is_field = false;
    for_each_field<DistillationKeys>(
        [&](const auto& field) { is_field |= child.key() == field.name; });
    if (!is_field) own.erase(child.key());
  }
  return config::bind<DistillationKeys>(own, diagnostics);
}

KDLossConfig read_kd_loss(const Node& root, Diagnostics& diagnostics) {
  const Node* node = present(root, "kd_loss_fn");
  if (node == nullptr) {
    diagnostics.missing(root, "kd_loss_fn",
                        "missing key 'kd_loss_fn': how far the student is from the teacher, "
                        "_target_: nemo_automodel.components.loss.kd_loss.KDLoss");
    return {};
  }
  const auto target = config::split_target(*node, diagnostics);
  if (!target || !kd_loss_targets().resolve(*target, diagnostics)) return {};
  return config::bind<KDLossConfig>(target->arguments, diagnostics);
}

/// Student and teacher side by side need to know how many ranks each has.
void require_dp_size(const Node& section, const distributed::DistributedSetup& setup,
                     const char* whose, Diagnostics& diagnostics) {
  if (setup.sizes.dp_size) return;
  diagnostics.missing(section, "dp_size",
                      cat("missing key 'dp_size': with separate_meshes it says how many replicas ",
                          whose, " has, since no rank is left over"));
}

/// The mesh of a teacher on ranks of its own.
void read_teacher_mesh(const Node& root, const Recipe& recipe, bool is_separate,
                       DistillationRecipe& plan, Diagnostics& diagnostics) {
  const Node* section = present(root, "teacher_distributed");
  if (section == nullptr) {
    if (is_separate) {
      diagnostics.missing(
          root, "teacher_distributed",
          "missing key 'teacher_distributed': the mesh of the teacher's ranks, "
          "e.g. {strategy: fsdp2, dp_size: 1}; without separate_meshes it is spread "
          "over the student's");
    }
    return;
  }
  plan.teacher_distributed = read_distributed(*section, diagnostics);
  if (!is_separate) {
    plan.teacher_distributed.reset();
    diagnostics.error_at_key(*section,
                             "teacher_distributed needs separate_meshes: true; else the teacher is "
                             "spread as `distributed` says");
    return;
  }
  if (!section->is_mapping()) return;
  require_dp_size(*section, *plan.teacher_distributed, "the teacher", diagnostics);
  const Node* own = present(root, "distributed");
  require_dp_size(own != nullptr ? *own : root, recipe.distributed, "the student", diagnostics);
}

/// A pipeline's stages are cut by the model's own layers, not as the student's keys say.
void forget_stages(distributed::DistributedSetup& setup) {
  if (!setup.pipeline) return;
  setup.pipeline->module_fqns_per_model_part.reset();
  setup.pipeline->layers_per_stage.reset();
  setup.pipeline->round_virtual_stages_to_pp_multiple.reset();
}

/// Makes the section `from` the section `to`; its places stay.
void rename_section(Node& root, const char* from, const char* to) {
  const Node* source = root.find(from);
  Node* target = root.find(to);
  if (source == nullptr || target == nullptr) return;
  Node renamed = *source;
  renamed.set_key(to, renamed.key_position());
  *target = std::move(renamed);
}

int64_t ranks_of(const distributed::DistributedSetup& setup) {
  const auto& sizes = setup.sizes;
  return sizes.dp_size.value_or(1) * sizes.tp_size.value_or(1) * sizes.cp_size.value_or(1) *
         sizes.pp_size.value_or(1);
}

}  // namespace

const std::vector<std::string>& distillation_keys() {
  static const std::vector<std::string> kKeys = {"teacher_model",   "kd_ratio",
                                                 "kd_loss_fn",      "offload_teacher_model",
                                                 "separate_meshes", "teacher_distributed"};
  return kKeys;
}

void read_distillation(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.class_name != kDistillationRecipe) {
    for (const std::string& key : distillation_keys()) {
      const Node* node = present(root, key);
      if (node == nullptr) continue;
      diagnostics.unknown_key(*node, cat("'", key, "' is for recipe: ", kDistillationRecipe));
    }
    return;
  }
  DistillationRecipe& plan = recipe.distillation.emplace();
  const DistillationKeys keys = read_keys(root, diagnostics);
  plan.kd_ratio = keys.kd_ratio;
  plan.offloads_teacher = keys.offload_teacher_model;
  plan.loss = read_kd_loss(root, diagnostics);
  if (const Node* teacher = present(root, "teacher_model")) {
    plan.teacher = read_model(*teacher, diagnostics);
    if (plan.teacher.classifies) {
      diagnostics.error(*teacher->find("_target_"),
                        "a teacher gives probabilities of tokens, and this one classifies "
                        "sequences: nemo_automodel.NeMoAutoModelForCausalLM makes a teacher");
    }
  } else {
    diagnostics.missing(root, "teacher_model",
                        "missing key 'teacher_model': the model that is learned from");
  }
  read_teacher_mesh(root, recipe, keys.separate_meshes, plan, diagnostics);
}

Recipe teacher_recipe(const Recipe& recipe) {
  Recipe teacher;
  teacher.class_name = recipe.class_name;
  teacher.seed = recipe.seed;
  teacher.step_scheduler = recipe.step_scheduler;
  teacher.dist_env = recipe.dist_env;
  teacher.distributed = recipe.distributed;
  teacher.model = recipe.distillation->teacher;
  teacher.dataset.node = recipe.dataset.node;
  teacher.loss = recipe.loss;
  teacher.is_frozen = true;
  teacher.root = recipe.root;
  for (const char* trained : {"peft", "quantization", "embedding_row_repair", "checkpoint"}) {
    teacher.root.erase(trained);
  }
  if (Node* model = teacher.root.find("model")) {
    *model = teacher.model.node;
    model->set_key("model", model->key_position());
  }
  if (const auto& own = recipe.distillation->teacher_distributed) {
    teacher.distributed = *own;
    rename_section(teacher.root, "teacher_distributed", "distributed");
  } else {
    forget_stages(teacher.distributed);
  }
  return teacher;
}

RankShares rank_shares(const Recipe& recipe, int64_t world_size) {
  if (!recipe.distillation || !recipe.distillation->teacher_distributed) return {world_size, 0};
  return {ranks_of(recipe.distributed), ranks_of(*recipe.distillation->teacher_distributed)};
}

}  // namespace automodel::recipes
