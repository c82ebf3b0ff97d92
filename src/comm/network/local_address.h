#pragma once

#include <string>
#include <vector>

namespace automodel::comm {

/// The numeric address of this machine from which packets to `host` (a name or an address) leave;
/// "" when the name or the way is not known. Sends nothing.
std::string address_towards(const std::string& host);

/// The machine's network interfaces that are up and have an address, without the loopback:
/// "eth0 10.0.0.5".
std::vector<std::string> interface_addresses();

}  // namespace automodel::comm
