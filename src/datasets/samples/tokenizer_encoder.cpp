#include "datasets/samples/tokenizer_encoder.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/unicode.h"

namespace automodel::datasets {

namespace {

std::optional<int64_t> id_of(const std::optional<tokenizers::SpecialToken>& token) {
  return token ? std::optional<int64_t>(token->id) : std::nullopt;
}

/// How many bytes at the text's beginning a byte-level vocabulary's token stands for; nullopt when
/// the text does not begin so, or the token is another vocabulary's.
std::optional<size_t> byte_level_size(std::string_view text, std::string_view token) {
  size_t size = 0;
  for (size_t at = 0; at < token.size(); ++size) {
    const int byte = tokenizers::byte_of_character(next_code_point(token, at));
    if (size == text.size() || static_cast<unsigned char>(text[size]) != byte) return std::nullopt;
  }
  return size;
}

/// The byte of a token such as "<0x0A>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

/// How many bytes at the text's beginning the token stands for; nullopt when it does not begin so.
std::optional<size_t> bytes_of_token(std::string_view text, std::string_view token) {
  if (const auto size = byte_level_size(text, token)) return size;
  if (text.starts_with(token)) return token.size();
  if (const auto byte = fallback_byte(token); byte && text.starts_with(*byte)) return 1;
  const std::string spaced = replace_all(std::string(token), "\u2581", " ");
  if (text.starts_with(spaced)) return spaced.size();
  // A space that the tokenizer put before a word.
  if (spaced.starts_with(' ') && text.starts_with(spaced.substr(1))) return spaced.size() - 1;
  return std::nullopt;
}

}  // namespace

/// The bytes that short tokens of a byte-level vocabulary stand for, by id.
class TokenizerEncoder::TokenBytes final {
 public:
  explicit TokenBytes(const tokenizers::Tokenizer& tokenizer)
      : entries_(static_cast<size_t>(tokenizer.id_bound())) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const auto token = tokenizer.id_to_token(static_cast<int64_t>(i));
      if (token) entries_[i] = entry_of(*token);
    }
  }

  /// How many bytes at the text's beginning the token stands for; 0 when this cannot tell.
  size_t size_at(const char* text, size_t num_bytes, int64_t id) const {
    if (num_bytes < kMaxBytes || id < 0 || id >= std::ssize(entries_)) return 0;
    const Entry& entry = entries_[static_cast<size_t>(id)];
    uint64_t bytes = 0;
    std::memcpy(&bytes, text, sizeof(bytes));
    return (bytes & entry.mask) == entry.bytes ? entry.size : 0;
  }

 private:
  static constexpr size_t kMaxBytes = sizeof(uint64_t);
  struct Entry {
    uint64_t bytes = 0;
    uint64_t mask = 0;  // ones where there is a byte
    size_t size = 0;    // 0: a longer token, or another vocabulary's
  };

  static Entry entry_of(std::string_view token) {
    std::array<char, kMaxBytes> bytes{};
    std::array<unsigned char, kMaxBytes> mask{};
    size_t size = 0;
    for (size_t at = 0; at < token.size(); ++size) {
      const int byte = tokenizers::byte_of_character(next_code_point(token, at));
      if (byte < 0 || size == kMaxBytes) return {};
      bytes[size] = static_cast<char>(byte);
      mask[size] = 0xFF;
    }
    return {std::bit_cast<uint64_t>(bytes), std::bit_cast<uint64_t>(mask), size};
  }

  std::vector<Entry> entries_;
};

TokenizerEncoder::~TokenizerEncoder() = default;

void check_added_tokens(const tokenizers::Tokenizer& tokenizer, const EncoderOptions& options) {
  const auto check = [&](bool is_asked, const auto& token, const char* name) {
    if (!is_asked || token) return;
    throw InputError(cat("add_", name, ": the tokenizer of ", tokenizer.folder(), " has no ", name,
                         "; its tokenizer_config.json names one"));
  };
  check(options.adds_bos, tokenizer.bos(), "bos_token");
  check(options.adds_eos, tokenizer.eos(), "eos_token");
}

TokenizerEncoder::TokenizerEncoder(tokenizers::Tokenizer tokenizer, const EncoderOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  check_added_tokens(tokenizer_, options_);
}

std::vector<int64_t> TokenizerEncoder::encode(std::string_view text,
                                              bool add_special_tokens) const {
  std::vector<int64_t> ids = tokenizer_.encode(text, add_special_tokens);
  if (add_special_tokens) add_asked(ids);
  return ids;
}

void TokenizerEncoder::add_asked(std::vector<int64_t>& ids) const {
  if (ids.empty()) return;
  if (options_.adds_bos && ids.front() != *bos_token_id()) ids.insert(ids.begin(), *bos_token_id());
  if (options_.adds_eos && ids.back() != *eos_token_id()) ids.push_back(*eos_token_id());
}

tokenizers::TypedIds TokenizerEncoder::encode_texts(const tokenizers::TextAndPair& texts,
                                                    std::optional<int64_t> most_tokens) const {
  const auto encode_up_to = [&](std::optional<int64_t> most) {
    std::optional<tokenizers::TokenLimit> limit;
    if (most) limit = tokenizers::TokenLimit{*most, truncates_left()};
    tokenizers::TypedIds found = tokenizer_.encode(texts, /*add_special_tokens=*/true, limit);
    const bool lacks_bos =
        options_.adds_bos && !found.ids.empty() && found.ids.front() != bos_token_id();
    add_asked(found.ids);
    if (lacks_bos) found.types.insert(found.types.begin(), 0);
    // An end of sequence is of the text before it.
    const int64_t last = found.types.empty() ? 0 : found.types.back();
    found.types.resize(found.ids.size(), last);
    return found;
  };
  tokenizers::TypedIds found = encode_up_to(most_tokens);
  const int64_t num_over = std::ssize(found.ids) - most_tokens.value_or(std::ssize(found.ids));
  if (num_over <= 0) return found;
  if (num_over >= *most_tokens) {
    throw InputError(cat("a limit of ", *most_tokens,
                         " tokens leaves no room for a text beside the special tokens"));
  }
  return encode_up_to(*most_tokens - num_over);
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
  return std::string(tokenizer_.id_to_token(id).value_or(""));
}

Json TokenizerEncoder::template_variables() const {
  Json out = Json::object();
  for (const auto& [name, text] : tokenizer_.named_tokens()) out[name] = text;
  return out;
}

std::optional<std::vector<size_t>> TokenizerEncoder::token_ends(
    std::string_view text, const std::vector<int64_t>& ids) const {
  std::vector<size_t> ends;
  ends.reserve(ids.size());
  std::call_once(has_token_bytes_,
                 [this] { token_bytes_ = std::make_unique<const TokenBytes>(tokenizer_); });
  size_t at = 0;
  for (const int64_t id : ids) {
    if (const size_t size = token_bytes_->size_at(text.data() + at, text.size() - at, id)) {
      at += size;
      ends.push_back(at);
      continue;
    }
    const std::string_view token = tokenizer_.id_to_token(id).value_or("");
    std::optional<size_t> size = bytes_of_token(text.substr(at), token);
    // A token that takes the white space beside it.
    while (!size && at < text.size() && (text[at] == ' ' || text[at] == '\n')) {
      ++at;
      size = bytes_of_token(text.substr(at), token);
    }
    if (!size) return std::nullopt;
    at += *size;
    ends.push_back(at);
  }
  if (at != text.size() && text.find_first_not_of(" \n", at) != std::string_view::npos) {
    return std::nullopt;
  }
  return ends;
}

std::unique_ptr<TextEncoder> load_text_encoder(const std::string& folder,
                                               const EncoderOptions& options) {
  return std::make_unique<TokenizerEncoder>(tokenizers::Tokenizer::load(folder), options);
}

}  // namespace automodel::datasets
