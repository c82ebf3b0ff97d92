#pragma once

#include <string>

namespace automodel::cli {

/// `automodel tokenize`: reads JSON lines with `text` from stdin and prints lines with `ids` and
/// `decoded`. Returns the exit status; InputError names a line that is none.
int tokenize_lines(const std::string& folder, bool adds_special_tokens);

/// `automodel tokenize --bin`: writes the texts, each with the tokenizer's BOS in front if it does
/// not begin with it, as a file of tokens that NanogptDataset reads. Returns the exit status;
/// throws InputError for a line that has no text, and for a tokenizer without BOS.
int tokenize_to_bin(const std::string& folder, bool adds_special_tokens, const std::string& path);

}  // namespace automodel::cli
