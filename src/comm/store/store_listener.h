#pragma once

#include <string>

namespace automodel::comm {

/// Where a store listens.
struct StoreListener {
  int fd = -1;
  bool is_everywhere = false;  ///< on all of this machine's addresses
};

/// A socket that listens on the address of `host` only, or on all addresses when that is
/// impossible: when no interface here has the address, or when ranks of other machines must connect
/// (`is_local` false) and the name means the loopback, as on machines that call themselves so.
/// Throws UserError, e.g. "port 123 is taken by another process of this host; set MASTER_PORT to a
/// free one".
StoreListener listen_for_store(const std::string& host, int port, bool is_local);

}  // namespace automodel::comm
