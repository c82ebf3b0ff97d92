#include "cli/tokenize.h"

#include <atomic>
#include <functional>
#include <iostream>

#include "core/error.h"
#include "core/json.h"
#include "core/output_file.h"
#include "core/text.h"
#include "datasets/pretraining/bin_shard.h"
#include "recipes/commands/terminal_progress.h"
#include "tokenizers/tokenizer.h"

namespace automodel::cli {

namespace {

std::string text_of(const std::string& line, const std::string& name) {
  if (trim(line).front() != '{') {
    throw InputError(cat(name, R"(: expected an object such as {"text": "Good morning"}; )"
                               "--plain reads every line as a text"));
  }
  const Json object = Json::parse(line, name);
  const Json* text = object.find("text");
  if (text == nullptr || !text->is_string()) {
    throw InputError(cat(name, ": expected an object with a string `text`"));
  }
  return text->as_string();
}

void for_each_text(bool is_plain, const std::function<void(const std::string& text)>& use) {
  std::ios::sync_with_stdio(false);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (trim(line).empty()) continue;
    use(is_plain ? line : text_of(line, cat("line ", number)));
  }
}

}  // namespace

int tokenize_lines(const std::string& folder, const TokenizeOptions& options) {
  const auto tokenizer = tokenizers::Tokenizer::load(folder);
  for_each_text(options.is_plain, [&](const std::string& text) {
    const auto ids = tokenizer.encode(text, options.adds_special_tokens);
    Json::Array values(ids.begin(), ids.end());
    Json out = Json::object();
    out["ids"] = Json(std::move(values));
    out["decoded"] = tokenizer.decode(ids, false);
    std::cout << out.dump() << "\n";
  });
  return 0;
}

int tokenize_to_bin(const std::string& folder, const TokenizeOptions& options,
                    const std::string& path) {
  const auto tokenizer = tokenizers::Tokenizer::load(folder);
  if (!tokenizer.bos()) {
    throw InputError(cat(folder, ": the tokenizer has no bos_token, which begins every document"));
  }
  const int64_t bos = tokenizer.bos()->id;
  check_output_place(path);
  datasets::BinShardWriter writer(path, tokenizer.id_bound());
  std::atomic<int64_t> num_documents = 0;
  const auto write_all = [&] {
    for_each_text(options.is_plain, [&](const std::string& text) {
      std::vector<int64_t> ids = tokenizer.encode(text, options.adds_special_tokens);
      if (ids.empty()) return;
      if (ids.front() != bos) ids.insert(ids.begin(), bos);
      writer.add(ids);
      ++num_documents;
    });
    writer.finish();
    return 0;
  };
  recipes::with_terminal_progress("tokenizing", write_all,
                                  [&] { return cat(num_documents.load(), " documents"); });
  std::cout << path << ": " << num_documents << " documents, " << writer.num_tokens()
            << " tokens of " << writer.token_bytes() << " bytes, each document begins with " << bos
            << "\n";
  return 0;
}

}  // namespace automodel::cli
