#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace automodel::test {

/// What goes wrong with a request.
struct HubFault {
  int status = 0;           ///< an error of this status; 0: none
  std::string retry_after;  ///< with it
  int64_t cut_after = -1;   ///< the connection ends after so many bytes of the body
  bool is_short = false;    ///< with cut_after: the server says that this is all
  bool has_wrong_bytes = false;
  bool knows_no_ranges = false;
  double pause_seconds = 0;  ///< in front of the body
};

/// What a client asked for.
struct HubRequest {
  std::string method;
  std::string target;         ///< with the query
  std::string authorization;  ///< "" when there was none
  std::string range;
};

/// A server on loopback that speaks the hub's protocol: revisions, trees, resolve, and the store of
/// large files that it redirects to, which is a host of its own.
class HubServer final {
 public:
  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  /// http://127.0.0.1:PORT
  std::string endpoint() const;

  /// A file of "models/org/name" or "datasets/org/name" on main. Large ones are redirected.
  void add(const std::string& repository, const std::string& path, const std::string& bytes,
           bool is_large = false);
  /// Every file below ROOT/models/ORG/NAME and ROOT/datasets/ORG/NAME; safetensors and Parquet are
  /// large.
  void add_folder(const std::string& root);
  /// Another name for the commit as it is now.
  void add_reference(const std::string& repository, const std::string& revision);
  /// The repository's current commit.
  std::string commit(const std::string& repository) const;
  /// Demands this token; "" for none. `error_code` and `status` are what others get.
  void demand_token(const std::string& repository, const std::string& token,
                    const std::string& error_code = "GatedRepo", int status = 403);
  void set_page_size(size_t num_files);
  /// The next requests whose target holds `part` meet these, one each.
  void add_faults(const std::string& part, const std::vector<HubFault>& faults);

  std::vector<HubRequest> requests() const;
  size_t num_requests(const std::string& part) const;

 private:
  struct File {
    std::shared_ptr<const std::string> bytes;
    std::string git_sha1;
    std::string sha256;  ///< "" when it is not large
  };
  struct Commit {
    std::map<std::string, File> files;
  };
  struct Repository {
    std::string head;
    std::map<std::string, std::string> references;
    std::map<std::string, Commit> commits;
    std::string token, error_code;
    int error_status = 0;
  };
  struct Answer {
    int status = 200;
    std::string fields;
    std::shared_ptr<const std::string> body;
    uint64_t begin = 0;
  };

  void accept_on(int fd, bool is_store);
  void serve(int fd, bool is_store);
  bool answer_one(int fd, bool is_store, std::string& buffer);
  Answer answer(const HubRequest& request, bool is_store, const HubFault& fault) const;
  Answer answer_api(const Repository& repository, const std::string& name, const std::string& rest,
                    const std::string& query) const;
  Answer answer_file(const Repository& repository, const std::string& rest,
                     const HubRequest& request, const HubFault& fault) const;
  HubFault take_fault(const HubRequest& request);

  int hub_fd_ = -1, store_fd_ = -1;
  int hub_port_ = 0, store_port_ = 0;
  std::atomic<bool> is_stopped_{false};
  mutable std::mutex mutex_;
  std::map<std::string, Repository> repositories_;
  std::map<std::string, File> large_;  ///< by sha256
  std::vector<std::pair<std::string, std::deque<HubFault>>> faults_;
  std::vector<HubRequest> requests_;
  size_t page_size_ = 1000;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;  // of connections, guarded
  std::thread hub_thread_, store_thread_;
};

}  // namespace automodel::test
