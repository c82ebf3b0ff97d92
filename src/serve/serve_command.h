#pragma once

#include <iosfwd>
#include <string>

namespace automodel::serve {

inline constexpr int kDefaultPort = 8265;

/// Where a token is taken from when the command line has none.
inline constexpr const char* kTokenVariable = "AUTOMODEL_SERVE_TOKEN";

/// The arguments of `automodel serve`.
struct ServeOptions {
  std::string folder;
  std::string host = "127.0.0.1";  ///< an address; "localhost" is 127.0.0.1
  int port = kDefaultPort;         ///< 0: one that is free
  std::string token;               ///< "": that of the environment, if it has one
};

/// Serves pages of the runs below a folder until SIGINT or SIGTERM, and returns 0; `out` gets a
/// line with the address. Throws UserError for what cannot be served or listened on, and for an
/// address other than loopback's without a token.
int serve_runs(const ServeOptions& options, std::ostream& out);

}  // namespace automodel::serve
