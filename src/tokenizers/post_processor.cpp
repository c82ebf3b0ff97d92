#include "tokenizers/post_processor.h"

#include <algorithm>
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
  if (type == "Sequence") {
    for (const Component& part : component.list("processors")) add_stage(part);
    return;
  }
  constexpr std::array<std::string_view, 5> kKnown = {
      "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"};
  if (std::ranges::find(kKnown, type) == kKnown.end()) component.fail_unknown(kKnown);
  // The reference takes what the first one made for a pair of texts.
  if (template_) component.fail("a second processor that adds tokens is not supported");
  template_ = type == "TemplateProcessing" ? read_template(component) : read_pair(component);
}

std::vector<PostProcessor::Part> PostProcessor::read_template(const Component& component) {
  const Json& single = component.member("single");
  if (!single.is_array()) component.fail("single must be a list");
  const Json& specials = component.member("special_tokens");
  std::vector<Part> parts;
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
      parts.push_back({true, {}});
      continue;
    }
    const Json* token = specials.find(id->as_string());
    const Json* ids = token == nullptr ? nullptr : token->find("ids");
    if (ids == nullptr || !ids->is_array()) {
      component.fail(cat("special_tokens lacks '", id->as_string(), "' or its ids"));
    }
    Part part;
    for (const Json& value : ids->as_array()) part.ids.push_back(read_id(component, value));
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<PostProcessor::Part> PostProcessor::read_pair(const Component& component) {
  const int64_t cls = read_token_id(component, "cls");
  const int64_t sep = read_token_id(component, "sep");
  return {{false, {cls}}, {true, {}}, {false, {sep}}};
}

std::vector<int64_t> PostProcessor::apply(std::vector<int64_t> ids, bool add_special_tokens) const {
  if (!template_) return ids;
  std::vector<int64_t> out;
  out.reserve(ids.size() + template_->size());
  for (const Part& part : *template_) {
    if (part.is_sequence) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
  }
  return out;
}

}  // namespace automodel::tokenizers
