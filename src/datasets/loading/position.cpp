#include "datasets/loading/position.h"

#include "core/error.h"

namespace automodel::datasets {

Json Position::to_json() const {
  Json state = Json::object();
  state["epoch"] = epoch;
  state["consumed"] = consumed;
  state["is_exhausted"] = is_exhausted;
  state["num_rows"] = num_rows;
  return state;
}

Position Position::from_json(const Json& state, int64_t num_rows, int num_replicas) {
  const Position position{.epoch = state.at("epoch").as_int(),
                          .consumed = state.at("consumed").as_int(),
                          .is_exhausted = state.at("is_exhausted").as_bool(),
                          .num_rows = state.at("num_rows").as_int()};
  if (position.num_rows != num_rows) {
    throw InputError(cat("the saved data position is one in a dataset of ", position.num_rows,
                         " samples; this dataset has ", num_rows,
                         ": a run continues with the split, seq_length, packing and "
                         "num_train_samples that it began with"));
  }
  if (position.consumed < 0 || position.epoch < 0) {
    throw InputError(cat("the saved data position is damaged: sample ", position.consumed,
                         " in epoch ", position.epoch));
  }
  if (!position.is_exhausted && position.consumed % num_replicas != 0) {
    throw InputError(cat("the saved data position, ", position.consumed, " samples into epoch ",
                         position.epoch, ", cannot be split evenly over ", num_replicas,
                         " data-parallel ranks; continue on a number of ranks that divides it"));
  }
  return position;
}

}  // namespace automodel::datasets
