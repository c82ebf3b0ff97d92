#include "cli/tokenize.h"

#include <iostream>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "tokenizers/tokenizer.h"

namespace automodel::cli {

int tokenize_lines(const std::string& folder, bool adds_special_tokens) {
  const auto tokenizer = tokenizers::Tokenizer::load(folder);
  std::ios::sync_with_stdio(false);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (trim(line).empty()) continue;
    const std::string name = cat("line ", number);
    const Json object = Json::parse(line, name);
    const Json* text = object.find("text");
    if (text == nullptr || !text->is_string()) {
      throw InputError(cat(name, ": expected an object with a string `text`"));
    }
    const auto ids = tokenizer.encode(text->as_string(), adds_special_tokens);
    Json::Array values(ids.begin(), ids.end());
    Json out = Json::object();
    out["ids"] = Json(std::move(values));
    out["decoded"] = tokenizer.decode(ids, false);
    std::cout << out.dump() << "\n";
  }
  return 0;
}

}  // namespace automodel::cli
