#pragma once

#include <memory>
#include <string>

namespace automodel::comm {

/// The store of a world: keys and values that all ranks see, as long as this lives. It is served
/// over TCP to those who prove that they know the run's secret (store_wire.h). Of a stranger no
/// more than a greeting is read; whoever has not proved himself within some seconds, or says
/// anything else, is hung up on, and so is the oldest such caller when there are many.
class StoreServer final {
 public:
  /// Serves on a listening socket's descriptor, which it owns from now on. Starts a thread.
  StoreServer(int listening_fd, std::string secret);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace automodel::comm
