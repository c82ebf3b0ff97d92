#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "chat/chat_template.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::chat {
namespace {

std::string data_path(const std::string& name) {
  return path_join(path_join(std::getenv("AUTOMODEL_SOURCE_DIR"), "tests/chat/data"), name);
}

std::vector<Json> read_cases() {
  std::vector<Json> cases;
  std::istringstream lines(read_file(data_path("cases.jsonl")));
  for (std::string line; std::getline(lines, line);) cases.push_back(Json::parse(line, "case"));
  return cases;
}

std::string source_of(const Json& golden) {
  if (const Json* text = golden.find("text")) return text->as_string();
  return read_file(data_path(cat("templates/", golden.at("template").as_string(), ".jinja")));
}

Json spans_of(const Rendering& rendering) {
  Json spans = Json::array();
  for (const auto& span : rendering.generation) {
    spans.push_back(Json(Json::Array{Json(span.begin), Json(span.end)}));
  }
  return spans;
}

TEST(ChatGoldenTest, TemplatesRenderAsTransformersRendersThem) {
  int num_rendered = 0;
  for (const Json& golden : read_cases()) {
    const Json* rendered = golden.find("rendered");
    if (rendered == nullptr) continue;
    SCOPED_TRACE(golden.dump());
    const ChatTemplate chat(source_of(golden), "template");
    const Rendering ours = chat.render(golden.at("variables"), 0);
    EXPECT_EQ(ours.text, rendered->as_string());
    EXPECT_EQ(spans_of(ours).dump(), golden.at("generation").dump());
    ++num_rendered;
  }
  EXPECT_GT(num_rendered, 60);
}

TEST(ChatGoldenTest, WhatFailsThereFailsHereWithTheSameMessage) {
  int num_failed = 0;
  for (const Json& golden : read_cases()) {
    const Json* error = golden.find("error");
    if (error == nullptr) continue;
    SCOPED_TRACE(golden.dump());
    ++num_failed;
    try {
      ChatTemplate(source_of(golden), "template").render(golden.at("variables"), 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const TemplateError& failure) {
      EXPECT_EQ(failure.message(), error->as_string());
      EXPECT_GT(failure.line(), 0);
      EXPECT_GT(failure.column(), 0);
    }
  }
  EXPECT_GT(num_failed, 20);
}

}  // namespace
}  // namespace automodel::chat
