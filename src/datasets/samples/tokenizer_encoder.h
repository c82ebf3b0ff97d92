#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "datasets/samples/text_encoder.h"
#include "tokenizers/tokenizer.h"

namespace automodel::datasets {

/// What a recipe asks of a tokenizer.
struct EncoderOptions {
  /// Tokens to be added to texts that lack them. As in transformers 5, what tokenizer_config.json
  /// says of them (add_bos_token, add_eos_token) counts for nothing beside a tokenizer.json.
  bool adds_bos = false;
  bool adds_eos = false;
  std::optional<bool> truncates_left = std::nullopt;  ///< absent: as tokenizer_config.json says
};

/// Throws InputError where a tokenizer has no such token.
void check_added_tokens(const tokenizers::Tokenizer& tokenizer, const EncoderOptions& options);

/// Makes a Hugging Face tokenizer a TextEncoder.
class TokenizerEncoder final : public TextEncoder {
 public:
  /// Throws as check_added_tokens().
  explicit TokenizerEncoder(tokenizers::Tokenizer tokenizer, const EncoderOptions& options = {});
  ~TokenizerEncoder() override;

  const tokenizers::Tokenizer& tokenizer() const { return tokenizer_; }

  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const override;
  tokenizers::TypedIds encode_texts(const tokenizers::TextAndPair& texts,
                                    std::optional<int64_t> most_tokens) const override;
  std::optional<int64_t> bos_token_id() const override;
  std::optional<int64_t> eos_token_id() const override;
  std::optional<int64_t> pad_token_id() const override;
  bool add_bos_token() const override { return options_.adds_bos; }
  std::optional<double> model_max_length() const override { return tokenizer_.model_max_length(); }
  bool gives_types() const override { return tokenizer_.gives_types(); }
  bool truncates_left() const override {
    return options_.truncates_left.value_or(tokenizer_.truncates_left());
  }
  bool has_chat_template() const override { return tokenizer_.chat_template().has_value(); }
  bool is_special(int64_t id) const override { return tokenizer_.is_special(id); }
  std::optional<int64_t> find_special(std::string_view text) const override {
    return tokenizer_.find_special(text);
  }
  std::string token_text(int64_t id) const override;
  std::string name() const override { return tokenizer_.folder(); }
  std::optional<tokenizers::TemplateText> chat_template() const override {
    return tokenizer_.chat_template();
  }
  std::string normalized(std::string_view text) const override {
    return tokenizer_.normalized(text);
  }
  Json template_variables() const override;
  std::optional<std::vector<size_t>> token_ends(std::string_view text,
                                                const std::vector<int64_t>& ids) const override;

 private:
  class TokenBytes;

  /// Adds BOS and EOS where the recipe asks for them and they are not there.
  void add_asked(std::vector<int64_t>& ids) const;

  tokenizers::Tokenizer tokenizer_;
  EncoderOptions options_;
  mutable std::once_flag has_token_bytes_;
  mutable std::unique_ptr<const TokenBytes> token_bytes_;  // made when first asked for
};

/// Loads the tokenizer of a folder. Throws InputError as Tokenizer::load and check_added_tokens do.
std::unique_ptr<TextEncoder> load_text_encoder(const std::string& folder,
                                               const EncoderOptions& options = {});

}  // namespace automodel::datasets
