#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "comm/store/world_options.h"

namespace automodel::comm {

/// A connection to the run's store; also serves the store if the options say so. Throws UserError
/// when there is no answer, the port is taken, or the server does not know the run's secret.
class TcpStore final : public Store {
 public:
  explicit TcpStore(const WorldOptions& options);

  void set(const std::string& key, const std::string& value) override;
  std::string set_if_absent(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, double seconds) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  void erase(const std::string& key) override;
  std::unique_ptr<Store> connect_again() override;

  /// The store's keys with `prefix`, as a c10d::Store.
  c10::intrusive_ptr<c10d::Store> below(const std::string& prefix) const;

 private:
  TcpStore(c10::intrusive_ptr<c10d::Store> store, bool is_address)
      : store_(std::move(store)), is_address_(is_address) {}

  std::unique_ptr<StoreServer> server_;  // set if this rank serves it; null in further connections
  c10::intrusive_ptr<c10d::Store> store_;
  bool is_address_;  ///< the server's place is an address, not a name
};

/// The first line of a c10d or Gloo error, without the source position in front.
std::string reason_of(const std::string& text);

}  // namespace automodel::comm
