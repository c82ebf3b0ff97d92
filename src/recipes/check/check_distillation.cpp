#include "recipes/check/check_distillation.h"

#include "core/error.h"
#include "core/file.h"
#include "models/catalog.h"
#include "recipes/build/tp_request.h"
#include "recipes/check/place_of.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/read_model.h"
#include "tokenizers/tokenizer.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Where the recipe names its teacher.
const Node& place_of_teacher(const Recipe& recipe) {
  const ModelRecipe& teacher = recipe.distillation->teacher;
  if (teacher.source_node.position().is_known()) return teacher.source_node;
  return place_of(recipe, "teacher_model", "config");
}

bool has_tokenizer(const ModelRecipe& model) {
  return !model.folder.empty() && path_exists(path_join(model.folder, "tokenizer.json"));
}

std::string name_of(const std::optional<tokenizers::SpecialToken>& token) {
  return token ? cat("'", token->text, "'") : "none";
}

/// Both models must mean the same by an id. Folders without a tokenizer have nothing to compare.
void compare_tokenizers(const Recipe& recipe, Diagnostics& diagnostics) {
  const ModelRecipe& teacher = recipe.distillation->teacher;
  if (has_tokenizer(recipe.model) && !teacher.folder.empty() && !has_tokenizer(teacher)) {
    diagnostics.warning(place_of_teacher(recipe),
                        "the teacher's folder has no tokenizer.json: nothing shows that its ids "
                        "mean what the student's mean");
  }
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

/// Both heads must have the same rows of the vocabulary on a rank.
void compare_head_splits(const Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.distillation->teacher_distributed) return;
  const std::optional<bool> of_student = splits_vocabulary(recipe);
  const std::optional<bool> of_teacher = splits_vocabulary(teacher_recipe(recipe));
  if (!of_student || !of_teacher || *of_student == *of_teacher) return;
  const Node* section = recipe.root.find("distributed");
  const bool has_plan = section != nullptr && section->find("tp_plan") != nullptr;
  diagnostics.error(
      place_of(recipe, "distributed", has_plan ? "tp_plan" : "tp_size"),
      cat("the plan splits the head of the ", *of_student ? "student" : "teacher",
          ", and not that of the ", *of_student ? "teacher" : "student",
          ": name lm_head (or, of a tied one, model.embed_tokens) of both or of neither, or give "
          "the teacher ranks of its own (separate_meshes)"));
}

}  // namespace

void check_separate_meshes(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const distributed::DistributedSetup& of_teacher = *recipe.distillation->teacher_distributed;
  const RankShares shares = rank_shares(recipe, world_size);
  if (shares.student + shares.teacher != world_size) {
    diagnostics.error(
        *recipe.root.find("separate_meshes"),
        cat("the student has ", shares.student, shares.student == 1 ? " rank" : " ranks",
            " (distributed) and the teacher ", shares.teacher, " (teacher_distributed), together ",
            shares.student + shares.teacher, ", not ", world_size));
  }
  const int64_t replicas = recipe.distributed.sizes.dp_size.value_or(1);
  const int64_t teachers = of_teacher.sizes.dp_size.value_or(1);
  if (teachers > 0 && replicas % teachers != 0) {
    diagnostics.error(place_of(recipe, "teacher_distributed", "dp_size"),
                      cat("the teacher's dp_size ", teachers, " does not divide the student's ",
                          replicas, ": every replica of the teacher has as many of the student's"));
  }
}

void check_distillation(const Recipe& recipe, bool looks_at_tokenizers, Diagnostics& diagnostics) {
  compare_head_splits(recipe, diagnostics);
  if (models::num_next_tokens(recipe.model.hf_config) > 0) {
    diagnostics.unsupported(place_of(recipe, "model", "num_nextn_predict_layers"),
                            "multi-token prediction is not in this version with distillation; "
                            "num_nextn_predict_layers: 0 leaves it out");
  }
  const int64_t of_student = vocabulary_of(recipe.model);
  const int64_t of_teacher = vocabulary_of(recipe.distillation->teacher);
  if (of_student != 0 && of_teacher != 0 && of_student != of_teacher) {
    diagnostics.error(place_of_teacher(recipe),
                      cat("the teacher's vocab_size is ", of_teacher, ", the student's ",
                          of_student, ": a student learns from a model with its own vocabulary"));
    return;
  }
  if (recipe.distillation->teacher.draws_weights()) {
    diagnostics.warning(place_of_teacher(recipe),
                        "the teacher's weights are drawn at random, so it has nothing to teach: "
                        "from_pretrained loads some");
  }
  if (looks_at_tokenizers) compare_tokenizers(recipe, diagnostics);
}

}  // namespace automodel::recipes
