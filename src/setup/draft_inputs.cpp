#include "setup/draft_inputs.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/rows/hub_data.h"
#include "datasets/rows/row_source.h"
#include "hub/hub.h"
#include "hub/hub_error.h"
#include "models/catalog.h"
#include "setup/draft_classes.h"
#include "tokenizers/template_text.h"

namespace automodel::setup {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualPositions = 2048;

hub::Settings patient_settings() {
  hub::Settings settings = hub::Settings::from_environment(hub::process_environment());
  settings.num_attempts = 2;
  return settings;
}

bool has_weights(const std::vector<std::string>& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const std::string& file) { return file.ends_with(".safetensors"); });
}

bool has_eos(const std::string& folder) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = path_join(folder, name);
    if (!path_exists(path)) continue;
    const Json config = Json::parse_file(path);
    const Json* token = config.is_object() ? config.find("eos_token") : nullptr;
    if (token != nullptr && !token->is_null()) return true;
  }
  return false;
}

/// The first row of data, and whether its file is CSV, in which all that stands is text.
struct FirstRow {
  const Json& row;
  bool is_csv = false;
};

constexpr auto kQuestions = {"question", "prompt", "instruction", "query", "input"};
constexpr auto kAnswers = {"answer", "completion", "response", "output", "target", "solution"};

/// The first of some names that is a column of text.
std::string first_text(const FirstRow& first, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Json* value = first.row.find(name);
    if (value != nullptr && (value->is_string() || first.is_csv)) return name;
  }
  return "";
}

/// Why columns that could be a question, an answer or a text are none: ": column 'answer' holds an
/// integer"; "" if there is no such column.
std::string why_no_text(const FirstRow& first) {
  for (const auto& names : {kQuestions, kAnswers, {"text", "content"}}) {
    for (const char* name : names) {
      const Json* value = first.row.find(name);
      if (value == nullptr || value->is_string()) continue;
      const bool is_turns =
          value->is_array() && value->size() > 0 && value->as_array().front().is_object();
      return cat(": column '", name, "' holds ", value->kind(),
                 is_turns ? "; turns of a conversation are one list in a column 'messages'" : "");
    }
  }
  const auto& columns = first.row.as_object();
  if (first.is_csv && columns.size() == 1 &&
      columns.front().first.find_first_of(";\t|") != std::string::npos) {
    return ": fields of a .csv file are separated by commas (of a .tsv file by tabs)";
  }
  return "";
}

datasets::SourceOptions source_of(const std::string& name) {
  return {.paths = {name}};
}

/// Throws UserError unless a row has a column that a person names.
void check_column(const Json& row, const std::string& column, const DataFacts& facts) {
  if (row.contains(column)) return;
  throw UserError(cat("--columns: --data ", facts.name, " has no column '", column,
                      "' (its columns: ", join(facts.columns, ", "), ")",
                      did_you_mean(column, facts.columns)));
}

DataFacts facts_of_classes(const datasets::RowSource& source, const std::string& name,
                           const NamedColumns& columns) {
  DataFacts facts{.name = name, .kind = DataKind::kClasses};
  const Json row = source.row(0);
  for (const auto& [key, value] : row.as_object()) facts.columns.push_back(key);
  for (const std::string& column : {columns.text, columns.pair, columns.label}) {
    if (!column.empty()) check_column(row, column, facts);
  }
  facts.classes = look_at_classes(source, {columns.text, columns.pair, columns.label}, name);
  return facts;
}

/// Whether the data's first file is CSV.
bool is_csv(const std::string& name) {
  const std::vector<std::string> files = datasets::find_data_files(source_of(name), "train");
  return !files.empty() && (files.front().ends_with(".csv") || files.front().ends_with(".tsv"));
}

DataFacts facts_of_source(const std::string& name, const NamedColumns& columns, bool has_classes,
                          bool is_on_hub) {
  const datasets::RowSource source(source_of(name));
  DataFacts facts = has_classes ? facts_of_classes(source, name, columns)
                                : facts_of_row(source.row(0), name, columns, is_csv(name));
  facts.num_rows = source.size();
  for (const std::string& file : datasets::find_data_files(source_of(name), "train")) {
    facts.num_bytes += file_size(file);
  }
  facts.is_on_hub = is_on_hub;
  return facts;
}

/// The prefix of PREFIX.bin and PREFIX.idx, whichever of the three is named; "" for other files.
std::string prefix_of_tokens(const std::string& name) {
  const bool is_part = name.ends_with(".bin") || name.ends_with(".idx");
  const std::string prefix = is_part ? name.substr(0, name.size() - 4) : name;
  return path_exists(prefix + ".bin") && path_exists(prefix + ".idx") ? prefix : "";
}

/// Runs what fetches from the hub; a failure says too which path of this machine may have been
/// meant.
template <typename Fetch>
auto fetched(const std::string& name, const Fetch& fetch) {
  try {
    return fetch();
  } catch (const hub::HubError& error) {
    throw UserError(cat(error.what(), hub::local_hint(name)), error.code());
  }
}

bool is_plain_text(const std::string& path) {
  return path.ends_with(".txt") || path.ends_with(".md");
}

}  // namespace

TokenizerFacts look_at_tokenizer(const std::string& folder) {
  return {tokenizers::find_chat_template(folder).has_value(), has_eos(folder)};
}

ModelFacts look_at_model(const std::string& name, const char* option, Reporter& reporter) {
  ModelFacts facts{.name = name, .folder = name};
  std::vector<std::string> files;
  if (is_directory(name)) {
    facts.name = fs::canonical(name);
    facts.folder = facts.name;
    files = list_directory(name);
  } else if (!path_exists(name) && hub::looks_like_hub_name(name)) {
    hub::Hub hub(patient_settings(), reporter);
    const hub::Repository repository{hub::RepositoryKind::kModel, name};
    const hub::Snapshot snapshot = fetched(name, [&] {
      return hub::fetch_model(hub, repository,
                              {hub::ModelPart::kConfig, hub::ModelPart::kTokenizer});
    });
    facts.folder = snapshot.folder;
    for (const hub::HubFile& file : snapshot.files) files.push_back(file.path);
  } else {
    throw UserError(cat(option, " ", name, " is no folder, and no name of the hub (org/name)",
                        path_exists(name) ? "" : similar_path_hint(name)));
  }
  const Json config = Json::parse_file(path_join(facts.folder, "config.json"));
  const models::FamilyCheck family = models::find_family(config);
  if (!family.is_known) throw UnsupportedError(cat(option, " ", name, ": ", family.reason));
  facts.architecture = family.architecture;
  const Json* text = config.find("text_config");
  const Json& sizes = text != nullptr && text->is_object() ? *text : config;
  facts.num_positions =
      sizes.get("max_position_embeddings", sizes.get("n_positions", kUsualPositions));
  if (const auto own = models::encoder_positions(config)) facts.num_positions = *own;
  facts.is_encoder = models::is_encoder(config);
  facts.reads_sources = models::reads_sources(config);
  constexpr int64_t kUsualOfT5 = 512;  // distances have no limit
  if (facts.reads_sources) facts.num_positions = sizes.get("n_positions", kUsualOfT5);
  if (facts.num_positions < 1) {
    throw InputError(cat(path_join(facts.folder, "config.json"), ": positions are ",
                         facts.num_positions, ", at least 1 is right"));
  }
  facts.has_weights = has_weights(files);
  facts.has_tokenizer = path_exists(path_join(facts.folder, "tokenizer.json"));
  if (facts.has_tokenizer) facts.tokenizer = look_at_tokenizer(facts.folder);
  return facts;
}

NamedColumns parse_columns(const std::string& text) {
  NamedColumns columns;
  if (text.empty()) return columns;
  const std::pair<const char*, std::string*> roles[] = {
      {"context", &columns.context}, {"question", &columns.question}, {"answer", &columns.answer},
      {"text", &columns.text},       {"label", &columns.label},       {"pair", &columns.pair}};
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string role(trim(part.substr(0, equals)));
    const auto* found = std::find_if(std::begin(roles), std::end(roles),
                                     [&](const auto& known) { return role == known.first; });
    if (found == std::end(roles) || equals == std::string::npos || equals + 1 == part.size()) {
      throw UserError(cat("--columns ", text, ": '", part,
                          "' is none of question=NAME, answer=NAME, context=NAME, text=NAME, "
                          "label=NAME, pair=NAME"));
    }
    *found->second = part.substr(equals + 1);
  }
  const bool has_question = !columns.question.empty(), has_answer = !columns.answer.empty();
  const bool has_context = !columns.context.empty(), has_text = !columns.text.empty();
  const bool has_label = !columns.label.empty(), has_pair = !columns.pair.empty();
  const bool is_classified = has_label || has_pair;
  if (has_question != has_answer || has_text == has_question || (has_context && has_text) ||
      (is_classified && !(has_text && has_label))) {
    throw UserError(cat("--columns ", text,
                        ": needed: question=NAME,answer=NAME, with context=NAME where there is "
                        "one; text=NAME; or text=NAME,label=NAME, with pair=NAME for a second "
                        "text"));
  }
  return columns;
}

DataFacts facts_of_row(const Json& row, const std::string& name, const NamedColumns& columns,
                       bool is_csv) {
  const FirstRow first{row, is_csv};
  DataFacts facts{.name = name};
  for (const auto& [key, value] : row.as_object()) facts.columns.push_back(key);
  for (const std::string& column :
       {columns.context, columns.question, columns.answer, columns.text}) {
    if (!column.empty()) check_column(row, column, facts);
  }
  if (!columns.question.empty() || !columns.text.empty()) {
    facts.kind = columns.text.empty() ? DataKind::kColumns : DataKind::kTextRows;
    facts.context = columns.context;
    facts.question = columns.question;
    facts.answer = columns.answer;
    facts.text_column = columns.text;
    return facts;
  }
  if (row.contains("pos_doc") && (row.contains("query") || row.contains("question"))) {
    facts.kind = DataKind::kQueries;
    const Json* wrong = row.find("neg_doc");
    const bool has_some = wrong != nullptr && !wrong->is_null();
    facts.num_wrong = !has_some ? 0 : wrong->is_array() ? static_cast<int64_t>(wrong->size()) : 1;
    return facts;
  }
  const bool is_chat = row.contains("messages") || row.contains("conversations");
  facts.question = first_text(first, kQuestions);
  facts.answer = first_text(first, kAnswers);
  facts.context = first_text(first, {"context", "input", "passage"});
  if (facts.context == facts.question) facts.context.clear();
  facts.text_column = first_text(first, {"text", "content"});
  if (is_chat) {
    facts.kind = DataKind::kConversations;
  } else if (!facts.question.empty() && !facts.answer.empty()) {
    facts.kind = DataKind::kColumns;
  } else if (!facts.text_column.empty()) {
    facts.kind = DataKind::kTextRows;
  } else {
    throw InputError(cat("--data ", name, ": no sample can be made of the columns ",
                         join(facts.columns, ", "), why_no_text(first),
                         "; needed: messages or conversations (chat), a question and an answer "
                         "(question, prompt, instruction, query, input; answer, completion, "
                         "response, output, target, solution), or text; --columns "
                         "question=NAME,answer=NAME names others"));
  }
  return facts;
}

DataFacts look_at_data(const std::string& name, const NamedColumns& columns, bool has_classes,
                       Reporter& reporter) {
  const bool names_columns = !columns.question.empty() || !columns.text.empty();
  const std::string prefix = prefix_of_tokens(name);
  const bool is_one_text = path_exists(name) && !is_directory(name) && is_plain_text(name);
  if (names_columns && (!prefix.empty() || is_one_text)) {
    throw UserError(cat("--columns is for rows; --data ", name, " has no columns"));
  }
  if (!prefix.empty()) {
    return {.name = fs::absolute(prefix).lexically_normal(),
            .kind = DataKind::kTokens,
            .num_bytes = file_size(prefix + ".bin")};
  }
  if (is_one_text) {
    return {
        .name = fs::canonical(name), .kind = DataKind::kPlainText, .num_bytes = file_size(name)};
  }
  if (path_exists(name))
    return facts_of_source(fs::canonical(name), columns, has_classes, /*is_on_hub=*/false);
  if (!datasets::is_hub_id(name)) {
    throw UserError(cat("--data ", name,
                        ": there is no such file or folder, and it is no name of the hub "
                        "(org/name)",
                        similar_path_hint(name)));
  }
  hub::Hub hub(patient_settings(), reporter);
  fetched(name, [&] { datasets::fetch_data_files(hub, source_of(name)); });
  return facts_of_source(name, columns, has_classes, /*is_on_hub=*/true);
}

}  // namespace automodel::setup
