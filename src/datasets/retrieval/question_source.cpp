#include "datasets/retrieval/question_source.h"

#include <map>
#include <utility>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

constexpr std::string_view kHub = "hf://";

/// The parts of hf://ORGANIZATION/NAME/SUBSET.
struct HubSubset {
  std::string repository;
  std::string subset;
};

HubSubset parse_hub_entry(const QuestionEntry& entry) {
  std::string rest = entry.path.substr(kHub.size());
  while (rest.ends_with('/')) rest.pop_back();
  const size_t first = rest.find('/');
  const size_t second = first == std::string::npos ? first : rest.find('/', first + 1);
  if (first == 0 || second == std::string::npos || second == first + 1) {
    throw InputError(cat("'", entry.path,
                         "' is not hf://ORGANIZATION/NAME/SUBSET, a subset of a data set of the "
                         "hub"));
  }
  return {rest.substr(0, second), rest.substr(second + 1)};
}

SourceOptions hub_source(const QuestionEntry& entry, std::string_view suffix) {
  const HubSubset parsed = parse_hub_entry(entry);
  SourceOptions source{{parsed.repository}};
  source.name = cat(parsed.subset, suffix);
  return source;
}

/// A value that may be a list, as a list; nothing for null.
std::vector<Json> as_list(const Json* value) {
  if (value == nullptr || value->is_null()) return {};
  if (value->is_array()) return value->as_array();
  return {*value};
}

/// The question of a row, whose corpus is not known yet.
Question read_question(const Json& row, const std::string& origin) {
  if (!row.is_object()) throw InputError(cat(origin, ": a question is an object"));
  Question out;
  const Json* text = row.find("query");
  if (text == nullptr) text = row.find("question");
  if (text == nullptr) {
    throw InputError(cat(origin,
                         ": no 'query' (or 'question'), 'pos_doc' and 'neg_doc' are the "
                         "others"));
  }
  if (!text->is_string()) {
    throw InputError(cat(origin, ": the query is ", text->kind(), ", a text is needed"));
  }
  out.text = text->as_string();
  out.right = as_list(row.find("pos_doc"));
  out.wrong = as_list(row.find("neg_doc"));
  if (out.right.empty()) {
    throw InputError(cat(origin, ": no 'pos_doc', the passage that answers the query"));
  }
  return out;
}

/// Rows of a file whose passages are texts.
class InlineQuestions final : public QuestionSource {
 public:
  explicit InlineQuestions(const std::string& path) : rows_({{path}}) {}

  int64_t size() const override { return rows_.size(); }
  Question question(int64_t index) const override {
    return read_question(rows_.row(index), rows_.origin(index));
  }
  std::string origin(int64_t index) const override { return rows_.origin(index); }
  std::vector<DataFingerprint> files() const override { return rows_.files(); }
  uint64_t order_checksum() const override { return rows_.order_checksum(); }

 private:
  RowSource rows_;
};

/// The folder of passages that a JSON file of questions names, with what it says of itself.
std::shared_ptr<const PassageCorpus> open_corpus(const std::string& folder) {
  const std::string about = path_join(folder, "merlin_metadata.json");
  if (!path_exists(about)) throw InputError(cat("there is no ", about, ", which names the corpus"));
  const Json facts = Json::parse_file(about);
  const std::string kind = facts.get("class", "");
  if (kind != "TextQADataset") {
    throw InputError(cat(about, ": class '", kind,
                         "' is not in this version, which reads passages of TextQADataset (columns "
                         "id and text)"));
  }
  const std::string name = facts.get("corpus_id", "");
  if (name.empty()) throw InputError(cat(about, ": no corpus_id"));
  SourceOptions rows{find_data_files({{folder}}, "train")};
  std::erase(rows.paths, about);  // which is no row
  return std::make_shared<PassageCorpus>(
      rows, name,
      PassageCorpus::Instructions{facts.get("query_instruction", ""),
                                  facts.get("passage_instruction", "")});
}

/// A JSON file with "corpus" (folders) and "data" (questions that name passages by their ids).
class CorpusQuestions final : public QuestionSource {
 public:
  CorpusQuestions(DataFingerprint file, Json content)
      : path_(file.path), content_(std::move(content)), files_({std::move(file)}) {
    const std::string& path = path_;
    const Json* data = content_.find("data");
    if (data == nullptr || !data->is_array() || data->size() == 0) {
      throw InputError(cat(path, ": no list 'data' of questions beside 'corpus'"));
    }
    for (const Json& each : as_list(content_.find("corpus"))) {
      const std::string folder = each.is_object() ? each.get("path", "") : "";
      if (folder.empty()) throw InputError(cat(path, ": a corpus without 'path', its folder"));
      const bool is_absolute = folder.starts_with('/');
      auto corpus = open_corpus(is_absolute ? folder : path_join(parent_path(path), folder));
      for (DataFingerprint& file : corpus->files()) files_.push_back(std::move(file));
      corpora_.emplace(corpus->name(), std::move(corpus));
    }
  }

  int64_t size() const override { return std::ssize(rows()); }
  Question question(int64_t index) const override {
    const Json& row = rows()[static_cast<size_t>(index)];
    Question out = read_question(row, origin(index));
    const std::string corpus = row.get("corpus_id", "");
    const auto found = corpora_.find(corpus);
    if (found == corpora_.end()) {
      std::vector<std::string> names;
      for (const auto& [name, each] : corpora_) names.push_back(name);
      throw InputError(cat(origin(index), ": corpus_id '", corpus,
                           "' is none of this file's: ", join(names, ", ")));
    }
    out.corpus = found->second.get();
    return out;
  }
  std::string origin(int64_t index) const override { return cat(path_, ": data[", index, "]"); }
  std::vector<DataFingerprint> files() const override { return files_; }
  uint64_t order_checksum() const override { return 0; }  // all of it, as it is

 private:
  const Json::Array& rows() const { return content_.find("data")->as_array(); }

  std::string path_;
  Json content_;
  std::vector<DataFingerprint> files_;
  std::map<std::string, std::shared_ptr<const PassageCorpus>> corpora_;
};

/// A subset of a data set of the hub.
class HubQuestions final : public QuestionSource {
 public:
  explicit HubQuestions(const QuestionEntry& entry)
      : rows_(questions_of_hub(entry)), corpus_(passages_of_hub(entry), entry.path, {}) {}

  int64_t size() const override { return rows_.size(); }
  Question question(int64_t index) const override {
    Question out = read_question(rows_.row(index), rows_.origin(index));
    out.corpus = &corpus_;
    return out;
  }
  std::string origin(int64_t index) const override { return rows_.origin(index); }
  std::vector<DataFingerprint> files() const override {
    std::vector<DataFingerprint> all = rows_.files();
    for (DataFingerprint& file : corpus_.files()) all.push_back(std::move(file));
    return all;
  }
  uint64_t order_checksum() const override { return rows_.order_checksum(); }

 private:
  RowSource rows_;
  PassageCorpus corpus_;
};

/// The questions of a JSON file that names the folders of their passages; null for other files.
std::unique_ptr<CorpusQuestions> open_with_corpus(const std::string& path) {
  if (!path.ends_with(".json")) return nullptr;
  const DataFile file(path);
  const std::string text = file.read(0, file.size());
  Json content;
  try {
    content = Json::parse(text, path);
  } catch (const InputError&) {
    return nullptr;  // lines of JSON are no JSON text as a whole
  }
  if (!content.is_object() || !content.contains("corpus")) return nullptr;
  return std::make_unique<CorpusQuestions>(DataFingerprint{path, file.state(), checksum_of(text)},
                                           std::move(content));
}

}  // namespace

SourceOptions questions_of_hub(const QuestionEntry& entry) {
  return hub_source(entry, "");
}

SourceOptions passages_of_hub(const QuestionEntry& entry) {
  return hub_source(entry, "_corpus");
}

std::unique_ptr<QuestionSource> open_questions(const QuestionEntry& entry) {
  if (entry.is_on_hub()) return std::make_unique<HubQuestions>(entry);
  if (auto with_corpus = open_with_corpus(entry.path)) return with_corpus;
  return std::make_unique<InlineQuestions>(entry.path);
}

std::optional<std::string> check_questions(const QuestionEntry& entry) {
  if (entry.is_on_hub()) {
    for (const SourceOptions& source : {questions_of_hub(entry), passages_of_hub(entry)}) {
      if (auto note = describe_source(source).note) return note;
    }
    return std::nullopt;
  }
  if (!path_exists(entry.path)) throw InputError(cat("there is no file '", entry.path, "'"));
  if (const auto with_corpus = open_with_corpus(entry.path)) {
    const Question first = with_corpus->question(0);
    passage_of(first, first.right[0], with_corpus->origin(0));
    return std::nullopt;
  }
  const SourceDescription found = describe_source({{entry.path}});
  const std::string origin = found.first_path;
  const Question first = read_question(found.first_row, origin);
  passage_of(first, first.right[0], origin);
  return std::nullopt;
}

Passage passage_of(const Question& question, const Json& value, const std::string& what) {
  if (value.is_object() && value.contains("image") && !value.find("image")->is_null() &&
      value.get("image", "") != "") {
    throw UnsupportedError(cat(what, ": passages that are images are not in this version"));
  }
  const Json* id = value.is_object() ? value.find("id") : &value;
  const Json* text = value.is_object() ? value.find("text") : nullptr;
  const bool is_named = question.corpus != nullptr && id != nullptr;
  if (!is_named && (text != nullptr || question.corpus == nullptr)) {
    if (value.is_object() && text == nullptr) {
      throw InputError(cat(what, ": a passage without 'text'"));
    }
    const Json& own = text != nullptr ? *text : value;
    if (own.is_null()) return {};
    if (!own.is_string()) {
      throw InputError(cat(what, ": a passage is ", own.kind(), ", a text is needed"));
    }
    return {"", own.as_string()};
  }
  if (id == nullptr) throw InputError(cat(what, ": a passage has neither 'id' nor 'text'"));
  const std::string name = passage_id(*id);
  return {name, question.corpus->text(name, what)};
}

}  // namespace automodel::datasets
