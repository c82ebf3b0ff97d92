#include "tokenizers/folder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tokenizers/template_text.h"

namespace automodel::tokenizers {

namespace {

/// Model types whose tokenizer class builds its own components (transformers 5's table, the rows
/// that matter here).
constexpr std::array<std::pair<std::string_view, std::string_view>, 28> kClassOfModelType{{
    {"qwen2", "Qwen2Tokenizer"},
    {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen2_vl", "Qwen2Tokenizer"},
    {"qwen2_5_vl", "Qwen2Tokenizer"},
    {"qwen2_5_omni", "Qwen2Tokenizer"},
    {"qwen2_audio", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"},
    {"qwen3_next", "Qwen2Tokenizer"},
    {"qwen3_vl", "Qwen2Tokenizer"},
    {"qwen3_vl_moe", "Qwen2Tokenizer"},
    {"qwen3_omni_moe", "Qwen2Tokenizer"},
    {"qwen3_asr", "Qwen2Tokenizer"},
    {"qwen3_5", "Qwen3_5Tokenizer"},
    {"qwen3_5_text", "Qwen3_5Tokenizer"},
    {"qwen3_5_moe", "Qwen3_5Tokenizer"},
    {"qwen3_5_moe_text", "Qwen3_5Tokenizer"},
    {"gpt2", "GPT2Tokenizer"},
    {"gpt_neo", "GPT2Tokenizer"},
    {"gptj", "GPT2Tokenizer"},
    {"phi", "GPT2Tokenizer"},
    {"starcoder2", "GPT2Tokenizer"},
    {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"gemma3n", "GemmaTokenizer"},
    {"gemma3n_text", "GemmaTokenizer"},
}};

/// Model types whose published tokenizer_class is known to be wrong: the table above wins.
constexpr std::array<std::string_view, 3> kIgnoresConfiguredClass = {"qwen2", "qwen3_5",
                                                                     "qwen3_5_moe"};
/// Model types whose tokenizer.json is always taken as it is, whatever class is configured.
constexpr std::array<std::string_view, 29> kTakenAsIs = {
    "mistral",    "mixtral",     "ministral",     "ministral3",      "mistral3",
    "phi3",       "phimoe",      "olmo2",         "olmo3",           "granite",
    "granitemoe", "deepseek_v2", "deepseek_v3",   "deepseek_v32",    "deepseek_v4",
    "nemotron",   "gpt_bigcode", "ernie4_5",      "ernie4_5_moe",    "granitemoeshared",
    "stablelm",   "step3p5",     "mimo_v2_flash", "minimax_m2",      "glm",
    "glm4",       "glm4_moe",    "glm4_moe_lite", "granitemoehybrid"};

constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json read_object(const std::string& path) {
  if (!path_exists(path)) return Json::object();
  Json json = Json::parse_file(path);
  if (!json.is_object()) {
    throw InputError(cat(path, ": expected an object, found ", json.kind()));
  }
  return json;
}

std::string text_or_empty(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

bool is_true(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast") && name != "PreTrainedTokenizerFast") name.resize(name.size() - 4);
  return name;
}

bool builds_components(std::string_view class_name) {
  constexpr std::array<std::string_view, 5> kClasses = {
      "Qwen2Tokenizer", "Qwen3_5Tokenizer", "GPT2Tokenizer", "GemmaTokenizer", "LlamaTokenizer"};
  return std::ranges::find(kClasses, class_name) != kClasses.end();
}

/// The class that transformers' AutoTokenizer would choose, "" when it takes tokenizer.json as it
/// is.
std::string choose_class(const Json& config, const Json& tokenizer_config) {
  const std::string model_type = text_or_empty(config, "model_type");
  std::string configured = text_or_empty(tokenizer_config, "tokenizer_class");
  if (configured.empty()) configured = text_or_empty(config, "tokenizer_class");
  configured = without_fast(configured);
  if (std::ranges::find(kTakenAsIs, model_type) != kTakenAsIs.end()) return "";
  const auto row = std::ranges::find(kClassOfModelType, std::string_view(model_type),
                                     &std::pair<std::string_view, std::string_view>::first);
  std::string chosen = configured;
  if (row != kClassOfModelType.end()) {
    const bool ignores =
        std::ranges::find(kIgnoresConfiguredClass, model_type) != kIgnoresConfiguredClass.end();
    if (configured.empty() || ignores) chosen = row->second;
  }
  return builds_components(chosen) ? chosen : "";
}

/// The properties a token was listed with, else those of a plain special token.
AddedToken special_token(const Json& value, const std::vector<AddedToken>& listed,
                         const std::string& where) {
  if (value.is_object()) {
    AddedToken token = read_added_token(value, where);
    const Json* normalized = value.find("normalized");
    token.special = true;
    if (normalized == nullptr) token.normalized = false;
    return token;
  }
  if (!value.is_string()) {
    throw InputError(cat(where, ": expected a token, found ", value.kind()));
  }
  const auto known = std::ranges::find(listed, value.as_string(), &AddedToken::content);
  AddedToken token;
  token.content = value.as_string();
  token.normalized = false;
  if (known != listed.end()) token = *known;
  token.special = true;
  return token;
}

/// Reads the named special tokens into `settings`.
class SpecialTokenReader final {
 public:
  SpecialTokenReader(std::string file, FolderSettings& settings)
      : file_(std::move(file)), settings_(settings) {}

  void read(const Json& config) {
    settings_.bos = named(config, "bos_token");
    settings_.eos = named(config, "eos_token");
    settings_.unk = named(config, "unk_token");
    named(config, "sep_token");
    settings_.pad = named(config, "pad_token");
    named(config, "cls_token");
    named(config, "mask_token");
    const Json* extra = config.find("extra_special_tokens");
    if (extra == nullptr || extra->size() == 0) extra = config.find("additional_special_tokens");
    if (extra == nullptr || extra->is_null()) return;
    if (extra->is_array()) {
      for (const Json& value : extra->as_array()) add(value, "additional_special_tokens");
    } else if (extra->is_object()) {
      for (const auto& [name, value] : extra->as_object()) add(value, name);
    }
  }

 private:
  std::string add(const Json& value, const std::string& key) {
    AddedToken token = special_token(value, settings_.listed_tokens, cat(file_, ": ", key));
    std::string content = token.content;
    settings_.special_tokens.push_back(std::move(token));
    return content;
  }

  std::optional<std::string> named(const Json& config, const std::string& key) {
    const Json* value = config.find(key);
    Json fallback;
    if (value == nullptr) {
      fallback = default_of_class(key);
      value = &fallback;
    }
    if (value->is_null()) return std::nullopt;
    const std::string content = add(*value, key);
    if (content.empty()) return std::nullopt;
    return content;
  }

  /// The tokens a class has when its folder does not say.
  Json default_of_class(const std::string& key) const {
    const std::string& name = settings_.class_name;
    if (name == "Qwen2Tokenizer" || name == "Qwen3_5Tokenizer") {
      if (key == "unk_token" || key == "eos_token" || key == "pad_token") {
        return Json("<|endoftext|>");
      }
    } else if (name == "GPT2Tokenizer") {
      if (key == "unk_token" || key == "bos_token" || key == "eos_token") {
        return Json("<|endoftext|>");
      }
    } else if (name == "LlamaTokenizer" || name == "GemmaTokenizer") {
      const bool is_gemma = name == "GemmaTokenizer";
      if (key == "unk_token") return Json("<unk>");
      if (key == "bos_token") return Json(is_gemma ? "<bos>" : "<s>");
      if (key == "eos_token") return Json(is_gemma ? "<eos>" : "</s>");
      if (key == "pad_token" && is_gemma) return Json("<pad>");
      if (key == "mask_token" && is_gemma) return Json("<mask>");
    }
    return Json();
  }

  std::string file_;
  FolderSettings& settings_;
};

/// The entries of added_tokens_decoder, by ascending id.
std::vector<AddedToken> read_added_tokens_decoder(const Json& decoder, const std::string& file) {
  if (!decoder.is_object()) {
    throw InputError(cat(file, ": added_tokens_decoder must be an object of ids and tokens"));
  }
  std::vector<std::pair<int64_t, AddedToken>> tokens;
  for (const auto& [key, value] : decoder.as_object()) {
    const std::optional<int64_t> id = parse_int(key);
    if (!id) {
      throw InputError(cat(file, ": added_tokens_decoder: '", key, "' is not a token id"));
    }
    tokens.emplace_back(*id, read_added_token(value, cat(file, ": added_tokens_decoder")));
  }
  std::ranges::stable_sort(tokens, {}, [](const auto& entry) { return entry.first; });
  std::vector<AddedToken> list;
  for (auto& [id, token] : tokens) list.push_back(std::move(token));
  return list;
}

/// added_tokens.json of old folders: {token: id}.
std::vector<AddedToken> read_legacy_added_tokens(const std::string& path) {
  std::vector<std::pair<int64_t, AddedToken>> tokens;
  const Json ids = read_object(path);
  for (const auto& [content, value] : ids.as_object()) {
    if (!value.is_int()) throw InputError(cat(path, ": the id of '", content, "' is no integer"));
    AddedToken token;
    token.content = content;
    tokens.emplace_back(value.as_int(), std::move(token));
  }
  std::ranges::stable_sort(tokens, {}, [](const auto& entry) { return entry.first; });
  std::vector<AddedToken> list;
  for (auto& [id, token] : tokens) list.push_back(std::move(token));
  return list;
}

}  // namespace

Json read_tokenizer_config(const std::string& folder) {
  return read_object(path_join(folder, "tokenizer_config.json"));
}

FolderSettings read_folder(const std::string& folder) {
  FolderSettings settings;
  const Json config = read_object(path_join(folder, "config.json"));
  const std::string config_path = path_join(folder, "tokenizer_config.json");
  Json tokenizer_config = read_tokenizer_config(folder);
  settings.class_name = choose_class(config, tokenizer_config);
  settings.class_adds_specials =
      settings.class_name == "Qwen2Tokenizer" || settings.class_name == "Qwen3_5Tokenizer";
  settings.truncates_left = text_or_empty(tokenizer_config, "truncation_side") == "left";
  settings.chat_template = find_chat_template(folder, tokenizer_config);
  if (const Json* decoder = tokenizer_config.find("added_tokens_decoder")) {
    settings.listed_tokens = read_added_tokens_decoder(*decoder, config_path);
  } else {
    const Json map = read_object(path_join(folder, "special_tokens_map.json"));
    for (const auto& [key, value] : map.as_object()) tokenizer_config[key] = value;
    settings.listed_tokens = read_legacy_added_tokens(path_join(folder, "added_tokens.json"));
  }
  SpecialTokenReader(config_path, settings).read(tokenizer_config);
  return settings;
}

namespace {

Json split_then_bytes(std::string_view regex, bool add_prefix_space) {
  Json split = Json::parse(R"({"type": "Split", "behavior": "Isolated", "invert": false})", "");
  split["pattern"] = Json::object();
  split["pattern"]["Regex"] = Json(regex);
  Json bytes = Json::parse(R"({"type": "ByteLevel", "use_regex": false})", "");
  bytes["add_prefix_space"] = Json(add_prefix_space);
  Json sequence = Json::parse(R"({"type": "Sequence", "pretokenizers": []})", "");
  sequence["pretokenizers"].push_back(std::move(split));
  sequence["pretokenizers"].push_back(std::move(bytes));
  return sequence;
}

/// The BPE settings a class gives its model.
void set_bpe(Json& model, bool fuse_unk, bool byte_fallback, Json unk_token) {
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    model.erase(key);
  }
  model["ignore_merges"] = Json(false);
  model["fuse_unk"] = Json(fuse_unk);
  model["byte_fallback"] = Json(byte_fallback);
  model["unk_token"] = std::move(unk_token);
}

void apply_llama(const Json& tokenizer_config, Document& document) {
  const Json* prefix = tokenizer_config.find("add_prefix_space");
  const bool adds_prefix = prefix == nullptr || !prefix->is_bool() || prefix->as_bool();
  const char* scheme = !adds_prefix                          ? "never"
                       : is_true(tokenizer_config, "legacy") ? "always"
                                                             : "first";
  set_bpe(document.rest["model"], true, true, Json());
  document.rest["normalizer"] = Json();
  Json metaspace = Json::parse(R"({"type": "Metaspace", "replacement": "▁", "split": false})", "");
  metaspace["prepend_scheme"] = Json(scheme);
  document.rest["pre_tokenizer"] = std::move(metaspace);
  Json decoder = Json::parse(
      R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"}]})",
      "");
  if (adds_prefix) {
    decoder["decoders"].push_back(
        Json::parse(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})", ""));
  }
  document.rest["decoder"] = std::move(decoder);
}

void apply_gemma(const FolderSettings& settings, Document& document) {
  set_bpe(document.rest["model"], true, true, Json(settings.unk.value_or("<unk>")));
  document.rest["normalizer"] =
      Json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})", "");
  document.rest["pre_tokenizer"] = Json::parse(
      R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
          "invert": false})",
      "");
  document.rest["decoder"] = Json::parse(
      R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"}]})",
      "");
}

}  // namespace

void apply_class(const FolderSettings& settings, const Json& tokenizer_config, Document& document) {
  const std::string& name = settings.class_name;
  const Json* model = document.rest.find("model");
  if (name.empty() || model == nullptr || !model->is_object() || !document.has_merges) return;
  const bool is_prefixed = is_true(tokenizer_config, "add_prefix_space");
  if (name == "LlamaTokenizer" || name == "GemmaTokenizer") {
    // Byte-level vocabularies that claim these classes would become unusable: taken as they are.
    if (!is_true(*model, "byte_fallback")) return;
    name == "LlamaTokenizer" ? apply_llama(tokenizer_config, document)
                             : apply_gemma(settings, document);
    return;
  }
  set_bpe(document.rest["model"], false, false, Json());
  if (name == "GPT2Tokenizer") {
    document.rest["normalizer"] = Json();
    Json bytes = Json::parse(R"({"type": "ByteLevel", "use_regex": true})", "");
    bytes["add_prefix_space"] = Json(is_prefixed);
    document.rest["pre_tokenizer"] = std::move(bytes);
  } else {
    document.rest["normalizer"] = Json::parse(R"({"type": "NFC"})", "");
    document.rest["pre_tokenizer"] =
        split_then_bytes(name == "Qwen2Tokenizer" ? kQwen2Regex : kQwen35Regex, is_prefixed);
  }
  document.rest["decoder"] = Json::parse(R"({"type": "ByteLevel"})", "");
}

}  // namespace automodel::tokenizers
