#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "core/field.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

/// `tensorboard`: event files that TensorBoard reads.
struct TensorBoardConfig {
  bool enable = true;
  std::optional<std::string> log_dir;
  std::optional<int64_t> histograms_every_steps;

  static constexpr auto fields() {
    using C = TensorBoardConfig;
    return std::tuple{field("enable", &C::enable, "write event files"),
                      field("log_dir", &C::log_dir,
                            "folder of the event files; absent: tensorboard in checkpoint_dir"),
                      field("histograms_every_steps", &C::histograms_every_steps,
                            "steps from one histogram of each layer's gradients to the next; "
                            "absent: none")
                          .at_least(1)};
  }
};

/// What event files begin with.
struct TensorBoardRun {
  std::string folder;
  int64_t first_step = 0;   ///< what the folder has of this step and later is void
  std::string recipe_text;  ///< YAML
};

/// Writes a run's records to a new event file in the run's folder: scalars `train/loss` and so on
/// of training records, `val/loss` of the validation set "default", `val_NAME/loss` of others.
/// Names that hold a slash stay as they are, and so do tags of histograms. Values are floats, as
/// TensorBoard's own writers have them. Creates the file, with the recipe's text, at once: throws
/// InputError "cannot write PATH: reason".
std::unique_ptr<Tracker> make_tensorboard(const TensorBoardRun& run);

/// The tag of a value.
std::string tensorboard_tag(const Record& record, const std::string& name);

}  // namespace automodel::trackers
