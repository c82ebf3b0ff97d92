// rooms: core
// files: comm/watch/beat.cpp comm/store/store_server.cpp comm/store/store_wire.cpp
// What peers say: the beat of a rank, and the bytes that reach the run's store, from somebody who
// knows its secret when the input begins with an even byte and from a stranger otherwise. Whoever
// came, the store goes on serving.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "comm/store/store_server.h"
#include "comm/store/store_wire.h"
#include "comm/watch/beat.h"
#include "core/descriptor.h"

namespace {

using namespace automodel;

const std::string kSecret = "the run's secret";
constexpr int kInputsOfAServer = 512;

sockaddr_un address_of(int number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name =
      "automodel-fuzz-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);  // beginning with 0: in no folder
  return address;
}

/// A store that listens on a name of its own.
class Server final {
 public:
  explicit Server(int number) : address_(address_of(number)) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) != 0 ||
        ::listen(fd, 16) != 0) {
      std::abort();
    }
    server_ = std::make_unique<comm::StoreServer>(fd, kSecret);
  }

  Descriptor call() const {
    Descriptor caller(::socket(AF_UNIX, SOCK_STREAM, 0));
    const timeval patience{5, 0};
    ::setsockopt(caller.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    while (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address_),
                     sizeof(address_)) != 0) {
      if (errno != EINTR) std::abort();
    }
    return caller;
  }

 private:
  sockaddr_un address_;
  std::unique_ptr<comm::StoreServer> server_;
};

// libFuzzer's timer interrupts calls: a socket with a timeout is not resumed by itself.
bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string receive(int fd, size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = ::recv(fd, bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::abort();
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void introduce(int fd) {
  const std::string own_nonce(comm::kNonceBytes, 'n');
  send_all(fd, std::string(comm::kHello) + own_nonce);
  const std::string reply = receive(fd, comm::kReplyBytes);
  const std::string nonce = reply.substr(0, comm::kNonceBytes);
  if (reply.substr(comm::kNonceBytes) != comm::prove(kSecret, "server", own_nonce, nonce)) {
    std::abort();
  }
  send_all(fd, comm::prove(kSecret, "client", own_nonce, nonce));
  if (receive(fd, comm::kWelcome.size()) != comm::kWelcome) std::abort();
}

std::string request(comm::StoreOperation operation, const comm::WireWriter& arguments) {
  return std::string(1, static_cast<char>(operation)) + comm::size_bytes(arguments.bytes().size()) +
         arguments.bytes();
}

void expect_served(const Server& server) {
  const Descriptor caller = server.call();
  introduce(caller.get());
  comm::WireWriter set;
  set.text("a key").text("its value");
  comm::WireWriter has;
  has.text("a key");
  send_all(caller.get(), request(comm::StoreOperation::kSet, set));
  receive(caller.get(), comm::size_of_bytes(receive(caller.get(), 4)));
  send_all(caller.get(), request(comm::StoreOperation::kHas, has));
  const uint32_t size = comm::size_of_bytes(receive(caller.get(), 4));
  if (receive(caller.get(), size) != std::string(1, 1)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const comm::Beat beat = comm::parse_beat(std::string(bytes));
  if (beat.lines.size() > bytes.size()) std::abort();
  beat.waited_seconds();

  static int num_inputs = 0;
  static std::unique_ptr<Server> server;
  if (num_inputs++ % kInputsOfAServer == 0) {
    if (server) expect_served(*server);
    server = std::make_unique<Server>(num_inputs);
  }
  const Descriptor caller = server->call();
  if (data[0] % 2 == 0) introduce(caller.get());
  send_all(caller.get(), bytes);
  ::shutdown(caller.get(), SHUT_WR);
  char answer[4096];
  while (::recv(caller.get(), answer, sizeof(answer), 0) > 0) {
  }
  return 0;
}
