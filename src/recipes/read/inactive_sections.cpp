#include "recipes/read/inactive_sections.h"

#include <algorithm>
#include <string_view>

#include "config/bind.h"
#include "recipes/read/benchmark_section.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_simple.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using Check = void (*)(const Node& section, Diagnostics& diagnostics);

template <typename T>
void check(const Node& section, Diagnostics& diagnostics) {
  config::bind<T>(section, diagnostics);
}

/// Checks the keys of a section that is of a class of upstream's, and its `_target_`.
template <typename T>
void check_of_class(const Node& section, Diagnostics& diagnostics) {
  config::bind<T>(section, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  check_section_target(section, diagnostics);
}

void check_compile(const Node& section, Diagnostics& diagnostics) {
  const auto compile = config::bind<CompileSection>(section, diagnostics);
  if (compile.options && compile.mode) {
    diagnostics.clash(*section.find("mode"), *section.find("options"),
                      "torch.compile takes a mode or options, not both", "the options are here");
  }
}

void check_boolean(const Node& section, Diagnostics& diagnostics) {
  config::read_value<bool>(section, diagnostics);
}

void check_tokenizer(const Node& section, Diagnostics& diagnostics) {
  if (!config::has_target(section)) return;
  const auto target = config::split_target(section, diagnostics);
  if (target) tokenizer_targets().resolve(*target, diagnostics);
}

/// `switch_key`: while this key of the section (or the section itself) is false, the section asks
/// for nothing.
struct Inactive {
  const char* key;
  bool is_refused;
  const char* switch_key;
  const char* text;
  Check check;
};

constexpr const char* kNoPreferences =
    "training on preferences (DPO, ORPO, KTO, reward models) is not in this version";
constexpr const char* kNoReinforcement = "reinforcement learning is not in this version";

constexpr Inactive kInactiveSections[] = {
    {"rng", false, "", "`seed` says where random numbers start, as in AutoModel 0.7.0",
     check_of_class<RngSection>},
    {"autocast", false, "", "nothing reads it, upstream neither; use distributed.autocast_dtype",
     nullptr},
    {"autopipeline", false, "", "use distributed.pipeline", nullptr},
    {"parallelizer", false, "", "use distributed", nullptr},
    {"distributed_config", false, "", "use distributed", nullptr},
    {"tokenizer", false, "", "use dataset.tokenizer", check_tokenizer},
    {"longalign", false, "", "nothing reads it", nullptr},
    {"ci", false, "", "it is for upstream's own tests", nullptr},
    {"benchmark", false, "", "only the benchmark recipe reads it", check<BenchmarkSection>},
    {"nvtx", false, "nvtx", "ranges are in the Chrome trace (--trace)", check_boolean},
    {"prewarm", false, "", "there is nothing to warm up", check_of_class<PrewarmSection>},
    {"compile", false, "enabled", "kernels are fused ahead of time", check_compile},
    {"sdpa_method", false, "", "the fastest exact kernel is chosen", nullptr},
    {"original_hf_config", false, "", "nothing reads it", nullptr},
    {"fp8", false, "enabled", kNoFp8, check_of_class<Fp8Section>},
    {"domain_mixture", true, "", "domain mixtures are not in this version", nullptr},
    {"dpo", true, "", kNoPreferences, nullptr},
    {"rl", true, "", kNoPreferences, nullptr},
    {"rlhf", true, "", kNoPreferences, nullptr},
    {"dpo_beta", true, "", kNoPreferences, nullptr},
    {"orpo", true, "", kNoPreferences, nullptr},
    {"kto", true, "", kNoPreferences, nullptr},
    {"reward_model", true, "", kNoPreferences, nullptr},
    {"grpo", true, "", kNoReinforcement, nullptr},
    {"ppo", true, "", kNoReinforcement, nullptr},
    {"trl", true, "", kNoReinforcement, nullptr},
    {"comet", true, "",
     "Comet is not in this version; metrics are in training.jsonl, and in tensorboard, mlflow or "
     "wandb where those sections are there",
     check_of_class<CometSection>},
    {"skypilot", true, "",
     "SkyPilot is not in this version; start the recipe with torchrun, srun or mpirun", nullptr},
    {"nemo_run", true, "",
     "NeMo-Run is not in this version; start the recipe with torchrun, srun or mpirun", nullptr},
    {"slurm", true, "", "a SLURM section is not in this version; start the recipe with srun",
     nullptr},
};

/// Whether a section asks for nothing. Without its switch a section is on if the switch is
/// `enable`, else off.
bool is_off(const Node& section, const Inactive& inactive) {
  const std::string_view switch_key = inactive.switch_key;
  if (section.is_null()) return true;
  if (switch_key.empty()) return false;
  if (section.key() == switch_key) return section.bool_value() == false;
  const Node* flag = section.find(switch_key);
  if (flag == nullptr) return switch_key != "enable";
  return flag->bool_value() == false;
}

}  // namespace

std::vector<std::string> inactive_section_names() {
  std::vector<std::string> names;
  for (const Inactive& section : kInactiveSections) names.emplace_back(section.key);
  return names;
}

std::string inactive_section_text(std::string_view name) {
  const auto* const found = std::ranges::find(kInactiveSections, name, &Inactive::key);
  return found == std::end(kInactiveSections) ? std::string() : found->text;
}

bool check_inactive_section(const Node& section, Diagnostics& diagnostics) {
  const auto found =
      std::find_if(std::begin(kInactiveSections), std::end(kInactiveSections),
                   [&](const Inactive& inactive) { return section.key() == inactive.key; });
  if (found == std::end(kInactiveSections)) return false;
  if (found->check != nullptr && !section.is_null()) found->check(section, diagnostics);
  if (is_off(section, *found)) return true;
  if (found->is_refused) {
    diagnostics.unsupported(section, found->text);
  } else {
    diagnostics.warning_at_key(section, cat("'", section.key(), "' has no effect: ", found->text));
  }
  return true;
}

}  // namespace automodel::recipes
