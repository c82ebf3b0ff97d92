#pragma once

#include <string>
#include <string_view>

namespace automodel::serve {

/// Whether a request's Host names this machine's loopback: localhost, an address of 127.0.0.0/8 or
/// [::1], with or without a port. A page elsewhere whose name was made to lead here ("DNS
/// rebinding") has its own name in Host.
bool names_loopback(std::string_view host);

/// Whether a numeric address is one of loopback.
bool is_loopback_address(const std::string& address);

/// Whether two secrets are the same, in a time that does not depend on where they differ or on how
/// long they are.
bool same_secret(std::string_view given, std::string_view wanted);

/// The token of "Bearer TOKEN"; "" for another text.
std::string_view bearer_token(std::string_view authorization);

/// A text of `num_bytes` random bytes in hexadecimal. Throws InternalError without randomness.
std::string random_secret(size_t num_bytes);

/// "'sha256-...'": how a Content-Security-Policy names a script or a style sheet.
std::string policy_hash(std::string_view text);

/// A text that changes when these bytes do, in quotes: an ETag.
std::string entity_tag(std::string_view bytes);

/// A text as a part of an address: what has a meaning there, or is not ASCII, as %XX. Slashes stay.
std::string percent_encoded(std::string_view text);

}  // namespace automodel::serve
