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

/// The teacher's place: ranks of its own and host memory are refused.
void refuse_other_places(const Node& root, const DistillationKeys& keys, Diagnostics& diagnostics) {
  if (keys.separate_meshes) {
    diagnostics.unsupported(*root.find("separate_meshes"),
                            "a teacher on ranks of its own is not in this version; without "
                            "separate_meshes and teacher_distributed it is spread over the "
                            "student's ranks, as `distributed` says");
  }
  if (keys.offload_teacher_model) {
    diagnostics.unsupported(*root.find("offload_teacher_model"),
                            "moving the teacher to the host between its forwards is not in this "
                            "version; strategy: fsdp2 shards it, over more ranks it takes less");
  }
  const Node* distributed = present(root, "teacher_distributed");
  if (distributed == nullptr) return;
  read_distributed(*distributed, diagnostics);
  if (!keys.separate_meshes) {
    diagnostics.error_at_key(*distributed,
                             "teacher_distributed needs separate_meshes: true; else the teacher is "
                             "spread as `distributed` says");
  }
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
  DistillationPlan& plan = recipe.distillation.emplace();
  const DistillationKeys keys = read_keys(root, diagnostics);
  plan.kd_ratio = keys.kd_ratio;
  plan.loss = read_kd_loss(root, diagnostics);
  if (const Node* teacher = present(root, "teacher_model")) {
    plan.teacher = read_model(*teacher, diagnostics);
  } else {
    diagnostics.missing(root, "teacher_model",
                        "missing key 'teacher_model': the model that is learned from");
  }
  refuse_other_places(root, keys, diagnostics);
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
  teacher.root = recipe.root;
  for (const char* trained : {"peft", "quantization", "embedding_row_repair", "checkpoint"}) {
    teacher.root.erase(trained);
  }
  if (Node* model = teacher.root.find("model")) {
    *model = teacher.model.node;
    model->set_key("model", model->key_position());
  }
  return teacher;
}

}  // namespace automodel::recipes
