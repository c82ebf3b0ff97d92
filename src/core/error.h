#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "core/text.h"

namespace automodel {

/// The exit status of the process, by kind of failure (`automodel --help` explains them).
enum class ExitCode : int {
  kDone = 0,
  kInternal = 1,     ///< a bug of ours
  kRecipe = 2,       ///< wrong recipe or arguments
  kInput = 3,        ///< wrong input data, weights or checkpoint
  kRankFailed = 4,   ///< a rank, its device or its memory failed
  kNonFinite = 5,    ///< non-finite loss or gradient
  kUnsupported = 6,  ///< right, but not in this version
  kPreempted = 75,   ///< saved after a preemption signal: start it again to continue
};

/// Something that the person wrote or supplied is wrong. The text says what is wrong, where, and
/// what would be right; it is printed unchanged, without source positions of ours.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& text, ExitCode code = ExitCode::kRecipe)
      : std::runtime_error(text), code_(code) {}

  /// The exit status of the process if nobody catches this.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Wrong data, weights or checkpoint files (exit code 3).
class InputError : public UserError {
 public:
  explicit InputError(const std::string& text) : UserError(text, ExitCode::kInput) {}
};

/// Correct, but not in this version (exit code 6). Thrown before any work starts.
class UnsupportedError final : public UserError {
 public:
  explicit UnsupportedError(const std::string& text) : UserError(text, ExitCode::kUnsupported) {}
};

/// A bug of ours; the text carries the source position.
class InternalError final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The text to print for an exception that is not a UserError, without a stack trace.
std::string internal_error_text(const std::exception& error);

/// Throws InternalError with `file:line`. Used by AM_CHECK.
[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& text);

}  // namespace automodel

/// Checks an invariant of ours: AM_CHECK(n > 0, "n is ", n). Throws InternalError.
#define AM_CHECK(condition, ...)                                                          \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      ::automodel::throw_internal_error(__FILE__, __LINE__, #condition,                   \
                                        ::automodel::cat("" __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                     \
  } while (false)
