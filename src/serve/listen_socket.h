#pragma once

#include <string>

#include "core/descriptor.h"

namespace automodel::serve {

/// A socket that listens, and where.
struct ListenSocket {
  Descriptor descriptor;
  int port = 0;
};

/// Listens on a numeric address and a port; port 0 takes one that is free. Throws UserError: an
/// address that is none or not of this machine, a port that is in use (the text names one that is
/// free) or not allowed.
ListenSocket listen_on(const std::string& host, int port);

}  // namespace automodel::serve
