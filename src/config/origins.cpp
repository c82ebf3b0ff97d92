#include "config/origins.h"

#include <algorithm>
#include <utility>

#include "config/print.h"
#include "config/scalar.h"
#include "core/text.h"

namespace automodel::config {

namespace {

constexpr const char* kDefault = "default";

Json entry(Json value, std::string origin) {
  Json both = Json::object();
  both["value"] = std::move(value);
  both["origin"] = std::move(origin);
  return both;
}

std::string origin_of(const Node& node, const Sources& sources) {
  const Position& place = node.position();
  if (!place.is_known()) return kDefault;
  const Source& source = sources.at(static_cast<size_t>(place.source));
  return source.is_argument ? "command line" : cat(source.name, ":", place.line);
}

bool is_one_value(const Node& node) {
  if (node.is_mapping()) return node.empty();
  return std::ranges::all_of(node.children(),
                             [](const Node& child) { return child.children().empty(); });
}

Json shown(const Node& node, bool is_secret) {
  if (node.is_interpolated()) return node.raw_text();
  if (node.is_sequence()) {
    Json list = Json::array();
    for (const Node& child : node.children()) list.push_back(shown(child, is_secret));
    return list;
  }
  const bool is_plain = node.is_null() || node.kind() == NodeKind::kBool || !node.is_scalar();
  return is_secret && !is_plain ? Json(kHiddenText) : to_json(node);
}

void add_values(const Node& node, const Sources& sources, bool is_secret, Json& values) {
  if (node.is_deleted()) return;
  is_secret = is_secret || is_secret_key(node.key());
  if (!node.path().empty() && is_one_value(node)) {
    values.as_object().emplace_back(node.path(),
                                    entry(shown(node, is_secret), origin_of(node, sources)));
    return;
  }
  for (const Node& child : node.children()) add_values(child, sources, is_secret, values);
}

/// Whether a part of a dotted key names a secret.
bool is_secret_path(std::string_view dotted) {
  for (const std::string& key : split(dotted, '.')) {
    if (is_secret_key(key)) return true;
  }
  return false;
}

}  // namespace

Json values_with_origins(const Document& document, const Diagnostics& diagnostics) {
  Json values = Json::object();
  add_values(document.root, document.sources, false, values);
  std::vector<DefaultValue> defaults = diagnostics.defaults();
  std::ranges::sort(defaults, {}, &DefaultValue::path);
  for (DefaultValue& left_out : defaults) {
    const Node* written = document.root.find_path(left_out.path);
    if (written != nullptr && !written->is_null()) continue;  // a part of the program asked again
    values.erase(left_out.path);
    values.as_object().emplace_back(std::move(left_out.path),
                                    entry(std::move(left_out.value), kDefault));
  }
  return values;
}

std::vector<std::string> without_secrets(std::vector<std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    const size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
    const size_t equals = argument.find('=');
    const size_t end = std::min(equals, argument.size());
    if (end <= begin) continue;
    const bool names_secret = is_secret_path(std::string_view(argument).substr(begin, end - begin));
    const auto is_hidden = [&](const std::string& value) {
      return names_secret || holds_secret(translate_text(value));
    };
    if (equals != std::string::npos) {
      if (is_hidden(argument.substr(equals + 1))) {
        argument = cat(std::string_view(argument).substr(0, equals + 1), kHiddenText);
      }
    } else if (begin > 0 && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      if (is_hidden(arguments[i + 1])) arguments[++i] = kHiddenText;
    }
  }
  return arguments;
}

}  // namespace automodel::config
