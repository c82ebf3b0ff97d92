#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "comm/store/store_wire.h"

namespace automodel::comm {

/// Where a run's store is, and how to connect.
struct StorePlace {
  std::string host;
  int port = 0;
  std::string secret;
  double timeout_seconds = 60;  ///< for connecting; waits for keys have their own
};

/// A connection to a StoreServer, as a c10d::Store. Thread-safe; sends one request at a time.
/// Throws c10::DistNetworkError when the server is gone or did not answer once, c10::DistStoreError
/// when a key is not set in time.
class StoreClient final : public c10d::Store {
 public:
  /// Throws c10::DistNetworkError when nobody answers in time, or when the server does not know the
  /// secret or refuses ours.
  explicit StoreClient(StorePlace place);
  ~StoreClient() override;
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& wanted) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  std::string ask(StoreOperation operation, const WireWriter& arguments, double extra_seconds = 0);
  std::optional<std::string> wait_for(const std::string& key, double seconds);

  StorePlace place_;
  std::mutex mutex_;  // held during a request
  int fd_ = -1;
  std::string lost_;  ///< why no further request is sent; "" while the server answers
};

}  // namespace automodel::comm
