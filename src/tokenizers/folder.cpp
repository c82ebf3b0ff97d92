#include "tokenizers/folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tokenizers/template_text.h"
#include "tokenizers/unigram_classes.h"

namespace automodel::tokenizers {

namespace {

/// Model types whose tokenizer class builds its own components (transformers 5's table, the rows
/// that matter here).
constexpr std::array<std::pair<std::string_view, std::string_view>, 35> kClassOfModelType{{
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
    {"t5", "T5Tokenizer"},
    {"mt5", "T5Tokenizer"},
    {"switch_transformers", "T5Tokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"},
    {"xmod", "XLMRobertaTokenizer"},
    {"camembert", "CamembertTokenizer"},
    {"albert", "AlbertTokenizer"},
}};

/// Model types whose published tokenizer_class is known to be wrong: the table above wins.
constexpr std::array<std::string_view, 3> kIgnoresConfiguredClass = {"qwen2", "qwen3_5",
                                                                     "qwen3_5_moe"};
/// Model types whose tokenizer.json is always taken as it is, whatever class is configured.
constexpr std::array<std::string_view, 31> kTakenAsIs = {"mistral",
                                                         "mixtral",
                                                         "ministral",
                                                         "ministral3",
                                                         "mistral3",
                                                         "phi3",
                                                         "phimoe",
                                                         "olmo2",
                                                         "olmo3",
                                                         "granite",
                                                         "granitemoe",
                                                         "deepseek_v2",
                                                         "deepseek_v3",
                                                         "deepseek_v32",
                                                         "deepseek_v4",
                                                         "nemotron",
                                                         "gpt_bigcode",
                                                         "ernie4_5",
                                                         "ernie4_5_moe",
                                                         "granitemoeshared",
                                                         "stablelm",
                                                         "step3p5",
                                                         "mimo_v2_flash",
                                                         "minimax_m2",
                                                         "glm",
                                                         "glm4",
                                                         "glm4_moe",
                                                         "glm4_moe_lite",
                                                         "granitemoehybrid",
                                                         "umt5",
                                                         "xlm-roberta-xl"};

constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The names that every class has for special tokens.
constexpr std::array<std::string_view, 7> kNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

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
  return std::ranges::find(kClasses, class_name) != kClasses.end() || builds_unigram(class_name);
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
AddedToken special_token(const Json& value, const std::map<int64_t, AddedToken>& listed,
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
  const auto known = std::ranges::find(listed, value.as_string(),
                                       [](const auto& entry) { return entry.second.content; });
  AddedToken token;
  token.content = value.as_string();
  token.normalized = false;
  if (known != listed.end()) token = known->second;
  token.special = true;
  return token;
}

std::string text_of_token(const Json& value) {
  return value.is_object() ? text_or_empty(value, "content")
                           : (value.is_string() ? value.as_string() : "");
}

/// What the files beside tokenizer.json say of special tokens, in one place.
struct SpecialTokenEntries {
  Json config;                        ///< bos_token and the like, and extra_special_tokens, a list
  Json own_names = Json::object();    ///< of the model: image_token
  Json own_strings = Json::object();  ///< the same, behind these
  /// The tokens that make those of added_tokens.json special. transformers does not know again what
  /// tokenizer_config.json says with properties.
  std::set<std::string> texts;

  explicit SpecialTokenEntries(Json tokenizer_config) : config(std::move(tokenizer_config)) {
    for (const auto& [name, value] : config.as_object()) {
      if (is_own_name(name) && value.is_string()) own_strings[name] = value;
    }
    if (config.contains("additional_special_tokens") && !is_filled("extra_special_tokens")) {
      rename_additional();
    }
    take_names_of_extra();
  }

  /// special_tokens_map.json of old folders comes before tokenizer_config.json.
  void merge(const Json& map) {
    for (const std::string_view name : kNames) {
      const Json* of_map = map.find(name);
      add_text(of_map != nullptr ? of_map : config.find(name), of_map != nullptr);
    }
    for (const Json* from : {&map, static_cast<const Json*>(&config)}) {
      const Json* extra = from->find("extra_special_tokens");
      if (extra == nullptr || !extra->is_array()) continue;
      for (const Json& value : extra->as_array()) add_text(&value, from == &map);
    }
    for (const auto& [key, value] : map.as_object()) {
      if (key == "extra_special_tokens" && value.is_array() && is_filled(key)) {
        for (const Json& token : value.as_array()) config[key].push_back(token);
      } else {
        config[key] = value;
      }
    }
    take_names_of_extra();
  }

  void finish() {
    if (!config.contains("extra_special_tokens")) rename_additional();
    for (const auto& [name, value] : config.as_object()) {
      const bool is_token = value.is_string() || (value.is_object() && value.contains("content"));
      if (is_own_name(name) && is_token && !own_strings.contains(name)) own_names[name] = value;
    }
    for (const auto& [name, value] : own_strings.as_object()) own_names[name] = value;
  }

 private:
  static bool is_own_name(const std::string& key) {
    return key.ends_with("_token") && std::ranges::find(kNames, key) == kNames.end();
  }

  void add_text(const Json* value, bool may_be_object) {
    if (value != nullptr && (may_be_object || value->is_string())) {
      texts.insert(text_of_token(*value));
    }
  }

  bool is_filled(const std::string& key) const {
    const Json* value = config.find(key);
    return value != nullptr && (value->is_array() || value->is_object()) && value->size() != 0;
  }

  void rename_additional() {
    const Json* additional = config.find("additional_special_tokens");
    if (additional == nullptr) return;
    const Json tokens = *additional;
    config.erase("additional_special_tokens");
    config["extra_special_tokens"] = tokens;
  }

  /// An object of extra tokens has a name for each.
  void take_names_of_extra() {
    const Json* extra = config.find("extra_special_tokens");
    if (extra == nullptr || !extra->is_object()) return;
    for (const auto& [name, value] : extra->as_object()) own_strings[name] = value;
    config.erase("extra_special_tokens");
  }
};

/// Reads the named special tokens into `settings`.
class SpecialTokenReader final {
 public:
  SpecialTokenReader(std::string file, const Document& document, FolderSettings& settings)
      : file_(std::move(file)), document_(document), settings_(settings) {}

  void read(const SpecialTokenEntries& entries) {
    const Json& config = entries.config;
    settings_.bos = named(config, "bos_token");
    settings_.eos = named(config, "eos_token");
    settings_.unk = named(config, "unk_token");
    named(config, "sep_token");
    settings_.pad = named(config, "pad_token");
    named(config, "cls_token");
    named(config, "mask_token");
    for (const auto& [name, value] : entries.own_names.as_object()) {
      if (!value.is_null()) settings_.named_tokens[name] = add(value, name);
    }
    const Json* extra = config.find("extra_special_tokens");
    if (extra == nullptr) {
      for (const std::string& token : extra_tokens_of_unigram(settings_.class_name, config)) {
        add(Json(token), "extra_special_tokens");
      }
    } else if (extra->is_array()) {
      for (const Json& value : extra->as_array()) add(value, "extra_special_tokens");
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
    settings_.named_tokens[key] = content;
    return content;
  }

  /// The tokens a class has when its folder does not say; for padding else tokenizer.json's.
  Json default_of_class(const std::string& key) const {
    const std::string& name = settings_.class_name;
    if (builds_unigram(name)) return default_token_of_unigram(name, key);
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
    if (key != "pad_token" || name == "GPT2Tokenizer") return Json();
    const Json* padding = document_.rest.find("padding");
    const Json* pad = padding == nullptr ? nullptr : padding->find(key);
    return pad == nullptr ? Json() : *pad;
  }

  std::string file_;
  const Document& document_;
  FolderSettings& settings_;
};

/// The entries of added_tokens_decoder.
std::map<int64_t, AddedToken> read_added_tokens_decoder(const Json& decoder,
                                                        const std::string& file) {
  if (!decoder.is_object()) {
    throw InputError(cat(file, ": added_tokens_decoder must be an object of ids and tokens"));
  }
  std::map<int64_t, AddedToken> tokens;
  for (const auto& [key, value] : decoder.as_object()) {
    const std::optional<int64_t> id = parse_int(key);
    if (!id) {
      throw InputError(cat(file, ": added_tokens_decoder: '", key, "' is not a token id"));
    }
    tokens[*id] = read_added_token(value, cat(file, ": added_tokens_decoder"));
  }
  return tokens;
}

/// added_tokens.json of old folders: {token: id}.
std::map<int64_t, AddedToken> read_legacy_added_tokens(const std::string& path,
                                                       const std::set<std::string>& specials) {
  std::map<int64_t, AddedToken> tokens;
  const Json ids = read_object(path);
  for (const auto& [content, value] : ids.as_object()) {
    if (!value.is_int()) throw InputError(cat(path, ": the id of '", content, "' is no integer"));
    const bool is_special = specials.contains(content);
    tokens[value.as_int()] = {.content = content, .normalized = !is_special, .special = is_special};
  }
  return tokens;
}

}  // namespace

Json read_tokenizer_config(const std::string& folder) {
  return read_object(path_join(folder, "tokenizer_config.json"));
}

FolderSettings read_folder(const std::string& folder, const Document& document) {
  FolderSettings settings;
  const Json config = read_object(path_join(folder, "config.json"));
  const std::string config_path = path_join(folder, "tokenizer_config.json");
  const Json tokenizer_config = read_tokenizer_config(folder);
  settings.class_name = choose_class(config, tokenizer_config);
  if (builds_unigram(settings.class_name) && !document.vocab_is_list) settings.class_name = "";
  settings.class_adds_specials = settings.class_name == "Qwen2Tokenizer";
  const Json* truncation = document.rest.find("truncation");
  const std::string side = text_or_empty(tokenizer_config, "truncation_side");
  settings.truncates_left = side.empty() && truncation != nullptr
                                ? text_or_empty(*truncation, "direction") == "Left"
                                : side == "left";
  const Json* most = tokenizer_config.find("model_max_length");
  if (most != nullptr && most->is_number()) settings.model_max_length = most->as_double();
  if (const Json* inputs = tokenizer_config.find("model_input_names");
      inputs != nullptr && inputs->is_array()) {
    settings.gives_types =
        std::ranges::find(inputs->as_array(), Json("token_type_ids")) != inputs->as_array().end();
  }
  settings.chat_template = find_chat_template(folder, tokenizer_config);
  SpecialTokenEntries entries(tokenizer_config);
  if (const Json* decoder = tokenizer_config.find("added_tokens_decoder")) {
    settings.listed_tokens = read_added_tokens_decoder(*decoder, config_path);
    settings.is_list_whole = true;
  } else {
    entries.merge(read_object(path_join(folder, "special_tokens_map.json")));
    settings.listed_tokens =
        read_legacy_added_tokens(path_join(folder, "added_tokens.json"), entries.texts);
  }
  entries.finish();
  SpecialTokenReader(config_path, document, settings).read(entries);
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
  if (name.empty() || model == nullptr || !model->is_object()) return;
  if (builds_unigram(name)) return apply_unigram_class(settings, tokenizer_config, document);
  if (!document.has_merges) return;
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
