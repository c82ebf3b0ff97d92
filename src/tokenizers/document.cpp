#include "tokenizers/document.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace automodel::tokenizers {

void StringList::push_back(std::string_view text) {
  bytes_ += text;
  ends_.push_back(bytes_.size());
}

namespace {

/// Reads decimal numbers as the reference implementation does, whose results are not always the
/// nearest doubles: it takes the digits as an integer, as far as 64 bits hold them, and multiplies
/// or divides that once by a power of ten.
class ScoreReader final {
 public:
  /// `text` is a number as JSON writes it. Infinite when it is too large.
  double read(std::string_view text) {
    if (powers_.empty()) fill_powers();
    const bool is_negative = text.starts_with('-');
    if (is_negative) text.remove_prefix(1);
    uint64_t digits = 0;
    int64_t exponent = 0;
    const size_t mantissa_size = std::min(text.find_first_of("eE"), text.size());
    read_digits(text.substr(0, mantissa_size), digits, exponent);
    if (mantissa_size < text.size()) exponent += read_exponent(text.substr(mantissa_size + 1));
    const double value = scaled(static_cast<double>(digits), exponent);
    return is_negative ? -value : value;
  }

 private:
  static constexpr int64_t kLargestPower = 308;

  void fill_powers() {
    for (int64_t i = 0; i <= kLargestPower; ++i) {
      const std::string text = cat("1e", i);
      std::from_chars(text.data(), text.data() + text.size(), powers_.emplace_back());
    }
  }

  /// Digits that do not fit are left out, behind the point without a trace.
  static void read_digits(std::string_view text, uint64_t& digits, int64_t& exponent) {
    bool is_behind_point = false;
    bool is_full = false;
    for (const char c : text) {
      if (c == '.') {
        is_behind_point = true;
        is_full = false;  // tried anew
        continue;
      }
      const auto digit = static_cast<uint64_t>(c - '0');
      is_full = is_full || digits > (UINT64_MAX - digit) / 10;
      if (!is_full) digits = 10 * digits + digit;
      if (is_behind_point != is_full) exponent += is_behind_point ? -1 : 1;
    }
  }

  static int64_t read_exponent(std::string_view text) {
    constexpr int64_t kFar = 1'000'000'000;  // of any number
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    int64_t value = 0;
    for (const char c : text) value = std::min(10 * value + (c - '0'), kFar);
    return is_negative ? -value : value;
  }

  double scaled(double value, int64_t exponent) const {
    while (value != 0 && exponent < -kLargestPower) {
      value /= powers_.back();
      exponent += kLargestPower;
    }
    if (value == 0) return value;
    if (exponent < 0) return value / powers_[static_cast<size_t>(-exponent)];
    if (exponent > kLargestPower) return std::numeric_limits<double>::infinity();
    return value * powers_[static_cast<size_t>(exponent)];
  }

  std::vector<double> powers_;  // of ten
};

/// Receives nlohmann's parse events. Everything goes into a Json, except what lies in model.vocab
/// and model.merges.
class DocumentReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit DocumentReader(const std::string& name) { document_.name = name; }

  Document take() { return std::move(document_); }

  bool null() override { return scalar(Json()); }
  bool boolean(bool value) override { return scalar(Json(value)); }
  bool number_integer(int64_t value) override {
    return mode_ == Mode::kRest ? put(Json(value)) : big_number(static_cast<double>(value), value);
  }
  bool number_unsigned(uint64_t value) override {
    if (mode_ == Mode::kRest) return put(Json(value));
    const bool fits = value <= static_cast<uint64_t>(INT64_MAX);
    return big_number(static_cast<double>(value), fits ? static_cast<int64_t>(value) : -1);
  }
  bool number_float(double value, const std::string& text) override {
    if (mode_ == Mode::kRest) return put(Json(value));
    if (mode_ != Mode::kVocabPair) wrong_vocab();
    big_number(value, -1);
    document_.scores.back() = scores_.read(text);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool string(std::string& value) override {
    switch (mode_) {
      case Mode::kRest:
        return put(Json(std::move(value)));
      case Mode::kMerges:
        legacy_merge(value);
        return true;
      case Mode::kMergePair:
        if (pair_items_ == 2) wrong_merge();
        document_.merges.push_back(value);
        ++pair_items_;
        return true;
      case Mode::kVocabPair:
        if (pair_items_ != 0) wrong_vocab();
        document_.tokens.push_back(value);
        ++pair_items_;
        return true;
      case Mode::kVocab:
        break;
    }
    wrong_vocab();
  }

  bool key(std::string& value) override {
    if (mode_ == Mode::kVocab) {
      document_.tokens.push_back(value);
    } else {
      keys_.back() = std::move(value);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (mode_ == Mode::kRest && is_at("vocab")) {
      begin_vocab(false);
      return true;
    }
    if (mode_ != Mode::kRest) wrong_part();
    return open(Json::object());
  }

  bool start_array(size_t) override {
    if (mode_ == Mode::kRest && is_at("vocab")) {
      begin_vocab(true);
      return true;
    }
    if (mode_ == Mode::kRest && is_at("merges")) {
      if (document_.has_merges) fail("model.merges is there twice");
      document_.has_merges = true;
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kMerges || (mode_ == Mode::kVocab && document_.vocab_is_list)) {
      mode_ = mode_ == Mode::kMerges ? Mode::kMergePair : Mode::kVocabPair;
      pair_items_ = 0;
      return true;
    }
    if (mode_ != Mode::kRest) wrong_part();
    return open(Json::array());
  }

  bool end_object() override {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kRest;
      return true;
    }
    return close();
  }

  bool end_array() override {
    switch (mode_) {
      case Mode::kRest:
        return close();
      case Mode::kMergePair:
        if (pair_items_ != 2) wrong_merge();
        ++num_merges_read_;
        mode_ = Mode::kMerges;
        return true;
      case Mode::kVocabPair:
        if (pair_items_ != 2) wrong_vocab();
        mode_ = Mode::kVocab;
        return true;
      case Mode::kVocab:
      case Mode::kMerges:
        mode_ = Mode::kRest;
        return true;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string reason = error.what();
    const size_t colon = reason.find(": ", reason.find("parse error"));
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    fail(cat("not valid JSON at byte ", position, ": ", reason));
  }

 private:
  enum class Mode { kRest, kVocab, kVocabPair, kMerges, kMergePair };
  static constexpr size_t kMaxDepth = 100;

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(cat(document_.name, ": ", what));
  }
  [[noreturn]] void wrong_vocab() const {
    const bool lacks_token = document_.vocab_is_list && (mode_ == Mode::kVocab || pair_items_ == 0);
    const size_t last = document_.tokens.size() + (lacks_token ? 1 : 0);
    fail(cat("model.vocab entry ", last,
             document_.vocab_is_list ? " is not [token, score]" : " is not a token with its id"));
  }
  [[noreturn]] void wrong_merge() const {
    fail(cat("model.merges entry ", num_merges_read_ + 1, " is not a pair of tokens"));
  }
  [[noreturn]] void wrong_part() const {
    if (mode_ == Mode::kMerges || mode_ == Mode::kMergePair) wrong_merge();
    wrong_vocab();
  }

  /// Whether the value that begins is model.<name>.
  bool is_at(std::string_view name) const {
    return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name &&
           stack_.back().is_object();
  }

  void begin_vocab(bool is_list) {
    if (document_.has_vocab) fail("model.vocab is there twice");
    document_.has_vocab = true;
    document_.vocab_is_list = is_list;
    mode_ = Mode::kVocab;
  }

  bool scalar(Json value) {
    if (mode_ != Mode::kRest) wrong_part();
    return put(std::move(value));
  }

  bool big_number(double number, int64_t id) {
    if (mode_ == Mode::kVocab && !document_.vocab_is_list) {
      document_.ids.push_back(id);
    } else if (mode_ == Mode::kVocabPair && pair_items_ == 1) {
      document_.scores.push_back(number);
      document_.nearest_scores.push_back(number);
      ++pair_items_;
    } else {
      wrong_part();
    }
    return true;
  }

  /// "left right", the older form.
  void legacy_merge(std::string_view line) {
    if (line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      wrong_merge();
    }
    document_.merges.push_back(line.substr(0, space));
    document_.merges.push_back(line.substr(space + 1));
    ++num_merges_read_;
  }

  bool open(Json container) {
    if (stack_.size() >= kMaxDepth) fail(cat("nested deeper than ", kMaxDepth, " levels"));
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    return put(std::move(done));
  }

  bool put(Json value) {
    if (stack_.empty()) {
      document_.rest = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().push_back(std::move(value));
    } else {
      stack_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }

  Document document_;
  Mode mode_ = Mode::kRest;
  ScoreReader scores_;
  int pair_items_ = 0;
  size_t num_merges_read_ = 0;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;
};

}  // namespace

Document read_document(std::string_view text, const std::string& name) {
  DocumentReader reader(name);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &reader);
  Document document = reader.take();
  if (!document.rest.is_object()) {
    throw InputError(cat(name, ": expected an object, found ", document.rest.kind()));
  }
  return document;
}

}  // namespace automodel::tokenizers
