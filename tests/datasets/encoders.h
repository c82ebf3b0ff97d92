#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets::test {

/// A token a byte: id = byte value. Special ids and flags as set.
struct ByteEncoder : TextEncoder {
  std::optional<int64_t> bos, eos = 256, pad;
  bool adds_special_tokens = false;  ///< BOS before and EOS after, when there are such
  bool has_template = false;
  std::string template_text;                                ///< the chat template, when it has one
  std::optional<std::string> tool_template = std::nullopt;  ///< another, for tools

  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const override {
    std::vector<int64_t> ids;
    if (add_special_tokens && adds_special_tokens && bos) ids.push_back(*bos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    if (add_special_tokens && adds_special_tokens && eos) ids.push_back(*eos);
    return ids;
  }
  tokenizers::TypedIds encode_texts(const tokenizers::TextAndPair& texts,
                                    std::optional<int64_t> most_tokens) const override {
    std::vector<int64_t> ids = encode(texts.text, true);
    std::vector<int64_t> types(ids.size(), 0);
    if (texts.pair) {
      for (const int64_t id : encode(*texts.pair, true)) ids.push_back(id);
    }
    types.resize(ids.size(), 1);
    if (most_tokens) ids.resize(std::min(ids.size(), static_cast<size_t>(*most_tokens)));
    types.resize(ids.size());
    return {ids, types};
  }
  std::optional<int64_t> bos_token_id() const override { return bos; }
  std::optional<int64_t> eos_token_id() const override { return eos; }
  std::optional<int64_t> pad_token_id() const override { return pad; }
  bool add_bos_token() const override { return false; }
  bool has_chat_template() const override { return has_template; }
  bool is_special(int64_t id) const override { return id == bos || id == eos || id == pad; }
  std::string token_text(int64_t id) const override {
    return std::string(1, static_cast<char>(id));
  }
  std::string name() const override { return "bytes"; }
  std::optional<tokenizers::TemplateText> chat_template() const override {
    if (!has_template) return std::nullopt;
    return tokenizers::TemplateText{template_text, "template", tool_template};
  }
};

/// Says what a Hugging Face tokenizer said of the same texts.
class ReplayingEncoder final : public TextEncoder {
 public:
  explicit ReplayingEncoder(const Json& recorded) : recorded_(recorded) {}

  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const override {
    std::vector<int64_t> ids;
    for (const Json& id :
         recorded_.at(add_special_tokens ? "special" : "plain").at(text).as_array()) {
      ids.push_back(id.as_int());
    }
    return ids;
  }
  tokenizers::TypedIds encode_texts(const tokenizers::TextAndPair& texts,
                                    std::optional<int64_t>) const override {
    std::vector<int64_t> ids = encode(texts.text, true);
    return {ids, std::vector<int64_t>(ids.size(), 0)};
  }
  std::optional<int64_t> bos_token_id() const override { return recorded_.at("bos").as_int(); }
  std::optional<int64_t> eos_token_id() const override { return recorded_.at("eos").as_int(); }
  std::optional<int64_t> pad_token_id() const override { return recorded_.at("pad").as_int(); }
  bool add_bos_token() const override { return recorded_.at("add_bos_token").as_bool(); }
  bool has_chat_template() const override { return false; }
  bool is_special(int64_t id) const override { return id <= 2; }
  std::string token_text(int64_t id) const override { return std::to_string(id); }
  std::string name() const override { return "recorded"; }

 private:
  Json recorded_;
};

inline std::vector<int64_t> integers(const Json& array) {
  std::vector<int64_t> out;
  for (const Json& value : array.as_array()) out.push_back(value.as_int());
  return out;
}

}  // namespace automodel::datasets::test
