#pragma once

#include <string>

#include "core/error.h"

namespace automodel::hub {

enum class HubFailure {
  kUnreachable,  ///< offline, or no answer, or errors of the server to the last attempt
  kDenied,       ///< 401, 403: gated, or a wrong or missing token
  kAbsent,       ///< 404: no such repository, revision or file
  kBroken,       ///< an answer that makes no sense, or bytes of another checksum
};

/// What the hub did not give (exit code 3). The text says what would be right.
class HubError final : public UserError {
 public:
  HubError(HubFailure failure, const std::string& text)
      : UserError(text, ExitCode::kInput), failure_(failure) {}

  HubFailure failure() const { return failure_; }

 private:
  HubFailure failure_;
};

}  // namespace automodel::hub
