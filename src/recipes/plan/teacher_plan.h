#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "mesh/mesh.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What a frozen teacher takes of a rank beside the student. Its activations are not in it.
struct TeacherPlan {
  std::string architecture;
  int64_t num_parameters = 0;
  at::ScalarType dtype = at::kFloat;
  int64_t parameters = 0;  ///< bytes on the rank's device, all the time
  int64_t gathered = 0;    ///< of whole parameters and copies for gathers, at the fullest moment
  int64_t host = 0;        ///< bytes of offloaded parameters
};

/// `recipe` distils, and the teacher's configuration is here.
TeacherPlan plan_teacher(const Recipe& recipe, const mesh::MeshSizes& sizes, at::Device device);

}  // namespace automodel::recipes
