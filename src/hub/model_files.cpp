#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "hub/hub.h"

namespace automodel::hub {

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

bool has_file(const Snapshot& snapshot, std::string_view path) {
  return std::any_of(snapshot.files.begin(), snapshot.files.end(),
                     [&](const HubFile& file) { return file.path == path; });
}

/// As exports copy them (checkpoint/hf_export.h), and what renders chats.
bool is_tokenizer_file(std::string_view path) {
  constexpr std::array<std::string_view, 11> kNames = {"merges.txt",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "spiece.model",
                                                       "sentencepiece.bpe.model",
                                                       "tekken.json",
                                                       "chat_template.jinja",
                                                       "chat_template.json",
                                                       "processor_config.json",
                                                       "preprocessor_config.json",
                                                       "video_preprocessor_config.json"};
  if (path.starts_with("additional_chat_templates/")) return true;
  if (path.find('/') != std::string_view::npos) return false;
  return path.starts_with("tokenizer") || path.starts_with("vocab.") ||
         std::find(kNames.begin(), kNames.end(), path) != kNames.end();
}

/// config.json, and what Sentence Transformers say of how a model's states become embeddings.
bool is_config_file(std::string_view path) {
  return path == "config.json" || path == "modules.json" || path == "sentence_bert_config.json" ||
         path.ends_with("_Pooling/config.json");
}

std::vector<std::string> shards_of_index(const Snapshot& snapshot) {
  const std::string path = path_join(snapshot.folder, kIndex);
  std::vector<std::string> shards;
  const Json index = Json::parse_file(path);
  for (const auto& [tensor, file] : index.at("weight_map").as_object()) {
    const std::string& name = file.as_string();
    if (std::find(shards.begin(), shards.end(), name) != shards.end()) continue;
    if (!is_inside(name) || (snapshot.is_listed && !has_file(snapshot, name))) {
      throw InputError(
          cat(path, ": tensor ", tensor, " is in '", name, "', which the model does not have"));
    }
    shards.push_back(name);
  }
  return shards;
}

std::vector<std::string> weight_files(const Repository& repository, const Snapshot& snapshot) {
  std::vector<std::string> files;
  if (has_file(snapshot, "generation_config.json")) files.emplace_back("generation_config.json");
  if (has_file(snapshot, kIndex)) {
    files.emplace_back(kIndex);
    if (!path_exists(path_join(snapshot.folder, kIndex))) return files;
    for (std::string& shard : shards_of_index(snapshot)) files.push_back(std::move(shard));
  } else if (has_file(snapshot, kSingle)) {
    files.emplace_back(kSingle);
  } else {
    const bool has_others =
        std::any_of(snapshot.files.begin(), snapshot.files.end(),
                    [](const HubFile& file) { return file.path.ends_with(".bin"); });
    throw HubError(HubFailure::kAbsent,
                   cat(describe(repository), " has no ", kSingle, " and no ", kIndex,
                       has_others ? "; its .bin files can run code when loaded and are not read: "
                                    "take a revision with safetensors (refs/pr/...)"
                                  : ""));
  }
  return files;
}

}  // namespace

std::vector<std::string> model_files(const Repository& repository, const Snapshot& snapshot,
                                     ModelPart part) {
  if (part == ModelPart::kWeights) return weight_files(repository, snapshot);
  std::vector<std::string> files;
  for (const HubFile& file : snapshot.files) {
    const bool is_wanted =
        part == ModelPart::kConfig ? is_config_file(file.path) : is_tokenizer_file(file.path);
    if (is_wanted) files.push_back(file.path);
  }
  if (part == ModelPart::kConfig && std::ranges::find(files, "config.json") == files.end()) {
    throw HubError(HubFailure::kAbsent, cat(describe(repository), " has no config.json"));
  }
  return files;
}

void fetch_model_part(Hub& hub, const Repository& repository, const Snapshot& snapshot,
                      ModelPart part) {
  hub.fetch(repository, snapshot, model_files(repository, snapshot, part));
  // The index has come now, and names the rest.
  if (part == ModelPart::kWeights) {
    hub.fetch(repository, snapshot, model_files(repository, snapshot, part));
  }
}

Snapshot fetch_model(Hub& hub, const Repository& repository, const std::vector<ModelPart>& parts) {
  Snapshot snapshot = hub.open(repository);
  for (const ModelPart part : parts) fetch_model_part(hub, repository, snapshot, part);
  return snapshot;
}

}  // namespace automodel::hub
