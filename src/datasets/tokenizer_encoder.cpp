#include "datasets/tokenizer_encoder.h"

#include <utility>

namespace automodel::datasets {

namespace {

std::optional<int64_t> id_of(const std::optional<tokenizers::SpecialToken>& token) {
  return token ? std::optional<int64_t>(token->id) : std::nullopt;
}

}  // namespace

TokenizerEncoder::TokenizerEncoder(tokenizers::Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

std::vector<int64_t> TokenizerEncoder::encode(std::string_view text,
                                              bool add_special_tokens) const {
  return tokenizer_.encode(text, add_special_tokens);
}

std::optional<int64_t> TokenizerEncoder::bos_token_id() const {
  return id_of(tokenizer_.bos());
}
std::optional<int64_t> TokenizerEncoder::eos_token_id() const {
  return id_of(tokenizer_.eos());
}
std::optional<int64_t> TokenizerEncoder::pad_token_id() const {
  return id_of(tokenizer_.pad());
}

std::string TokenizerEncoder::token_text(int64_t id) const {
  return tokenizer_.id_to_token(id).value_or("");
}

std::unique_ptr<TextEncoder> load_text_encoder(const std::string& folder) {
  return std::make_unique<TokenizerEncoder>(tokenizers::Tokenizer::load(folder));
}

}  // namespace automodel::datasets
