// What the files beside tokenizer.json add and name, as transformers' AutoTokenizer reads them.
#include <gtest/gtest.h>

#include <map>

#include "core/file.h"
#include "core/json.h"
#include "support/temporary_directory.h"
#include "tokenizers/tokenizer.h"

namespace automodel::tokenizers {
namespace {

/// The tokenizer.json of a case: its base, and what the case has for itself.
Json document_of(const Json& base, const Json& own) {
  Json document = Json::Object{{"version", "1.0"}};
  for (const Json* part : {&base, &own}) {
    for (const auto& [key, value] : part->as_object()) document[key] = value;
  }
  return document;
}

std::vector<int64_t> ids_of(const Json& list) {
  std::vector<int64_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(id.as_int());
  return ids;
}

void expect_as(const Tokenizer& tokenizer, const Json& texts, const Json& expected) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts.as_array()[i].as_string();
    const std::vector<int64_t> ids = ids_of(expected.at("ids").as_array()[i]);
    EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
    if (const Json* with_specials = expected.find("ids_special")) {
      EXPECT_EQ(tokenizer.encode(text, true), ids_of(with_specials->as_array()[i])) << text;
    }
    EXPECT_EQ(tokenizer.decode(ids, false), expected.at("decoded").as_array()[i].as_string());
  }
  std::map<std::string, std::string> named;
  for (const auto& [name, token] : expected.at("named").as_object()) {
    named[name] = token.as_string();
  }
  EXPECT_EQ(tokenizer.named_tokens(), named);
  const Json& pad = expected.at("pad");
  EXPECT_EQ(tokenizer.pad().has_value(), !pad.is_null());
  if (tokenizer.pad()) {
    EXPECT_EQ(tokenizer.pad()->id, pad.as_int());
  }
  EXPECT_EQ(tokenizer.truncates_left(), expected.at("truncates_left").as_bool());
}

/// Types of tokens are for models whose inputs tokenizer_config.json names, if it names any.
TEST(TokenizerFolders, GiveTypesUnlessTheInputsLackThem) {
  const Json all = Json::parse_file(test::source_file("tests/tokenizers/folders.json"));
  const Json& first = all.at("cases").as_array().front();
  const auto gives_types = [&](const char* config) {
    const test::TemporaryDirectory folder;
    const Json& base = all.at("bases").at(first.at("base").as_string());
    write_file_atomic(folder.file("tokenizer.json"),
                      document_of(base, first.at("document")).dump());
    write_file_atomic(folder.file("tokenizer_config.json"), config);
    return Tokenizer::load(folder.path()).gives_types();
  };
  EXPECT_TRUE(gives_types("{}"));
  EXPECT_TRUE(gives_types(R"({"model_input_names": ["input_ids", "token_type_ids"]})"));
  EXPECT_FALSE(gives_types(R"({"model_input_names": ["input_ids", "attention_mask"]})"));
}

/// The folders that scripts/goldens/make_tokenizer_folder_goldens.py describes.
TEST(TokenizerFolders, AreReadAsByTransformers) {
  const Json all = Json::parse_file(test::source_file("tests/tokenizers/folders.json"));
  EXPECT_EQ(all.at("cases").size(), 30U);
  for (const Json& it : all.at("cases").as_array()) {
    SCOPED_TRACE(it.at("name").as_string());
    const test::TemporaryDirectory folder;
    const Json& base = all.at("bases").at(it.at("base").as_string());
    write_file_atomic(folder.file("tokenizer.json"), document_of(base, it.at("document")).dump());
    for (const auto& [name, content] : it.at("files").as_object()) {
      write_file_atomic(folder.file(name), content.dump());
    }
    expect_as(Tokenizer::load(folder.path()), all.at("texts"), it.at("expected"));
  }
}

}  // namespace
}  // namespace automodel::tokenizers
