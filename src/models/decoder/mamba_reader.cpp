#include "models/decoder/mamba_reader.h"

#include "core/text.h"

namespace automodel::models::decoder {

void read_step_limits(ConfigReader& reader, Mamba2Options& mamba) {
  const Json* limit = reader.find(either(reader, "time_step_limit", "mamba_dt_limit"));
  if (limit == nullptr) return;
  const bool is_pair = limit->is_array() && limit->size() == 2 &&
                       limit->as_array()[0].is_number() && limit->as_array()[1].is_number();
  if (!is_pair) {
    reader.problem("time_step_limit must be two numbers, e.g. [0.0, Infinity]");
    return;
  }
  mamba.min_step = limit->as_array()[0].as_double();
  mamba.max_step = limit->as_array()[1].as_double();
  if (mamba.min_step > mamba.max_step) {
    reader.problem(
        cat("time_step_limit begins with ", mamba.min_step, ", above its end ", mamba.max_step));
  }
}

void check_groups(ConfigReader& reader, Mamba2Options& mamba, std::string_view groups_key,
                  std::string_view heads_key) {
  if (mamba.num_heads % mamba.num_groups == 0) return;
  reader.problem(
      cat(groups_key, " ", mamba.num_groups, " does not divide ", heads_key, " ", mamba.num_heads));
  mamba.num_groups = 1;
}

}  // namespace automodel::models::decoder
