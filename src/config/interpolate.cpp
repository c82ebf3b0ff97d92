#include "config/interpolate.h"

#include <cstdlib>

#include "core/text.h"

namespace automodel::config {

namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_name_part(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

/// The end of a name after `$`: words joined by single dots, the first not starting with a digit.
size_t name_end(std::string_view text, size_t begin) {
  size_t end = begin;
  if (end >= text.size() || !is_name_start(text[end])) return begin;
  while (end < text.size()) {
    if (is_name_part(text[end])) {
      ++end;
    } else if (text[end] == '.' && end + 1 < text.size() && is_name_part(text[end + 1])) {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

/// What is right where a name holds a shell's default, as `${A:-b}`.
std::string shell_default_hint(std::string_view name) {
  const size_t colon = name.find(":-");
  if (colon == std::string_view::npos) return "";
  return cat(" A default follows a comma: '${", name.substr(0, colon), ",", name.substr(colon + 2),
             "}'.");
}

void replace(std::string_view token, std::string_view name, std::optional<std::string> fallback,
             const Environment& environment, Interpolated& out) {
  std::optional<std::string> value = environment(std::string(name));
  if (!value) value = std::move(fallback);
  if (value) {
    out.text += *value;
    return;
  }
  out.text += token;
  out.problems.push_back(cat("Environment variable '", name, "' is not set (required by '", token,
                             "').", shell_default_hint(name)));
}

void replace_braced(std::string_view token, const Environment& environment, Interpolated& out) {
  std::string_view inner = trim(token.substr(2, token.size() - 3));
  constexpr std::string_view kResolver = "oc.env:";
  if (inner.starts_with(kResolver)) inner = trim(inner.substr(kResolver.size()));
  std::optional<std::string> fallback;
  if (const size_t comma = inner.find(','); comma != std::string_view::npos) {
    fallback = std::string(trim(inner.substr(comma + 1)));
    inner = trim(inner.substr(0, comma));
  }
  replace(token, inner, std::move(fallback), environment, out);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

Interpolated interpolate(std::string_view text, const Environment& environment) {
  Interpolated out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t dollar = std::min(text.find('$', at), text.size());
    out.text += text.substr(at, dollar - at);
    at = dollar;
    if (at >= text.size()) break;
    if (at + 1 < text.size() && text[at + 1] == '{') {
      const size_t close = text.find('}', at);
      if (close != std::string_view::npos && close > at + 2) {
        replace_braced(text.substr(at, close + 1 - at), environment, out);
        at = close + 1;
        continue;
      }
      out.has_open_brace = out.has_open_brace || close == std::string_view::npos;
    }
    const size_t end = name_end(text, at + 1);
    if (end > at + 1) {
      const std::string_view token = text.substr(at, end - at);
      replace(token, token.substr(1), std::nullopt, environment, out);
      at = end;
    } else {
      out.text.push_back('$');
      ++at;
    }
  }
  return out;
}

}  // namespace automodel::config
