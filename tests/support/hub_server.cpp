#include "support/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace automodel::test {

namespace {

std::string hex_digest(const char* algorithm, const std::string& bytes) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), out, &size, EVP_get_digestbyname(algorithm), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[out[i] >> 4];
    text += "0123456789abcdef"[out[i] & 15];
  }
  return text;
}

std::string git_sha1(const std::string& bytes) {
  std::string all = cat("blob ", bytes.size());
  all.push_back('\0');
  return hex_digest("sha1", all + bytes);
}

/// A socket that listens on a free port of loopback.
int listen_somewhere(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  AM_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  AM_CHECK(::listen(fd, 64) == 0);
  AM_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(fd, bytes.data(), std::min(bytes.size(), size_t{1} << 20), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::shared_ptr<const std::string> shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

std::string field_of(const std::string& head, const std::string& name) {
  for (const std::string& line : split(head, '\n')) {
    if (to_lower(line).starts_with(name + ":")) {
      return std::string(trim(std::string_view(line).substr(name.size() + 1)));
    }
  }
  return "";
}

bool is_large_name(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".parquet");
}

}  // namespace

HubServer::HubServer() {
  hub_fd_ = listen_somewhere(hub_port_);
  store_fd_ = listen_somewhere(store_port_);
  hub_thread_ = std::thread([this] { accept_on(hub_fd_, false); });
  store_thread_ = std::thread([this] { accept_on(store_fd_, true); });
}

HubServer::~HubServer() {
  is_stopped_ = true;
  ::shutdown(hub_fd_, SHUT_RDWR);
  ::shutdown(store_fd_, SHUT_RDWR);
  hub_thread_.join();
  store_thread_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : connections_) ::close(fd);
  ::close(hub_fd_);
  ::close(store_fd_);
}

std::string HubServer::endpoint() const {
  return cat("http://127.0.0.1:", hub_port_);
}

void HubServer::add(const std::string& repository, const std::string& path,
                    const std::string& bytes, bool is_large) {
  const std::lock_guard lock(mutex_);
  Repository& to = repositories_[repository];
  File file{shared(bytes), git_sha1(bytes), is_large ? hex_digest("sha256", bytes) : ""};
  if (is_large) large_[file.sha256] = file;
  Commit commit = to.head.empty() ? Commit{} : to.commits[to.head];
  commit.files[path] = file;
  std::string all;
  for (const auto& [name, one] : commit.files) all += cat(name, " ", one.git_sha1, "\n");
  to.head = hex_digest("sha1", all);
  to.commits[to.head] = std::move(commit);
  to.references["main"] = to.head;
}

void HubServer::add_folder(const std::string& root) {
  const auto walk = [&](const auto& self, const std::string& repository,
                        const std::string& inside) -> void {
    const std::string folder = path_join(root, repository);
    for (const std::string& name :
         list_directory(inside.empty() ? folder : path_join(folder, inside))) {
      const std::string path = inside.empty() ? name : path_join(inside, name);
      if (is_directory(path_join(folder, path))) {
        self(self, repository, path);
      } else {
        add(repository, path, read_file(path_join(folder, path)), is_large_name(path));
      }
    }
  };
  for (const std::string& kind : list_directory(root)) {
    for (const std::string& org : list_directory(path_join(root, kind))) {
      for (const std::string& name : list_directory(path_join(root, cat(kind, "/", org)))) {
        walk(walk, cat(kind, "/", org, "/", name), "");
      }
    }
  }
}

void HubServer::add_reference(const std::string& repository, const std::string& revision) {
  const std::lock_guard lock(mutex_);
  repositories_[repository].references[revision] = repositories_[repository].head;
}

std::string HubServer::commit(const std::string& repository) const {
  const std::lock_guard lock(mutex_);
  return repositories_.at(repository).head;
}

void HubServer::demand_token(const std::string& repository, const std::string& token,
                             const std::string& error_code, int status) {
  const std::lock_guard lock(mutex_);
  Repository& to = repositories_[repository];
  to.token = token;
  to.error_code = error_code;
  to.error_status = status;
}

void HubServer::set_page_size(size_t num_files) {
  const std::lock_guard lock(mutex_);
  page_size_ = num_files;
}

void HubServer::add_faults(const std::string& part, const std::vector<HubFault>& faults) {
  const std::lock_guard lock(mutex_);
  faults_.emplace_back(part, std::deque<HubFault>(faults.begin(), faults.end()));
}

std::vector<HubRequest> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

size_t HubServer::num_requests(const std::string& part) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(
      requests_.begin(), requests_.end(),
      [&](const HubRequest& request) { return request.target.find(part) != std::string::npos; }));
}

void HubServer::accept_on(int fd, bool is_store) {
  while (!is_stopped_) {
    const int connection = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const int yes = 1;
    ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection);
    threads_.emplace_back([this, connection, is_store] { serve(connection, is_store); });
  }
}

void HubServer::serve(int fd, bool is_store) {
  std::string buffer;
  while (answer_one(fd, is_store, buffer)) {
  }
  ::shutdown(fd, SHUT_RDWR);
}

HubFault HubServer::take_fault(const HubRequest& request) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  for (auto& [part, faults] : faults_) {
    if (faults.empty() || request.target.find(part) == std::string::npos) continue;
    HubFault fault = faults.front();
    faults.pop_front();
    return fault;
  }
  return {};
}

bool HubServer::answer_one(int fd, bool is_store, std::string& buffer) {
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    char piece[4096];
    const ssize_t got = ::recv(fd, piece, sizeof(piece), 0);
    if (got <= 0) return false;
    buffer.append(piece, static_cast<size_t>(got));
  }
  const std::string head = buffer.substr(0, end);
  buffer.erase(0, end + 4);
  const std::vector<std::string> words = split(head.substr(0, head.find("\r\n")), ' ');
  if (words.size() < 2) return false;
  const HubRequest request{words[0], words[1], field_of(head, "authorization"),
                           field_of(head, "range")};
  const HubFault fault = take_fault(request);
  Answer answer;
  if (fault.status != 0) {
    answer.status = fault.status;
    answer.body = shared("a fault");
    if (!fault.retry_after.empty()) answer.fields = cat("Retry-After: ", fault.retry_after, "\r\n");
  } else {
    const std::lock_guard lock(mutex_);
    answer = this->answer(request, is_store, fault);
  }
  std::string_view body = answer.body ? std::string_view(*answer.body).substr(answer.begin) : "";
  std::string changed;
  if (fault.has_wrong_bytes) {
    changed = body;
    for (char& c : changed) c = static_cast<char>(c ^ 1);
    body = changed;
  }
  const bool is_cut = fault.cut_after >= 0 && fault.cut_after < static_cast<int64_t>(body.size());
  const size_t sent = is_cut ? static_cast<size_t>(fault.cut_after) : body.size();
  const std::string begin =
      cat("HTTP/1.1 ", answer.status,
          " Said\r\nContent-Length: ", is_cut && fault.is_short ? sent : body.size(), "\r\n",
          answer.fields, "\r\n");
  if (!send_all(fd, begin)) return false;
  if (request.method == "HEAD") return true;
  // Ends early when the server does.
  for (double waited = 0; waited < fault.pause_seconds && !is_stopped_; waited += 0.01) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return send_all(fd, body.substr(0, sent)) && (!is_cut || fault.is_short);
}

HubServer::Answer HubServer::answer(const HubRequest& request, bool is_store,
                                    const HubFault& fault) const {
  const size_t question = request.target.find('?');
  const std::string path = unescape(request.target.substr(0, question));
  const std::string query =
      question == std::string::npos ? "" : request.target.substr(question + 1);
  if (is_store) {
    const auto found = large_.find(path.substr(path.rfind('/') + 1));
    if (found == large_.end()) return {404, "", nullptr, 0};
    Repository store;
    store.commits["x"].files["x"] = {found->second.bytes, found->second.sha256, ""};
    return answer_file(store, "x/x", request, fault);
  }
  const bool is_api = path.starts_with("/api/");
  std::vector<std::string> parts = split(path.substr(is_api ? 5 : 1), '/');
  if (!is_api && parts[0] != "datasets") parts.insert(parts.begin(), "models");
  if (parts.size() < 3) return {404, "", nullptr, 0};
  const std::string name = cat(parts[0], "/", parts[1], "/", parts[2]);
  const auto found = repositories_.find(name);
  if (found == repositories_.end()) {
    return {404, "X-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not found\r\n", nullptr,
            0};
  }
  const Repository& repository = found->second;
  if (!repository.token.empty() && request.authorization != "Bearer " + repository.token) {
    return {repository.error_status, cat("X-Error-Code: ", repository.error_code, "\r\n"), nullptr,
            0};
  }
  parts.erase(parts.begin(), parts.begin() + 3);
  const std::string rest = join(parts, "/");
  if (is_api) return answer_api(repository, name, rest, query);
  if (!rest.starts_with("resolve/")) return {404, "", nullptr, 0};
  return answer_file(repository, rest.substr(8), request, fault);
}

HubServer::Answer HubServer::answer_api(const Repository& repository, const std::string& name,
                                        const std::string& rest, const std::string& query) const {
  std::string revision = rest.substr(rest.find('/') + 1);
  if (rest.empty()) revision = "main";
  const auto reference = repository.references.find(revision);
  if (reference != repository.references.end()) revision = reference->second;
  const auto commit = repository.commits.find(revision);
  if (commit == repository.commits.end()) {
    return {404, "X-Error-Code: RevisionNotFound\r\nX-Error-Message: Invalid rev id\r\n", nullptr,
            0};
  }
  if (!rest.starts_with("tree/")) {
    Json info = Json::object();
    info["id"] = Json(name.substr(name.find('/') + 1));
    info["sha"] = Json(revision);
    info["private"] = Json(false);
    info["downloads"] = Json(0);
    info["likes"] = Json(0);
    info["tags"] = Json::array();
    info["siblings"] = Json::array();
    for (const auto& [path, file] : commit->second.files) {
      Json sibling = Json::object();
      sibling["rfilename"] = Json(path);
      info["siblings"].push_back(sibling);
    }
    return {200, "Content-Type: application/json\r\n", shared(info.dump()), 0};
  }
  const size_t cursor = query.find("cursor=");
  const size_t first = cursor == std::string::npos
                           ? 0
                           : std::stoul(query.substr(cursor + std::string("cursor=").size()));
  Json tree = Json::array();
  size_t number = 0;
  for (const auto& [path, file] : commit->second.files) {
    if (number++ < first || number > first + page_size_) continue;
    Json entry = Json::object();
    entry["type"] = Json("file");
    entry["oid"] = Json(file.git_sha1);
    entry["size"] = Json(static_cast<uint64_t>(file.bytes->size()));
    entry["path"] = Json(path);
    if (!file.sha256.empty()) {
      Json lfs = Json::object();
      lfs["oid"] = Json(file.sha256);
      lfs["size"] = Json(static_cast<uint64_t>(file.bytes->size()));
      lfs["pointerSize"] = Json(132);
      entry["lfs"] = lfs;
    }
    tree.push_back(entry);
  }
  std::string fields = "Content-Type: application/json\r\n";
  if (number > first + page_size_) {
    fields += cat("Link: <", endpoint(), "/api/", name, "/", rest,
                  "?recursive=true&cursor=", first + page_size_, ">; rel=\"next\"\r\n");
  }
  return {200, fields, shared(tree.dump()), 0};
}

HubServer::Answer HubServer::answer_file(const Repository& repository, const std::string& rest,
                                         const HubRequest& request, const HubFault& fault) const {
  // A revision may have slashes: the longest that is known.
  std::string commit, path;
  for (size_t slash = rest.find('/'); slash != std::string::npos;
       slash = rest.find('/', slash + 1)) {
    const std::string revision = rest.substr(0, slash);
    const auto reference = repository.references.find(revision);
    const std::string hash =
        reference == repository.references.end() ? revision : reference->second;
    if (repository.commits.contains(hash)) {
      commit = hash;
      path = rest.substr(slash + 1);
    }
  }
  if (commit.empty()) return {404, "X-Error-Code: RevisionNotFound\r\n", nullptr, 0};
  std::string fields = cat("X-Repo-Commit: ", commit, "\r\nAccept-Ranges: bytes\r\n");
  const auto& files = repository.commits.at(commit).files;
  const auto found = files.find(path);
  if (found == files.end()) return {404, fields + "X-Error-Code: EntryNotFound\r\n", nullptr, 0};
  const File& file = found->second;
  if (!file.sha256.empty()) {
    fields += cat("X-Linked-Etag: \"", file.sha256, "\"\r\nX-Linked-Size: ", file.bytes->size(),
                  "\r\nLocation: http://localhost:", store_port_, "/store/", file.sha256, "\r\n");
    return {302, fields, shared("Found"), 0};
  }
  fields += cat("ETag: \"", file.git_sha1, "\"\r\n");
  Answer answer{200, fields, file.bytes, 0};
  if (request.range.starts_with("bytes=") && !fault.knows_no_ranges) {
    const uint64_t begin = std::stoull(request.range.substr(6));
    const uint64_t size = file.bytes->size();
    if (begin >= size) return {416, cat("Content-Range: bytes */", size, "\r\n"), nullptr, 0};
    answer.status = 206;
    answer.begin = begin;
    answer.fields += cat("Content-Range: bytes ", begin, "-", size - 1, "/", size, "\r\n");
  }
  return answer;
}

}  // namespace automodel::test
