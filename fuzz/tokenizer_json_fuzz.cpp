// rooms: tokenizers
// A tokenizer.json, and a text for it. The first line of the input is the text, the rest the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/unicode.h"

namespace {

using namespace automodel;

/// Ids are those of tokens and the same every time; decoding takes any ids and gives UTF-8.
void encode_and_decode(const tokenizers::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int64_t> ids = tokenizer.encode(text, false);
  for (const int64_t id : ids) {
    if (id >= tokenizer.id_bound() || !tokenizer.id_to_token(id)) std::abort();
  }
  if (tokenizer.encode(text, false) != ids) std::abort();
  std::vector<int64_t> with_specials = tokenizer.encode(text, true);
  with_specials.insert(with_specials.end(), {-1, 0, 1, tokenizer.id_bound(), INT64_MAX});
  for (const bool skips_specials : {false, true}) {
    const std::string decoded = tokenizer.decode(with_specials, skips_specials);
    if (tokenizers::find_invalid_utf8(decoded) != std::string_view::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return 0;
  try {
    const auto tokenizer =
        tokenizers::Tokenizer::from_json_text(input.substr(line + 1), "tokenizer.json");
    encode_and_decode(tokenizer, input.substr(0, line));
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
