#pragma once

#include <string>

namespace automodel::cli {

/// How texts are read from stdin, and what is added to their tokens.
struct TokenizeOptions {
  bool adds_special_tokens = false;  ///< by the tokenizer's post-processor
  bool is_plain = false;             ///< every line is a text; else a JSON object with `text`
};

/// `automodel tokenize`: reads texts from stdin and prints JSON lines with `ids` and `decoded`.
/// Returns the exit status; InputError names a line that is none.
int tokenize_lines(const std::string& folder, const TokenizeOptions& options);

/// `automodel tokenize --bin`: writes the texts, each with the tokenizer's BOS in front if it does
/// not begin with it, as a file of tokens that NanogptDataset reads. Returns the exit status;
/// throws InputError for a line that has no text, and for a tokenizer without BOS.
int tokenize_to_bin(const std::string& folder, const TokenizeOptions& options,
                    const std::string& path);

}  // namespace automodel::cli
