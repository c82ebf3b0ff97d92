#include "recipes/run/run_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "config/origins.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"
#include "launcher/local_ranks.h"

namespace automodel::recipes {

namespace {

constexpr int kFormat = 1;  // of run.json

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

Json machine_of_this_process() {
  utsname system{};
  ::uname(&system);
  Json machine = Json::object();
  machine["host"] = system.nodename;
  machine["system"] = cat(system.sysname, " ", system.release, " ", system.machine);
  machine["cpu"] = cpu_name();
  machine["cores"] = launcher::num_usable_cores();
  machine["memory_bytes"] =
      static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  return machine;
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

void add_session(const RecordedParts& parts, Json& record) {
  record["num_ranks"] = parts.world_size;
  record["device"] = parts.device;
  record["mesh"] = mesh_sizes(parts.mesh);
  record["distributed"] = distributed::describe(parts.recipe.distributed);
  record["model"] = model_facts(parts.model);
  record["optimizer"] = parts.model.optimizer->describe();
  record["max_steps"] = parts.scheduler.max_steps();
  if (const auto length = parts.scheduler.epoch_length()) record["steps_per_epoch"] = *length;
  record["data"] = data_facts(parts);
}

}  // namespace automodel::recipes
