#include "recipes/read/sentence_folder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"

namespace automodel::recipes {

namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kLimits = "sentence_bert_config.json";

/// A way to pool, as recipes name it and as Sentence Transformers do: in pooling_mode, and before
/// that as a flag.
struct PoolingNames {
  const char* here;
  const char* mode;
  const char* flag;
};

constexpr PoolingNames kPoolings[] = {{"avg", "mean", "pooling_mode_mean_tokens"},
                                      {"cls", "cls", "pooling_mode_cls_token"},
                                      {"last", "lasttoken", "pooling_mode_lasttoken"}};

/// The class of a module: the last part of its type.
std::string class_of(const Json& module) {
  const std::string type = module.is_object() ? module.get("type", "") : "";
  return type.substr(type.rfind('.') + 1);
}

/// avg, cls or last, of a pooling's configuration; "" for other ways and for several.
std::string pooling_of(const Json& config) {
  if (const std::string mode = config.get("pooling_mode", ""); !mode.empty()) {
    const auto* found = std::ranges::find(kPoolings, mode, &PoolingNames::mode);
    return found == std::end(kPoolings) ? "" : found->here;
  }
  std::vector<std::string> flags;
  for (const auto& [key, value] : config.as_object()) {
    const bool is_set = value.is_bool() && value.as_bool();
    if (is_set && key.starts_with("pooling_mode_")) flags.push_back(key);
  }
  if (flags.size() != 1) return "";
  const auto* found = std::ranges::find(kPoolings, flags[0], &PoolingNames::flag);
  return found == std::end(kPoolings) ? "" : found->here;
}

/// A positive number of tokens that a JSON file has under `key`; nullopt where there is none, and
/// for the huge number by which tokenizers say that there is no limit.
std::optional<int64_t> tokens_in(const std::string& path, const char* key) {
  constexpr double kNoLimit = 1e9;
  if (!path_exists(path)) return std::nullopt;
  const Json config = Json::parse_file(path);
  const Json* value = config.is_object() ? config.find(key) : nullptr;
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double tokens = value->as_double();
  if (!(tokens >= 1 && tokens < kNoLimit)) return std::nullopt;
  return static_cast<int64_t>(tokens);
}

Json module(int64_t index, const char* path, const char* type) {
  return Json::Object{{"idx", index},
                      {"name", std::to_string(index)},
                      {"path", path},
                      {"type", cat("sentence_transformers.", type)}};
}

}  // namespace

SentenceFolder read_sentence_folder(const std::string& folder) {
  const std::string path = path_join(folder, kModules);
  if (!path_exists(path)) return {};
  const Json modules = Json::parse_file(path);
  std::vector<std::string> classes;
  if (modules.is_array()) {
    for (const Json& module : modules.as_array()) classes.push_back(class_of(module));
  }
  const bool is_plain = classes.size() >= 2 && classes[0] == "Transformer" &&
                        classes[1] == "Pooling" &&
                        (classes.size() == 2 || (classes.size() == 3 && classes[2] == "Normalize"));
  const bool is_at_root = !classes.empty() && modules.as_array()[0].get("path", "") == "";
  if (!is_plain || !is_at_root) {
    throw InputError(cat(path, " has the modules ", join(classes, ", "),
                         "; a transformer, a pooling and at most a normalization can be trained"));
  }
  const std::string limits = path_join(folder, kLimits);
  if (path_exists(limits) && Json::parse_file(limits).get("do_lower_case", false)) {
    throw InputError(cat(limits, ": do_lower_case true is not in this version"));
  }
  const std::string part = modules.as_array()[1].get("path", "");
  const std::string about = path_join(path_join(folder, part), "config.json");
  if (!path_exists(about)) throw InputError(cat("there is no ", about, ", which ", path, " names"));
  const Json config = Json::parse_file(about);
  const std::string pooling = config.is_object() ? pooling_of(config) : "";
  if (pooling.empty()) {
    throw InputError(cat(about, " pools otherwise than by the mean, the first or the last token"));
  }
  if (!config.get("include_prompt", true)) {
    throw InputError(cat(about, ": include_prompt false is not in this version"));
  }
  return {.pooling = pooling, .normalizes = classes.size() == 3};
}

std::vector<checkpoint::TextFile> sentence_files(const SentenceFacts& facts) {
  const auto* pooling = std::ranges::find(kPoolings, facts.pooling, &PoolingNames::here);
  AM_CHECK(pooling != std::end(kPoolings), facts.pooling, " is no pooling of these files");
  Json modules =
      Json::Array{module(0, "", "base.modules.transformer.Transformer"),
                  module(1, "1_Pooling", "sentence_transformer.modules.pooling.Pooling")};
  if (facts.normalizes) {
    modules.as_array().push_back(
        module(2, "2_Normalize", "sentence_transformer.modules.normalize.Normalize"));
  }
  const Json embedding = Json::Object{{"embedding_dimension", facts.dims},
                                      {"pooling_mode", pooling->mode},
                                      {"include_prompt", true}};
  const Json prompts =
      Json::Object{{"query", facts.query_prompt}, {"document", facts.document_prompt}};
  const Json sentences = Json::Object{{"prompts", prompts},
                                      {"default_prompt_name", Json()},
                                      {"similarity_fn_name", facts.normalizes ? "cosine" : "dot"}};
  Json limits = Json::object();
  if (facts.most_tokens) limits["max_seq_length"] = *facts.most_tokens;
  limits["do_lower_case"] = false;
  std::vector<checkpoint::TextFile> files;
  for (const auto& [path, content] : {std::pair<const char*, const Json*>(kModules, &modules),
                                      {"1_Pooling/config.json", &embedding},
                                      {"config_sentence_transformers.json", &sentences},
                                      {kLimits, &limits}}) {
    files.push_back({path, content->dump(2) + "\n"});
  }
  return files;
}

std::optional<int64_t> most_sentence_tokens(const std::string& base, const std::string& tokenizer,
                                            const Json& hf_config) {
  if (!base.empty()) {
    if (auto named = tokens_in(path_join(base, kLimits), "max_seq_length")) return named;
  }
  std::optional<int64_t> most;
  if (!tokenizer.empty()) {
    most = tokens_in(path_join(tokenizer, "tokenizer_config.json"), "model_max_length");
  }
  std::optional<int64_t> positions = models::encoder_positions(hf_config);
  const Json* named = hf_config.find("max_position_embeddings");
  if (!positions && named != nullptr && named->is_number()) positions = named->as_int();
  if (!positions) return most;
  return std::min(most.value_or(*positions), *positions);
}

}  // namespace automodel::recipes
