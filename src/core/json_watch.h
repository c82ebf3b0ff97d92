#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace automodel {

/// Records the names of members that this thread looks up in any Json while the watch lives, also
/// of absent ones: what of a configuration its reader does not read. Of several watches the newest
/// records.
class JsonWatch final {
 public:
  JsonWatch();
  ~JsonWatch();
  JsonWatch(const JsonWatch&) = delete;
  JsonWatch& operator=(const JsonWatch&) = delete;

  bool has_seen(std::string_view key) const { return keys_.contains(key); }

 private:
  friend class Json;
  static void see(std::string_view key);

  std::set<std::string, std::less<>> keys_;
  JsonWatch* outer_;
};

}  // namespace automodel
