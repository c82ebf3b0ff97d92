#include "recipes/check/check_distillation.h"

#include <tuple>

#include "core/error.h"
#include "core/file.h"
#include "recipes/check/place_of.h"
#include "recipes/read/read_model.h"
#include "tokenizers/tokenizer.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Where the recipe names its teacher.
const Node& place_of_teacher(const Recipe& recipe) {
  const ModelPlan& teacher = recipe.distillation->teacher;
  if (teacher.source_node.position().is_known()) return teacher.source_node;
  return place_of(recipe, "teacher_model", "config");
}

/// Axes of the mesh along which a student and its teacher are not computed side by side.
void refuse_axes(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto& sizes = recipe.distributed.sizes;
  const std::tuple<const char*, std::optional<int64_t>> axes[] = {
      {"tp_size", sizes.tp_size}, {"pp_size", sizes.pp_size}, {"ep_size", sizes.ep_size}};
  for (const auto& [key, size] : axes) {
    if (size.value_or(1) == 1) continue;
    diagnostics.unsupported(place_of(recipe, "distributed", key),
                            cat("distillation with ", key,
                                " above 1 is not in this version; strategy: fsdp2 shards student "
                                "and teacher over all ranks, cp_size splits long sequences"));
  }
}

bool has_tokenizer(const ModelPlan& model) {
  return !model.folder.empty() && path_exists(path_join(model.folder, "tokenizer.json"));
}

std::string name_of(const std::optional<tokenizers::SpecialToken>& token) {
  return token ? cat("'", token->text, "'") : "none";
}

/// Both models must mean the same by an id. Folders without a tokenizer have nothing to compare.
void compare_tokenizers(const Recipe& recipe, Diagnostics& diagnostics) {
  const ModelPlan& teacher = recipe.distillation->teacher;
  if (!has_tokenizer(recipe.model) || !has_tokenizer(teacher)) return;
  if (recipe.model.folder == teacher.folder) return;
  try {
    const auto of_student = tokenizers::Tokenizer::load(recipe.model.folder);
    const auto of_teacher = tokenizers::Tokenizer::load(teacher.folder);
    if (of_student.vocab_size() != of_teacher.vocab_size()) {
      diagnostics.error(
          place_of_teacher(recipe),
          cat("the teacher's tokenizer has ", of_teacher.vocab_size(), " tokens, the student's ",
              of_student.vocab_size(), ": a student learns from a model with its own tokenizer"));
    }
    const auto text_of = [](const auto& token) { return token ? token->text : std::string(); };
    if (text_of(of_student.pad()) != text_of(of_teacher.pad())) {
      diagnostics.error(
          place_of_teacher(recipe),
          cat("the pad token of the teacher's tokenizer is ", name_of(of_teacher.pad()),
              ", that of the student's ", name_of(of_student.pad())));
    }
  } catch (const UserError& error) {
    diagnostics.error(place_of_teacher(recipe), error.what());
  }
}

}  // namespace

void check_distillation(const Recipe& recipe, bool looks_at_tokenizers, Diagnostics& diagnostics) {
  refuse_axes(recipe, diagnostics);
  const int64_t of_student = vocabulary_of(recipe.model);
  const int64_t of_teacher = vocabulary_of(recipe.distillation->teacher);
  if (of_student != 0 && of_teacher != 0 && of_student != of_teacher) {
    diagnostics.error(place_of_teacher(recipe),
                      cat("the teacher's vocab_size is ", of_teacher, ", the student's ",
                          of_student, ": a student learns from a model with its own vocabulary"));
    return;
  }
  if (looks_at_tokenizers) compare_tokenizers(recipe, diagnostics);
}

}  // namespace automodel::recipes
