#include "recipes/run/run_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "config/origins.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "launcher/control_group.h"
#include "launcher/local_ranks.h"
#include "loggers/run_events.h"

namespace automodel::recipes {

namespace {

constexpr int kFormat = 1;            // of run.json
constexpr int64_t kMostRecords = 30;  // of earlier runs, beside the first one

/// The processor's name, as Linux says it; "" where it says none.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos) {
      return std::string(trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

/// Memory that this process may use: the machine's, or less where its control group has a limit.
int64_t usable_memory() {
  const int64_t all = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  const auto limit = launcher::memory_limit({});
  return limit ? std::min(all, static_cast<int64_t>(*limit)) : all;
}

Json machine_of_this_process() {
  utsname system{};
  ::uname(&system);
  Json machine = Json::object();
  machine["host"] = system.nodename;
  machine["system"] = cat(system.sysname, " ", system.release, " ", system.machine);
  machine["cpu"] = cpu_name();
  machine["cores"] = launcher::num_usable_cores();
  machine["memory_bytes"] = usable_memory();
  return machine;
}

/// The CUDA devices that this process may use.
Json devices_of(const tensor::CudaRuntime& cuda) {
  Json devices = Json::array();
  for (int device = 0; device < cuda.device_count(); ++device) {
    Json facts = Json::object();
    facts["name"] = cuda.device_name(device);
    facts["memory_bytes"] = cuda.total_bytes(device);
    devices.push_back(std::move(facts));
  }
  return devices;
}

/// The number N of run.N.json; nullopt of other names.
std::optional<int64_t> number_of_record(std::string_view name) {
  constexpr std::string_view kBegin = "run.", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  if (name.size() <= kBegin.size() + kEnd.size()) return std::nullopt;
  return parse_int(name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()));
}

Json texts(const std::vector<std::string>& all) {
  Json list = Json::array();
  for (const std::string& text : all) list.push_back(text);
  return list;
}

Json mesh_sizes(const distributed::DeviceMesh& mesh) {
  Json sizes = Json::object();
  for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"}) {
    if (mesh.has(axis)) sizes[axis] = mesh.size(axis);
  }
  return sizes;
}

Json model_facts(const SessionModel& model) {
  const models::ModelDims dims = model.model().dims();
  Json facts = Json::object();
  facts["architecture"] = model.model().architecture();
  facts["num_layers"] = dims.num_layers;
  facts["hidden_size"] = dims.hidden_size;
  facts["vocab_size"] = dims.vocab_size;
  facts["num_parameters"] = model.engine().num_parameters();
  facts["num_trained_parameters"] = model.engine().num_trained_parameters();
  return facts;
}

Json data_facts(const RecordedParts& parts) {
  Json facts = Json::object();
  if (const auto size = parts.training.size()) facts["batches_per_epoch_of_a_rank"] = *size;
  facts["global_batch_size"] = parts.recipe.step_scheduler.global_batch_size;
  facts["local_batch_size"] = parts.recipe.step_scheduler.local_batch_size;
  facts["is_packed"] = parts.recipe.packing.has_value();
  facts["prepared"] = parts.training.facts();
  Json validation = Json::object();
  for (const ValidationSet& set : parts.validation.sets()) {
    if (const auto size = set.stream->size()) validation[set.name] = *size;
  }
  facts["validation_batches_of_a_rank"] = std::move(validation);
  return facts;
}

}  // namespace

Json begin_run_record(const RunOptions& options, const config::Document& document,
                      const config::Diagnostics& diagnostics) {
  Json record = Json::object();
  record["format"] = kFormat;
  record["id"] = unique_suffix();
  record["version"] = options.version;
  record["started"] = utc_timestamp();
  record["command"] = texts(config::without_secrets(options.command));
  record["recipe"] = options.recipe_path;
  record["values"] = config::values_with_origins(document, diagnostics);
  record["machine"] = machine_of_this_process();
  return record;
}

void add_session(const RecordedParts& parts, const RunContext& context, Json& record) {
  record["num_ranks"] = context.group.size();
  record["device"] = context.device.is_cpu() ? "cpu" : context.device.str();
  record["mesh"] = mesh_sizes(parts.mesh);
  record["distributed"] = distributed::describe(parts.recipe.distributed);
  record["model"] = model_facts(parts.model);
  record["optimizer"] = parts.model.optimizer->describe();
  record["max_steps"] = parts.scheduler.max_steps();
  if (const auto length = parts.scheduler.epoch_length()) record["steps_per_epoch"] = *length;
  record["data"] = data_facts(parts);
  if (context.cuda != nullptr) record["machine"]["devices"] = devices_of(*context.cuda);
}

Json facts_of_start(const Json& record) {
  Json facts = Json::object();
  for (const char* key : {"id", "version", "command"}) facts[key] = record.at(key);
  return facts;
}

Json changed_values(const Json& earlier, const Json& record) {
  const Json none = Json::object();
  const Json* const before = earlier.find("values");
  const Json& from = before != nullptr && before->is_object() ? *before : none;
  const Json& to = record.at("values");
  const auto value_of = [](const Json* entry) {
    const Json* const value = entry == nullptr ? nullptr : entry->find("value");
    return value == nullptr ? Json() : *value;
  };
  // A version may have keys that another one has not, and another class has other ones.
  const auto is_left_out = [](const Json* entry) {
    return entry == nullptr || entry->get("origin", "") == "default";
  };
  Json changed = Json::array();
  const auto compare = [&](const std::string& key) {
    const Json *const entry_then = from.find(key), *const entry_now = to.find(key);
    const bool is_absent = entry_then == nullptr || entry_now == nullptr;
    if (is_absent && is_left_out(entry_then) && is_left_out(entry_now)) return;
    Json old = value_of(entry_then), now = value_of(entry_now);
    if (old == now) return;
    changed.push_back(Json::Object{{"key", key}, {"from", std::move(old)}, {"to", std::move(now)}});
  };
  for (const auto& [key, entry] : to.as_object()) compare(key);
  for (const auto& [key, entry] : from.as_object()) {
    if (!to.contains(key)) compare(key);
  }
  return changed;
}

std::string text_of_changes(const Json& changed) {
  constexpr size_t kMostKeys = 12;
  const auto shown = [](const Json& value) {
    constexpr size_t kMostCharacters = 60;
    if (value.is_null()) return std::string("none");
    const bool is_plain = value.is_string() && value.as_string().find('\n') == std::string::npos;
    return shortened(is_plain ? value.as_string() : value.dump(), kMostCharacters);
  };
  std::vector<std::string> texts;
  for (const Json& change : changed.as_array()) {
    if (texts.size() == kMostKeys) {
      texts.push_back(cat("and ", changed.size() - kMostKeys, " more"));
      break;
    }
    const std::string from = shown(change.at("from")), to = shown(change.at("to"));
    const std::string& key = change.at("key").as_string();
    texts.push_back(from == to ? cat(key, " (another text)") : cat(key, " ", from, " -> ", to));
  }
  return texts.empty() ? "" : cat("changed since the last run here: ", join(texts, ", "));
}

std::optional<Json> keep_earlier_record(const std::string& folder, Reporter& reporter) {
  const std::string path = path_join(folder, loggers::kRunFile);
  if (!path_exists(path)) return std::nullopt;
  try {
    Json earlier = Json::parse_file(path);
    int64_t number = 0;
    for (const std::string& name : list_directory(folder)) {
      number = std::max(number, number_of_record(name).value_or(0));
    }
    rename_path(path, path_join(folder, cat("run.", number + 1, ".json")));
    for (const std::string& name : list_directory(folder)) {
      const int64_t its_number = number_of_record(name).value_or(1);
      const bool is_too_many = its_number > 1 && its_number <= number + 1 - kMostRecords;
      if (is_too_many) remove_tree(path_join(folder, name));
    }
    return earlier;
  } catch (const InputError& error) {
    reporter.warning(cat("the earlier run's description is not kept: ", error.what()));
    return std::nullopt;
  }
}

void set_earlier_records_aside(const std::string& folder, Reporter& reporter) {
  try {
    for (const std::string& name : list_directory(folder)) {
      if (!number_of_record(name)) continue;
      const std::string path = path_join(folder, name);
      rename_path(path, path + ".old");
    }
  } catch (const InputError& error) {
    reporter.warning(cat("earlier runs' descriptions are not set aside: ", error.what()));
  }
}

}  // namespace automodel::recipes
