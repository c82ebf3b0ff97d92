#include "tokenizers/unigram_classes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/text.h"

namespace automodel::tokenizers {

namespace {

constexpr std::string_view kT5 = "T5Tokenizer";
constexpr std::string_view kXlmRoberta = "XLMRobertaTokenizer";
constexpr std::string_view kCamembert = "CamembertTokenizer";
constexpr std::string_view kAlbert = "AlbertTokenizer";

bool is_set(const Json& config, std::string_view key, bool fallback) {
  const Json* value = config.find(key);
  return value != nullptr && value->is_bool() ? value->as_bool() : fallback;
}

Json parsed(std::string_view text) {
  return Json::parse(text, "");
}

/// The id of a token of the vocabulary, of equal ones the last, or of an added token; -1 when there
/// is none.
int64_t find_token(const Document& document, std::string_view token) {
  for (size_t i = document.tokens.size(); i > 0; --i) {
    if (document.tokens[i - 1] == token) return static_cast<int64_t>(i - 1);
  }
  const Json* added = document.rest.find("added_tokens");
  if (added == nullptr || !added->is_array()) return -1;
  for (const Json& entry : added->as_array()) {
    const Json* content = entry.find("content");
    const Json* id = entry.find("id");
    if (content == nullptr || !content->is_string() || content->as_string() != token) continue;
    if (id != nullptr && id->is_int()) return id->as_int();
  }
  return -1;
}

int64_t unk_id_of(const FolderSettings& settings, const Document& document) {
  if (settings.class_name == kT5) return 2;
  if (settings.class_name == kXlmRoberta) return 3;
  if (settings.class_name == kAlbert) return 1;
  for (size_t i = 0; i < document.tokens.size(); ++i) {
    if (document.tokens[i] == settings.unk.value_or("<unk>")) return static_cast<int64_t>(i);
  }
  return 0;
}

/// The first Precompiled of the document's normalizer, by itself or in a sequence; null for none.
Json precompiled_of(const Document& document) {
  const auto is_precompiled = [](const Json& json) {
    const Json* type = json.find("type");
    return type != nullptr && type->is_string() && type->as_string() == "Precompiled";
  };
  const Json* normalizer = document.rest.find("normalizer");
  if (normalizer == nullptr || !normalizer->is_object()) return {};
  if (is_precompiled(*normalizer)) return *normalizer;
  const Json* parts = normalizer->find("normalizers");
  if (parts == nullptr || !parts->is_array()) return {};
  const auto found = std::ranges::find_if(parts->as_array(), is_precompiled);
  return found == parts->as_array().end() ? Json() : *found;
}

Json albert_normalizer(const Json& config, Json precompiled) {
  Json sequence = parsed(
      R"({"type": "Sequence", "normalizers": [
          {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
          {"type": "Replace", "pattern": {"String": "''"}, "content": "\""}]})");
  Json& parts = sequence["normalizers"];
  if (!is_set(config, "keep_accents", false)) {
    parts.push_back(parsed(R"({"type": "NFKD"})"));
    parts.push_back(parsed(R"({"type": "StripAccents"})"));
  }
  if (is_set(config, "do_lower_case", true)) parts.push_back(parsed(R"({"type": "Lowercase"})"));
  if (!precompiled.is_null()) parts.push_back(std::move(precompiled));
  return sequence;
}

/// Special tokens around a text and its pair.
struct Surroundings {
  std::string begin;    ///< before the text; "" for none
  std::string end;      ///< behind each
  int num_between = 1;  ///< how many times `end` parts the two
  int64_t type_of_pair = 0;
};

Json template_part(const char* kind, std::string_view id, int64_t type) {
  Json of_kind = Json::object();
  of_kind["id"] = Json(id);
  of_kind["type_id"] = Json(type);
  Json part = Json::object();
  part[kind] = std::move(of_kind);
  return part;
}

/// A TemplateProcessing; null where one of its tokens is no token of the document.
Json template_of(const Document& document, const Surroundings& around) {
  Json result =
      parsed(R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})");
  for (const std::string& token : {around.begin, around.end}) {
    if (token.empty()) continue;
    const int64_t id = find_token(document, token);
    if (id < 0) return {};
    Json special = parsed(R"({"ids": [], "tokens": []})");
    special["id"] = Json(token);
    special["ids"].push_back(Json(id));
    special["tokens"].push_back(Json(token));
    result["special_tokens"][token] = std::move(special);
  }
  Json& single = result["single"];
  if (!around.begin.empty()) single.push_back(template_part("SpecialToken", around.begin, 0));
  single.push_back(template_part("Sequence", "A", 0));
  Json pair = single;
  single.push_back(template_part("SpecialToken", around.end, 0));
  for (int i = 0; i < around.num_between; ++i) {
    pair.push_back(template_part("SpecialToken", around.end, 0));
  }
  pair.push_back(template_part("Sequence", "B", around.type_of_pair));
  pair.push_back(template_part("SpecialToken", around.end, around.type_of_pair));
  result["pair"] = std::move(pair);
  return result;
}

/// ALBERT's class takes the file's where there is one; the others here do where it lacks their
/// tokens.
void replace_post_processor(const FolderSettings& settings, Document& document) {
  const Json* of_file = document.rest.find("post_processor");
  const auto named = [&](const std::string& key, const char* fallback) {
    const auto found = settings.named_tokens.find(key);
    return found == settings.named_tokens.end() ? std::string(fallback) : found->second;
  };
  Surroundings around{named("bos_token", "<s>"), named("eos_token", "</s>")};
  if (settings.class_name == kAlbert) {
    if (of_file != nullptr && !of_file->is_null()) return;
    around = {named("cls_token", "[CLS]"), named("sep_token", "[SEP]"), 1, 1};
  } else if (settings.class_name == kT5) {
    around.begin = "";
  } else {
    around.num_between = 2;
  }
  Json made = template_of(document, around);
  if (!made.is_null()) document.rest["post_processor"] = std::move(made);
}

}  // namespace

bool builds_unigram(std::string_view class_name) {
  return class_name == kT5 || class_name == kXlmRoberta || class_name == kCamembert ||
         class_name == kAlbert;
}

Json default_token_of_unigram(std::string_view class_name, std::string_view key) {
  const bool is_albert = class_name == kAlbert;
  if (key == "unk_token") return Json("<unk>");
  if (key == "pad_token") return Json("<pad>");
  if (key == "eos_token") return Json(is_albert ? "[SEP]" : "</s>");
  if (class_name == kT5) return {};
  if (key == "bos_token" || key == "cls_token") return Json(is_albert ? "[CLS]" : "<s>");
  if (key == "sep_token") return Json(is_albert ? "[SEP]" : "</s>");
  if (key != "mask_token") return {};
  if (class_name == kCamembert) {
    return parsed(R"({"content": "<mask>", "lstrip": true, "rstrip": false, "single_word": false,
                      "normalized": true, "special": true})");
  }
  return Json(is_albert ? "[MASK]" : "<mask>");
}

std::vector<std::string> extra_tokens_of_unigram(std::string_view class_name,
                                                 const Json& tokenizer_config) {
  if (class_name == kCamembert) return {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"};
  if (class_name != kT5) return {};
  constexpr int64_t kUsual = 100;
  constexpr int64_t kMost = 100'000;  // more is a slip
  const Json* value = tokenizer_config.find("extra_ids");
  const int64_t count =
      value != nullptr && value->is_int() ? std::min(value->as_int(), kMost) : kUsual;
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(cat("<extra_id_", i, ">"));
  return tokens;
}

void apply_unigram_class(const FolderSettings& settings, const Json& tokenizer_config,
                         Document& document) {
  Json& model = document.rest["model"];
  model["type"] = Json("Unigram");
  model["unk_id"] = Json(unk_id_of(settings, document));
  model["byte_fallback"] = Json(false);
  // These classes read the scores themselves.
  document.scores = document.nearest_scores;

  Json precompiled = precompiled_of(document);
  document.rest["normalizer"] = settings.class_name == kAlbert
                                    ? albert_normalizer(tokenizer_config, std::move(precompiled))
                                    : std::move(precompiled);
  Json metaspace = parsed(R"({"type": "Metaspace", "replacement": "▁", "split": true})");
  const bool adds_prefix =
      settings.class_name == kT5 || is_set(tokenizer_config, "add_prefix_space", true);
  metaspace["prepend_scheme"] = Json(adds_prefix ? "always" : "never");
  document.rest["decoder"] = metaspace;
  Json words = parsed(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}]})");
  words["pretokenizers"].push_back(std::move(metaspace));
  document.rest["pre_tokenizer"] = std::move(words);
  replace_post_processor(settings, document);
}

}  // namespace automodel::tokenizers
