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

/// "type_id" of a piece of a template.
int64_t type_of(const Component& component, const Json& piece) {
  const Json* type = piece.find("type_id");
  return type == nullptr ? 0 : read_id(component, *type);
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
  if (templates_) component.fail("a second processor that adds tokens is not supported");
  if (type == "TemplateProcessing") {
    templates_ = {read_template(component, "single"), read_template(component, "pair")};
  } else {
    templates_ = read_separators(component, type == "RobertaProcessing" ? 2 : 1);
  }
}

PostProcessor::Template PostProcessor::read_template(const Component& component,
                                                     std::string_view key) {
  const bool is_pair = key == "pair";
  if (is_pair && component.json().find(key) == nullptr) return {{'A'}, {'B', {}, 1}};
  const Json& pieces = component.member(key);
  if (!pieces.is_array()) component.fail(cat(key, " must be a list"));
  const Json& specials = component.member("special_tokens");
  Template parts;
  for (const Json& piece : pieces.as_array()) {
    const Json* sequence = piece.find("Sequence");
    const Json* special = piece.find("SpecialToken");
    const Json* named = sequence != nullptr ? sequence : special;
    const Json* id = named == nullptr ? nullptr : named->find("id");
    if (id == nullptr || !id->is_string()) {
      component.fail(
          cat(key, " must hold {\"Sequence\": {\"id\": ...}} and {\"SpecialToken\": ...}"));
    }
    if (sequence != nullptr) {
      const std::string& name = id->as_string();
      if (name != "A" && !(is_pair && name == "B")) {
        component.fail(cat(key, " uses a sequence other than A", is_pair ? " and B" : ""));
      }
      parts.push_back({name[0], {}, type_of(component, *sequence)});
      continue;
    }
    const Json* token = specials.find(id->as_string());
    const Json* ids = token == nullptr ? nullptr : token->find("ids");
    if (ids == nullptr || !ids->is_array()) {
      component.fail(cat("special_tokens lacks '", id->as_string(), "' or its ids"));
    }
    Part part{0, {}, type_of(component, *special)};
    for (const Json& value : ids->as_array()) part.ids.push_back(read_id(component, value));
    parts.push_back(std::move(part));
  }
  return parts;
}

PostProcessor::Templates PostProcessor::read_separators(const Component& component,
                                                        int64_t num_between) {
  const int64_t cls = read_token_id(component, "cls");
  const int64_t sep = read_token_id(component, "sep");
  const Part begin{0, {cls}};
  const Part end{0, {sep}};
  const Part between{0, std::vector<int64_t>(static_cast<size_t>(num_between), sep)};
  // RoBERTa's texts are all of one type.
  const int64_t second = num_between > 1 ? 0 : 1;
  return {{begin, {'A'}, end}, {begin, {'A'}, between, {'B', {}, second}, {0, {sep}, second}}};
}

namespace {

void append(std::vector<int64_t>& to, const std::vector<int64_t>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

}  // namespace

std::vector<int64_t> PostProcessor::apply(std::vector<int64_t> ids, bool add_special_tokens) const {
  if (!templates_) return ids;
  std::vector<int64_t> out;
  out.reserve(ids.size() + templates_->of_text.size());
  for (const Part& part : templates_->of_text) {
    if (part.sequence != 0) {
      append(out, ids);
    } else if (add_special_tokens) {
      append(out, part.ids);
    }
  }
  return out;
}

TypedIds PostProcessor::apply(const std::vector<int64_t>& first, const std::vector<int64_t>* second,
                              bool add_special_tokens) const {
  static const Templates plain = {{{'A'}}, {{'A'}, {'B', {}, 1}}};
  const Templates& templates = templates_ ? *templates_ : plain;
  TypedIds out;
  const auto add = [&](const std::vector<int64_t>& ids, int64_t type) {
    append(out.ids, ids);
    out.types.resize(out.ids.size(), type);
  };
  for (const Part& part : second == nullptr ? templates.of_text : templates.of_pair) {
    if (part.sequence != 0) {
      add(part.sequence == 'A' ? first : *second, part.type);
    } else if (add_special_tokens) {
      add(part.ids, part.type);
    }
  }
  return out;
}

size_t PostProcessor::num_added(bool is_pair) const {
  size_t count = 0;
  if (!templates_) return count;
  for (const Part& part : is_pair ? templates_->of_pair : templates_->of_text) {
    count += part.ids.size();
  }
  return count;
}

}  // namespace automodel::tokenizers
