#include "recipes/run/session_model.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/engine/matrix_exchange.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_model.h"
#include "recipes/build/tensor_roles.h"
#include "recipes/build/tp_request.h"

namespace automodel::recipes {

namespace {

std::unique_ptr<optim::Optimizer> build_optimizer(const Recipe& recipe, const SessionModel& built,
                                                  distributed::Engine& engine, at::Device device,
                                                  const optim::TensorRoles& roles) {
  std::vector<std::string> frozen;
  for (const auto& part : built.parts) {
    for (const auto& item : part->named_parameters()) {
      if (!item.value().requires_grad()) frozen.push_back(item.key());
    }
  }
  std::vector<std::string> trained_names;  // of all stages
  for (const tensor::ParameterPart& part : built.model().key_map()) {
    const bool is_frozen = std::find(frozen.begin(), frozen.end(), part.parameter) != frozen.end();
    if (!is_frozen) trained_names.push_back(part.name);
  }
  optim::check_overrides(recipe.optimizer.param_group_overrides, trained_names);
  if (engine.num_trained_parameters() == 0) {
    throw UserError("optimizer received no trainable parameters");
  }
  return recipe.optimizer.make(engine.trained(), engine.gradients(),
                               {roles, distributed::matrix_stepper_maker(engine.group(), device)});
}

void build_stages(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                  const EnginePlace& place, SessionModel& built) {
  const at::ScalarType dtype = storage_dtype(recipe.model);
  const auto whole = build_model(recipe, dtype);
  built.pipeline = pipeline_request(recipe, *whole);
  built.stages = build_pipeline(recipe, *built.pipeline, dtype, mesh, place);
  built.parts = built.stages->parts;
  if (recipe.is_frozen) return;
  // One optimizer of all stages together.
  built.optimizer =
      build_optimizer(recipe, built, built.engine(), place.device, optimizer_roles(recipe, *whole));
}

void build_whole(const Recipe& recipe, const distributed::DeviceMesh& mesh, EnginePlace place,
                 SessionModel& built) {
  built.parts = {build_model(recipe, storage_dtype(recipe.model))};
  const optim::TensorRoles roles =
      optimizer_roles(recipe, built.model());  // while parameters have their shapes
  if (!recipe.is_frozen) {
    place.optimizer = [&](distributed::Engine& engine) {
      if (place.times != nullptr) place.times->end("model");
      built.optimizer = build_optimizer(recipe, built, engine, place.device, roles);
      if (place.times != nullptr) place.times->end("optimizer");
    };
  }
  built.whole = build_engine(recipe, built.model(), mesh, place);
}

void require_configuration(const ModelRecipe& plan) {
  if (plan.hf_config.is_object()) return;
  throw InputError(cat("model '", plan.source,
                       "' is not on this machine: give a folder, or put "
                       "it into the Hugging Face cache",
                       plan.looked_for));
}

}  // namespace

distributed::DeviceMesh build_mesh(const Recipe& recipe, comm::World& world) {
  const int ep = static_cast<int>(recipe.distributed.sizes.ep_size.value_or(1));
  return {world, mesh::Mesh(mesh_of(recipe, world.group().size())), ep};
}

SessionModel build_session_model(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                 const EnginePlace& place) {
  require_configuration(recipe.model);
  SessionModel built;
  if (mesh.size("pp") > 1) {
    build_stages(recipe, mesh, place, built);
  } else {
    build_whole(recipe, mesh, place, built);
  }
  for (const auto& part : built.parts) part->train(!recipe.is_frozen);
  return built;
}

}  // namespace automodel::recipes
