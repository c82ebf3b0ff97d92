#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"

namespace automodel::chat {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  std::string text;  ///< a name, an operator, a string's or data's content
  Value number;      ///< of kInteger and kFloat
  int line;
  int column;

  bool is(TokenType other) const { return type == other; }
  bool is_operator(std::string_view symbol) const {
    return type == TokenType::kOperator && text == symbol;
  }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// What a message calls a token.
std::string describe(const Token& token);

/// The tokens of a template, comments left out, kEnd last; trim_blocks and lstrip_blocks are on, a
/// last newline is dropped, newlines are "\n". Throws Failure with line and column.
std::vector<Token> tokenize(std::string_view source);

}  // namespace automodel::chat
