#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "setup/draft_classes.h"

namespace automodel::setup {

/// What a recipe has to know of a tokenizer.
struct TokenizerFacts {
  bool has_chat_template = false;
  bool has_eos_token = false;
};

/// Looks into a folder with a tokenizer.json.
TokenizerFacts look_at_tokenizer(const std::string& folder);

/// What a recipe has to know of a model.
struct ModelFacts {
  std::string name;          ///< for the recipe: an absolute path, or the name on the hub
  std::string folder;        ///< on this machine
  std::string architecture;  ///< "LlamaForCausalLM"
  int64_t num_positions = 0;
  bool is_encoder = false;     ///< it classifies texts or makes embeddings, and nothing else
  bool reads_sources = false;  ///< it is an encoder and a decoder
  bool has_weights = false;
  bool has_tokenizer = false;
  TokenizerFacts tokenizer;
};

/// Looks into a Hugging Face folder, or fetches config.json and tokenizer of a model of the hub.
/// Throws UserError naming `option` when it is neither, UnsupportedError for a family that is not
/// built, InputError for a config.json that cannot be read.
ModelFacts look_at_model(const std::string& name, const char* option, Reporter& reporter);

enum class DataKind {
  kPlainText,      ///< one document
  kTextRows,       ///< a column of documents
  kTokens,         ///< PREFIX.bin and PREFIX.idx
  kConversations,  ///< messages or conversations
  kColumns,        ///< question and answer
  kClasses,        ///< texts with classes
  kQueries,        ///< queries with passages
};

/// What a recipe has to know of data.
struct DataFacts {
  std::string name;  ///< for the recipe: an absolute path, or the name on the hub
  bool is_on_hub = false;
  DataKind kind = DataKind::kPlainText;
  std::string text_column;                ///< of kTextRows
  std::string context, question, answer;  ///< of kColumns; the first may be ""
  ClassFacts classes;                     ///< of kClasses
  int64_t num_wrong = 0;                  ///< of kQueries: passages that do not answer the first
  std::vector<std::string> columns;       ///< of the first row
  std::optional<int64_t> num_rows;        ///< of rows in files of this machine
  uint64_t num_bytes = 0;                 ///< of the files
};

/// Columns that a person names: question and answer, maybe a context; text alone; or text and its
/// label, maybe a second text. All "": those of the usual names.
struct NamedColumns {
  std::string context, question, answer, text, label, pair;
};

/// Reads "question=ask,answer=reply", "text=body" or "text=body,label=kind"; "" names none. Throws
/// UserError.
NamedColumns parse_columns(const std::string& text);

/// Looks at a file, a folder of files, the prefix of token files, or a data set of the hub, whose
/// files it fetches; where texts are to be classified, at the classes of all rows. Throws UserError
/// naming the option when it is none or has not the columns that
/// are named, InputError when it cannot be read or has columns of which no sample can be made.
DataFacts look_at_data(const std::string& name, const NamedColumns& columns, bool has_classes,
                       Reporter& reporter);

/// The kind and columns of rows by their first one; throws InputError naming the columns, and
/// UserError for named ones that it lacks.
DataFacts facts_of_row(const Json& row, const std::string& name, const NamedColumns& columns = {},
                       bool is_csv = false);

}  // namespace automodel::setup
