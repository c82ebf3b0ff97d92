#include "setup/doctor.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/file.h"
#include "launcher/environment.h"

namespace automodel::setup {

namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kProblem:
      return "problem";
  }
  AM_CHECK(false);
}

Diagnosis examine_hub_of_environment(const DoctorOptions& options) {
  constexpr double kHubSeconds = 5;
  try {
    hub::Settings settings = hub::Settings::from_environment(hub::process_environment());
    if (options.is_offline) {
      return {.part = "hub", .fact = cat(settings.endpoint, ", not asked (--offline)")};
    }
    return examine_hub(settings, kHubSeconds);
  } catch (const UserError& error) {
    return {.part = "hub",
            .verdict = Verdict::kProblem,
            .fact = error.what(),
            .advice = "nothing can be fetched until this is put right"};
  }
}

}  // namespace

std::vector<Diagnosis> examine(const DoctorOptions& options) {
  const hub::Environment environment = hub::process_environment();
  const SystemFolders folders;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  std::vector<Diagnosis> found;
  found.push_back(examine_cpu(environment("AUTOMODEL_CPU")));
  found.push_back(examine_cores(folders));
  found.push_back(examine_memory(folders));
  found.push_back(examine_huge_pages(folders));
  found.push_back(examine_shared_memory("/dev/shm"));
  found.push_back(examine_open_files(files.rlim_cur, files.rlim_max));
  found.push_back(examine_disk("disk of this folder", std::filesystem::current_path()));
  found.push_back(
      examine_disk("disk of the hub's cache", hub::cache_folder(environment, std::nullopt)));
  found.push_back(examine_network(environment("GLOO_SOCKET_IFNAME")));
  found.push_back(examine_hub_of_environment(options));
  found.push_back(examine_devices(folders));  // last: CUDA stays loaded
  return found;
}

std::string diagnoses_text(const std::vector<Diagnosis>& diagnoses) {
  size_t width = 0;
  for (const Diagnosis& one : diagnoses) width = std::max(width, one.part.size());
  std::string text;
  for (const Diagnosis& one : diagnoses) {
    const std::string verdict = name_of(one.verdict);
    text += cat(verdict, std::string(9 - verdict.size(), ' '), one.part,
                std::string(width - one.part.size() + 2, ' '), one.fact, "\n");
    if (!one.advice.empty()) text += cat(std::string(width + 11, ' '), one.advice, "\n");
  }
  return text;
}

Json diagnoses_json(const std::vector<Diagnosis>& diagnoses) {
  Json list = Json::array();
  for (const Diagnosis& one : diagnoses) {
    Json entry = Json::object();
    entry["part"] = one.part;
    entry["verdict"] = name_of(one.verdict);
    entry["fact"] = one.fact;
    entry["advice"] = one.advice;
    entry["forbids_training"] = one.forbids_training;
    list.push_back(std::move(entry));
  }
  return list;
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<Diagnosis> found = examine(options);
  if (options.is_json) {
    std::cout << diagnoses_json(found).dump(2) << "\n";
  } else {
    std::cout << diagnoses_text(found);
  }
  const bool is_fatal = std::any_of(found.begin(), found.end(),
                                    [](const Diagnosis& one) { return one.forbids_training; });
  if (!options.is_json) {
    std::cout << (is_fatal ? "nothing can be trained here until the problems are solved\n"
                           : "this machine can train\n");
  }
  return static_cast<int>(is_fatal ? ExitCode::kRankFailed : ExitCode::kDone);
}

}  // namespace automodel::setup
