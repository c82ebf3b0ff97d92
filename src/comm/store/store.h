#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace automodel::comm {

/// The process that serves the store has ended.
class StoreGone final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Keys and values that all ranks of a run share. Use from one thread at a time; every call throws
/// StoreGone when the server is unreachable.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets a key that is not set; returns what it then holds. `value` is not "".
  virtual std::string set_if_absent(const std::string& key, const std::string& value) = 0;
  /// Waits for the key; nullopt when it is not set within `seconds`.
  virtual std::optional<std::string> get(const std::string& key, double seconds) = 0;
  virtual bool has(const std::string& key) = 0;
  /// Adds to a counter that begins at 0; returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Forgets a key, which need not be set.
  virtual void erase(const std::string& key) = 0;
  /// Makes another connection, for another thread.
  virtual std::unique_ptr<Store> connect_again() = 0;
};

}  // namespace automodel::comm
