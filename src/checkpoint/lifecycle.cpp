#include "checkpoint/lifecycle.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "checkpoint/manifest.h"
#include "checkpoint/state_files.h"
#include "core/error.h"
#include "core/file.h"

namespace automodel::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "LATEST";
constexpr const char* kLowest = "LOWEST_VAL";

bool is_incomplete(const std::string& directory) {
  return path_exists(path_join(directory, kIncompleteMarker));
}

/// Upstream's checkpoints hold torch pickles whatever the format of the model.
bool is_pickled(const std::string& directory) {
  if (path_exists(path_join(directory, kManifestName))) return false;
  for (const char* name : {"step_scheduler.pt", "optim/.metadata", "model/.metadata"}) {
    if (path_exists(path_join(directory, name))) return true;
  }
  return false;
}

/// The names of pointers: "LATEST", "LOWEST_VAL", "BEST_2".
bool is_pointer_stem(std::string_view stem) {
  return !stem.empty() && std::all_of(stem.begin(), stem.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::optional<std::string> symlink_target(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return std::nullopt;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return std::nullopt;
  return target.string();
}

}  // namespace

std::optional<std::pair<std::string, double>> followed_loss(const NamedLosses& losses,
                                                            const std::string& best_metric_key) {
  if (losses.size() == 1) return losses.front();
  for (const auto& loss : losses) {
    if (loss.first == best_metric_key) return loss;
  }
  return std::nullopt;
}

std::string CheckpointName::text() const {
  return cat("epoch_", epoch, "_step_", step);
}

std::optional<CheckpointName> CheckpointName::parse(std::string_view text) {
  constexpr std::string_view kEpoch = "epoch_";
  constexpr std::string_view kStep = "_step_";
  const size_t middle = text.find(kStep);
  if (!text.starts_with(kEpoch) || middle == std::string_view::npos) return std::nullopt;
  const auto epoch = parse_int(text.substr(kEpoch.size(), middle - kEpoch.size()));
  const auto step = parse_int(text.substr(middle + kStep.size()));
  if (!epoch || !step || *epoch < 0 || *step < 0) return std::nullopt;
  const CheckpointName name{*epoch, *step};
  if (name.text() != text) return std::nullopt;  // "+1", "007"
  return name;
}

namespace {

/// Faults of a checkpoint that can be found without reading its bytes.
std::optional<std::string> find_plain_fault(const std::string& checkpoint) {
  if (is_incomplete(checkpoint)) {
    return cat("its save was interrupted (", kIncompleteMarker, " is there)");
  }
  if (is_pickled(checkpoint)) {
    throw InputError(
        cat(checkpoint,
            ": written by NeMo AutoModel as torch pickles, which are never loaded because they can "
            "run code; choose another checkpoint.checkpoint_dir or checkpoint.restore_from (its "
            "model/consolidated folder, when there, can be a model to begin from)"));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_fault(const std::string& checkpoint) {
  const auto fault = find_plain_fault(checkpoint);
  return fault ? fault : find_damage(checkpoint);
}

std::optional<std::string> Lifecycle::find_fault(const std::string& checkpoint) const {
  const auto fault = find_plain_fault(checkpoint);
  if (fault) return fault;
  return options_.find_damage ? options_.find_damage(checkpoint) : find_damage(checkpoint);
}

Lifecycle::Lifecycle(LifecycleOptions options, Reporter& reporter)
    : options_(std::move(options)), reporter_(reporter) {}

std::string Lifecycle::path(const CheckpointName& name) const {
  return path_join(options_.root, name.text());
}

std::optional<std::string> Lifecycle::fault_for_reserve(const std::string& name) const {
  if (options_.passed_over.contains(name)) return "it was when the run began";
  return find_fault(path_join(options_.root, name));
}

std::string Lifecycle::reserve(const CheckpointName& name) {
  const std::string directory = path(name);
  if (!options_.is_coordinator) return directory;
  if (!is_directory(options_.root)) {
    create_directories(options_.root);
    sync_directory(parent_path(fs::absolute(options_.root).lexically_normal().string()));
  }
  remove_leftovers();
  if (path_exists(directory)) {
    if (is_incomplete(directory)) {
      remove_checkpoint(name.text());
    } else if (const auto fault = fault_for_reserve(name.text())) {
      const std::string aside = cat(directory, ".damaged-", unique_suffix());
      rename_path(directory, aside);
      reporter_.warning(
          cat("checkpoint ", directory, " is damaged (", *fault, ") and now lies in ", aside));
    } else {
      throw InputError(cat("checkpoint ", directory,
                           " exists already and is never overwritten; choose another "
                           "checkpoint.checkpoint_dir, or move it away"));
    }
  }
  const std::string reserving = cat(directory, ".reserving-", unique_suffix());
  create_directories(reserving);
  write_file_atomic(path_join(reserving, kIncompleteMarker), "");
  for (const char* part : {"model", "optim", "rng", "dataloader"}) {
    create_directories(path_join(reserving, part));
  }
  sync_directory(reserving);
  rename_path(reserving, directory);
  sync_directory(options_.root);
  return directory;
}

void Lifecycle::publish(const CheckpointName& name, const std::optional<double>& train_loss,
                        const NamedLosses& validation_losses, std::span<const FileRecord> known) {
  if (!options_.is_coordinator) return;
  const std::string directory = path(name);
  if (!is_incomplete(directory)) {
    throw InputError(cat(directory,
                         " was moved, emptied or replaced while a save wrote to it: its ",
                         kIncompleteMarker, " is gone"));
  }
  write_losses(directory, train_loss, validation_losses);
  write_manifest(directory, known);
  // LATEST first: killed in between, it points at an incomplete directory, which is passed over
  // now and replaced by the next save; the other way round that save would find it published.
  move_pointer(kLatest, name.text());
  remove_tree(path_join(directory, kIncompleteMarker));
  sync_directory(directory);
  update_lowest(name.text(), validation_losses);
  prune();
}

void Lifecycle::abandon(const CheckpointName& name) {
  if (options_.is_coordinator && is_incomplete(path(name))) remove_checkpoint(name.text());
}

void Lifecycle::write_losses(const std::string& directory, const std::optional<double>& train_loss,
                             const NamedLosses& validation_losses) {
  Json losses = Json::object();
  if (train_loss) losses["train_loss"] = Json(*train_loss);
  for (const auto& [name, value] : validation_losses) {
    losses[validation_losses.size() == 1 ? "val_loss" : name] = Json(value);
  }
  write_state(losses_path(directory), losses);
}

void Lifecycle::update_lowest(const std::string& name, const NamedLosses& validation_losses) {
  const auto loss = followed_loss(validation_losses, options_.best_metric_key);
  if (!loss) return;
  if (!std::isfinite(loss->second)) {
    reporter_.warning(cat("validation loss '", loss->first, "' is ", loss->second,
                          "; LOWEST_VAL stays where it is"));
    return;
  }
  if (!lowest_) {
    const std::optional<std::string> target = pointer_target(kLowest);
    try {
      if (target) lowest_ = saved_loss(*target, loss->first);
    } catch (const UserError& error) {
      reporter_.warning(cat("LOWEST_VAL's losses are not known: ", error.what()));
    }
  }
  if (lowest_ && loss->second >= *lowest_) return;
  move_pointer(kLowest, name);
  lowest_ = loss->second;
}

void Lifecycle::mend_lowest() {
  const auto loss_of = [&](const std::string& name) {
    try {
      return saved_loss(name, options_.best_metric_key).value_or(std::nan(""));
    } catch (const UserError& error) {
      if (!find_fault(path_join(options_.root, name))) {  // a damaged one is told of when chosen
        reporter_.warning(cat("the validation loss of ", name, " is not known: ", error.what()));
      }
      return std::nan("");
    }
  };
  const std::vector<std::string> complete = complete_checkpoints();
  const std::optional<std::string> target = pointer_target(kLowest);
  const bool has_target = target && std::ranges::find(complete, *target) != complete.end();
  // Not comparable with one whose loss is not known.
  const double bound = has_target ? loss_of(*target) : std::numeric_limits<double>::infinity();
  std::vector<std::pair<double, std::string>> lower;
  for (const std::string& name : complete) {
    if (const double loss = loss_of(name); loss < bound) lower.emplace_back(loss, name);
  }
  std::ranges::stable_sort(lower, {}, [](const auto& one) { return one.first; });
  for (const auto& [loss, name] : lower) {
    if (find_fault(path_join(options_.root, name))) continue;
    move_pointer(kLowest, name);
    reporter_.info(cat("LOWEST_VAL is ", name, " now: its validation loss of ", loss,
                       " is the lowest in ", options_.root));
    return;
  }
}

std::optional<double> Lifecycle::saved_loss(const std::string& checkpoint,
                                            const std::string& key) const {
  const std::string path = losses_path(path_join(options_.root, checkpoint));
  if (!path_exists(path)) return std::nullopt;
  const Json losses = read_state(path);
  for (const std::string& name : {key, std::string("val_loss"), std::string("default")}) {
    const Json* value = losses.find(name);
    if (value != nullptr && value->is_number()) return value->as_double();
  }
  return std::nullopt;
}

void Lifecycle::move_pointer(std::string_view pointer, const std::string& target) {
  const std::string link = path_join(options_.root, pointer);
  const std::string text_file = cat(link, ".txt");
  const std::string temporary =
      path_join(options_.root, cat(".", pointer, kTemporaryEnding, unique_suffix()));
  std::error_code error;
  fs::create_directory_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (!error) {
    remove_tree(text_file);
  } else {
    // The file system has no symbolic links.
    std::error_code ignored;
    fs::remove(temporary, ignored);
    write_file_atomic(text_file, target);
    if (fs::is_symlink(link, ignored)) fs::remove(link, ignored);
  }
  sync_directory(options_.root);
}

std::optional<std::string> Lifecycle::pointer_target(std::string_view pointer) const {
  const std::string link = path_join(options_.root, pointer);
  if (const auto target = symlink_target(link)) return target;
  const std::string text_file = cat(link, ".txt");
  if (!is_pointer_stem(pointer) || !path_exists(text_file)) return std::nullopt;
  return std::string(trim(read_file(text_file)));
}

void Lifecycle::remove_checkpoint(const std::string& name) {
  // Renamed first: a half-removed directory must not look like a checkpoint.
  const std::string directory = path_join(options_.root, name);
  const std::string removing = cat(directory, ".removing-", unique_suffix());
  rename_path(directory, removing);
  sync_directory(options_.root);
  remove_tree(removing);
}

void Lifecycle::remove_leftovers() {
  for (const std::string& name : list_directory(options_.root)) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) continue;
    const std::string_view suffix = std::string_view(name).substr(dot);
    const bool is_directory_leftover =
        CheckpointName::parse(std::string_view(name).substr(0, dot)) &&
        (suffix.starts_with(".reserving-") || suffix.starts_with(".removing-"));
    const auto is_leftover_of = [&](const char* pointer) {
      return name.starts_with(cat(".", pointer, kTemporaryEnding)) ||
             name.starts_with(cat(pointer, ".txt", kTemporaryEnding));
    };
    const bool is_pointer_leftover = is_leftover_of(kLatest) || is_leftover_of(kLowest);
    if (is_directory_leftover || is_pointer_leftover) {
      remove_tree(path_join(options_.root, name));
    }
  }
}

std::vector<std::string> Lifecycle::complete_checkpoints() const {
  std::vector<CheckpointName> found;
  if (!is_directory(options_.root)) return {};
  for (const std::string& entry : list_directory(options_.root)) {
    const auto name = CheckpointName::parse(entry);
    const std::string directory = path_join(options_.root, entry);
    if (name && is_directory(directory) && !is_incomplete(directory)) found.push_back(*name);
  }
  std::sort(found.begin(), found.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return a.step != b.step ? a.step < b.step : a.epoch < b.epoch;
  });
  std::vector<std::string> names;
  for (const CheckpointName& name : found) names.push_back(name.text());
  return names;
}

void Lifecycle::prune() {
  if (!options_.max_recent_checkpoints) return;
  std::set<std::string> kept;
  for (const std::string& entry : list_directory(options_.root)) {
    const std::string path = path_join(options_.root, entry);
    if (const auto target = symlink_target(path)) {
      kept.insert(file_name(*target));
    } else if (entry.ends_with(".txt") && is_pointer_stem(entry.substr(0, entry.size() - 4))) {
      kept.insert(file_name(trim(read_file(path))));
    }
  }
  const std::vector<std::string> complete = complete_checkpoints();
  const auto count = static_cast<int64_t>(complete.size());
  for (int64_t i = std::max<int64_t>(0, count - *options_.max_recent_checkpoints); i < count; ++i) {
    kept.insert(complete[static_cast<size_t>(i)]);
  }
  for (const std::string& entry : list_directory(options_.root)) {
    const bool is_checkpoint = CheckpointName::parse(entry) &&
                               !symlink_target(path_join(options_.root, entry)) &&
                               is_directory(path_join(options_.root, entry));
    if (is_checkpoint && !kept.contains(entry)) remove_checkpoint(entry);
  }
}

std::string Lifecycle::available(const std::string& unusable) const {
  std::vector<std::string> names = complete_checkpoints();
  std::erase_if(names, [&](const std::string& name) {
    std::error_code error;
    return fs::equivalent(path_join(options_.root, name), unusable, error);
  });
  if (names.empty()) return cat("there are none in ", options_.root);
  return cat("in ", options_.root, " there are: ", join(names, ", "));
}

std::vector<std::string> Lifecycle::candidates() const {
  std::vector<CheckpointName> found;
  for (const std::string& entry : list_directory(options_.root)) {
    const auto name = CheckpointName::parse(entry);
    if (name && is_directory(path_join(options_.root, entry))) found.push_back(*name);
  }
  std::sort(found.begin(), found.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return a.step != b.step ? a.step > b.step : a.epoch > b.epoch;
  });
  std::vector<std::string> names;
  const std::optional<std::string> latest = pointer_target(kLatest);
  if (latest) {
    // An interrupted save that LATEST does not point to yet is named in the warning, too.
    for (const CheckpointName& name : found) {
      if (name.text() == *latest) break;
      if (is_incomplete(path(name))) names.push_back(name.text());
    }
    names.push_back(*latest);
  }
  for (const CheckpointName& name : found) {
    if (std::find(names.begin(), names.end(), name.text()) == names.end()) {
      names.push_back(name.text());
    }
  }
  return names;
}

std::optional<std::string> Lifecycle::choose_newest(const ModelSignature* signature) {
  if (!is_directory(options_.root)) return std::nullopt;
  for (const std::string& candidate : candidates()) {
    const std::string directory = path_join(options_.root, candidate);
    const auto fault = is_directory(directory) ? find_fault(directory)
                                               : std::optional<std::string>("it is not there");
    if (fault) {
      reporter_.warning(cat("checkpoint ", directory, " is passed over: ", *fault));
      options_.passed_over.insert(candidate);
      continue;
    }
    if (signature == nullptr || !path_exists(signature_path(directory))) return directory;
    const std::vector<std::string> differences = signature_differences(
        ModelSignature::from_json(read_state(signature_path(directory))), *signature);
    if (differences.empty()) return directory;
    // Checkpoints are never overwritten, so a fresh run's first save would fail.
    throw InputError(
        cat("checkpoint ", directory, " is of another model: ", join(differences, "; "),
            ". Choose another checkpoint.checkpoint_dir, or continue from a checkpoint "
            "by its name with checkpoint.restore_from"));
  }
  return std::nullopt;
}

std::string Lifecycle::resolve_explicit(const std::string& restore_from) const {
  const bool is_path = restore_from.find('/') != std::string::npos;
  std::string path = restore_from;
  if (!is_path) {
    path = path_join(options_.root, pointer_target(restore_from).value_or(restore_from));
  } else if (!path_exists(path) && path_exists(cat(path, ".txt"))) {
    path = path_join(parent_path(path), trim(read_file(cat(path, ".txt"))));
  }
  if (!is_directory(path)) {
    throw InputError(cat("checkpoint.restore_from: no checkpoint ", path, "; ", available()));
  }
  return path;
}

/// Throws InputError where checkpoints of later steps lie beside the one that is continued: the run
/// would come to their names, which are never overwritten, after it has cut the records.
void Lifecycle::check_is_newest(const std::string& path, const std::string& what) const {
  const auto own = CheckpointName::parse(file_name(path));
  std::error_code error;
  if (!own || !fs::equivalent(path, this->path(*own), error)) return;
  for (const std::string& candidate : candidates()) {
    const auto name = CheckpointName::parse(candidate);
    if (!name || name->step <= own->step || options_.passed_over.contains(candidate)) continue;
    if (find_fault(this->path(*name))) continue;
    throw InputError(cat(what, " ", path, " is older than ", candidate,
                         " beside it, which is never overwritten; choose another "
                         "checkpoint.checkpoint_dir and give restore_from the path, or move the "
                         "later checkpoints away"));
  }
}

std::optional<std::string> Lifecycle::choose(const std::optional<std::string>& restore_from,
                                             const ModelSignature& signature) {
  if (options_.tidies && is_directory(options_.root)) {
    remove_leftovers();
    mend_lowest();
  }
  if (!restore_from) {
    const std::optional<std::string> newest = choose_newest(&signature);
    if (newest) check_is_newest(*newest, "checkpoint");
    return newest;
  }
  std::string path;
  if (to_lower(*restore_from) == to_lower(kLatest)) {
    const std::optional<std::string> newest = choose_newest(nullptr);
    if (!newest) {
      reporter_.warning(cat("checkpoint.restore_from is ", *restore_from,
                            ", but there is no good checkpoint in ", options_.root,
                            "; the run starts afresh"));
      return std::nullopt;
    }
    path = *newest;
  } else {
    path = resolve_explicit(*restore_from);
    if (const auto fault = find_fault(path)) {
      throw InputError(cat("checkpoint.restore_from: ", path, " cannot be continued from: ", *fault,
                           "; ", available(path)));
    }
  }
  check_is_newest(path, "checkpoint.restore_from:");
  if (path_exists(signature_path(path))) {
    const std::vector<std::string> differences = signature_differences(
        ModelSignature::from_json(read_state(signature_path(path))), signature);
    if (!differences.empty()) {
      reporter_.warning(
          cat("checkpoint ", path, " is of another model: ", join(differences, "; ")));
    }
  }
  return path;
}

}  // namespace automodel::checkpoint
