#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hf_export.h"

namespace automodel::recipes {

/// What a folder of Sentence Transformers says of its embeddings.
struct SentenceFolder {
  std::optional<std::string> pooling;  ///< avg, cls or last; absent: it does not say
  std::optional<bool> normalizes;      ///< absent: it is no such folder
};

/// Reads modules.json and the pooling's config.json of a folder; nothing where there is none.
/// Throws InputError for modules that are no transformer with a pooling and, at most, a
/// normalization, and for what this version does not do with texts.
SentenceFolder read_sentence_folder(const std::string& folder);

/// What Sentence Transformers need to know to make a model's embeddings.
struct SentenceFacts {
  std::string pooling;  ///< avg, cls or last
  bool normalizes = true;
  int64_t dims = 0;
  std::string query_prompt;  ///< what queries begin with
  std::string document_prompt;
  std::optional<int64_t> most_tokens;  ///< of a text; absent: as the tokenizer says
};

/// The files that such a folder has besides those of transformers, in the form of version 5.4.
std::vector<checkpoint::TextFile> sentence_files(const SentenceFacts& facts);

/// The most tokens of a text that the folder of Sentence Transformers `base` names; else the
/// smaller of what tokenizer_config.json in `tokenizer` and the model's config.json say, if they
/// do. Either folder may be "".
std::optional<int64_t> most_sentence_tokens(const std::string& base, const std::string& tokenizer,
                                            const Json& hf_config);

}  // namespace automodel::recipes
