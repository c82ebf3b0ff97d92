#include "report/records/flat_record.h"

#include <charconv>

#include "core/text.h"

namespace automodel::report {

namespace {

/// Behind the digits from here on; where there is none, null.
const char* behind_digits(const char* at, const char* end) {
  if (at == end || !is_digit(*at)) return nullptr;
  while (at != end && is_digit(*at)) ++at;
  return at;
}

/// Behind a number as JSON writes it; null where there is none.
const char* behind_number(const char* at, const char* end) {
  if (at != end && *at == '-') ++at;
  const bool has_zero = at != end && *at == '0';
  at = has_zero ? at + 1 : behind_digits(at, end);
  if (at != nullptr && at != end && *at == '.') at = behind_digits(at + 1, end);
  if (at != nullptr && at != end && (*at == 'e' || *at == 'E')) {
    ++at;
    if (at != end && (*at == '+' || *at == '-')) ++at;
    at = behind_digits(at, end);
  }
  return at;
}

}  // namespace

FlatRecord::FlatRecord(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {
  skip_space();
  if (!take('{')) end_ = at_;
}

std::optional<FlatMember> FlatRecord::next() {
  skip_space();
  if (take('}')) {
    skip_space();
    is_whole_ = at_ == end_;
    return std::nullopt;
  }
  if (!is_first_) {
    if (!take(',')) return std::nullopt;
    skip_space();
  }
  is_first_ = false;
  const auto key = take_text();
  if (!key) return std::nullopt;
  skip_space();
  if (!take(':')) return std::nullopt;
  skip_space();
  FlatMember member{*key, std::nullopt, {}};
  if (const auto text = take_text()) {
    member.text = *text;
    return member;
  }
  member.number = take_number();
  return member.number || take_word() ? std::optional(member) : std::nullopt;
}

void FlatRecord::skip_space() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
}

bool FlatRecord::take(char wanted) {
  if (at_ == end_ || *at_ != wanted) return false;
  ++at_;
  return true;
}

std::optional<std::string_view> FlatRecord::take_text() {
  if (at_ == end_ || *at_ != '"') return std::nullopt;
  const char* const begin = at_ + 1;
  const char* byte = begin;
  while (byte != end_ && *byte != '"') {
    const auto code = static_cast<unsigned char>(*byte);
    if (code < 0x20 || code >= 0x7f || code == '\\') return std::nullopt;
    ++byte;
  }
  if (byte == end_) return std::nullopt;
  at_ = byte + 1;
  return std::string_view(begin, static_cast<size_t>(byte - begin));
}

std::optional<double> FlatRecord::take_number() {
  const char* const behind = behind_number(at_, end_);
  if (behind == nullptr) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(at_, behind, value);
  if (error != std::errc() || end != behind) return std::nullopt;  // too large, say
  at_ = behind;
  return value;
}

bool FlatRecord::take_word() {
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  for (const std::string_view word : {"null", "true", "false"}) {
    if (!rest.starts_with(word)) continue;
    at_ += word.size();
    return true;
  }
  return false;
}

}  // namespace automodel::report
