#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tokenizers/document.h"
#include "tokenizers/folder.h"

namespace automodel::tokenizers {

/// Whether it is one of transformers' classes that take scores and rules from tokenizer.json and
/// build the other components themselves: T5Tokenizer, XLMRobertaTokenizer, CamembertTokenizer and
/// AlbertTokenizer.
bool builds_unigram(std::string_view class_name);

/// What such a class has for "bos_token" and the like where its folder does not say; null for none.
Json default_token_of_unigram(std::string_view class_name, std::string_view key);

/// The further special tokens such a class has where its folder lists none.
std::vector<std::string> extra_tokens_of_unigram(std::string_view class_name,
                                                 const Json& tokenizer_config);

/// Replaces components in the document, whose vocabulary is a list, as such a class does.
void apply_unigram_class(const FolderSettings& settings, const Json& tokenizer_config,
                         Document& document);

}  // namespace automodel::tokenizers
