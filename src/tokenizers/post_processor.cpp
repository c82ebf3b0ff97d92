#include "tokenizers/post_processor.h"

#include <array>

#include "core/error.h"
#include "core/text.h"

namespace automodel::tokenizers {

namespace {

int64_t read_id(const Component& component, const Json& value) {
  constexpr int64_t kMaxId = 0xFFFFFFFF;
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > kMaxId) {
    component.fail("a token id must be a whole number, not negative");
  }
  return value.as_int();
}

/// "sep" and "cls" of BERT's processors: [token, id].
int64_t read_token_id(const Component& component, std::string_view key) {
  const Json& pair = component.member(key);
  if (!pair.is_array() || pair.size() != 2) component.fail(cat(key, " must be [token, id]"));
  return read_id(component, pair.as_array()[1]);
}

}  // namespace

PostProcessor::PostProcessor(const Component& component) {
  add_stage(component);
}

void PostProcessor::add_stage(const Component& component) {
  const std::string& type = component.type();
  if (type == "ByteLevel") return;  // it trims offsets, which nobody here asks for
  if (type == "TemplateProcessing") return add_template(component);
  if (type == "BertProcessing" || type == "RobertaProcessing") return add_pair(component);
  if (type == "Sequence") {
    for (const Component& part : component.list("processors")) add_stage(part);
    return;
  }
  constexpr std::array<std::string_view, 5> kKnown = {
      "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"};
  component.fail_unknown(kKnown);
}

void PostProcessor::add_template(const Component& component) {
  const Json& single = component.member("single");
  if (!single.is_array()) component.fail("single must be a list");
  const Json& specials = component.member("special_tokens");
  std::vector<Part> stage;
  for (const Json& piece : single.as_array()) {
    const Json* sequence = piece.find("Sequence");
    const Json* special = piece.find("SpecialToken");
    const Json* named = sequence != nullptr ? sequence : special;
    const Json* id = named == nullptr ? nullptr : named->find("id");
    if (id == nullptr || !id->is_string()) {
      component.fail("single must hold {\"Sequence\": {\"id\": ...}} and {\"SpecialToken\": ...}");
    }
    if (sequence != nullptr) {
      if (id->as_string() != "A") component.fail("single uses a sequence other than A");
      stage.push_back({true, {}});
      continue;
    }
    const Json* token = specials.find(id->as_string());
    const Json* ids = token == nullptr ? nullptr : token->find("ids");
    if (ids == nullptr || !ids->is_array()) {
      component.fail(cat("special_tokens lacks '", id->as_string(), "' or its ids"));
    }
    Part part;
    for (const Json& value : ids->as_array()) part.ids.push_back(read_id(component, value));
    stage.push_back(std::move(part));
  }
  stages_.push_back(std::move(stage));
}

void PostProcessor::add_pair(const Component& component) {
  const int64_t cls = read_token_id(component, "cls");
  const int64_t sep = read_token_id(component, "sep");
  stages_.push_back({{false, {cls}}, {true, {}}, {false, {sep}}});
}

std::vector<int64_t> PostProcessor::apply(std::vector<int64_t> ids, bool add_special_tokens) const {
  for (const std::vector<Part>& stage : stages_) {
    std::vector<int64_t> out;
    out.reserve(ids.size() + stage.size());
    for (const Part& part : stage) {
      if (part.is_sequence) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (add_special_tokens) {
        out.insert(out.end(), part.ids.begin(), part.ids.end());
      }
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace automodel::tokenizers
