#pragma once

#include <string>

namespace automodel::comm {

/// Where a store listens.
struct StoreListener {
  int fd = -1;
  bool is_everywhere = false;  ///< on all of this machine's addresses
};

/// A socket that listens on the address of `host` only. On all where that cannot be: the name is an
/// address of no interface here, or, when ranks of other machines come (`is_local` false), that of
/// the loopback, as some machines call themselves. Throws UserError; "port 123 is taken by another
/// process of this host; set MASTER_PORT to a free one".
StoreListener listen_for_store(const std::string& host, int port, bool is_local);

}  // namespace automodel::comm
