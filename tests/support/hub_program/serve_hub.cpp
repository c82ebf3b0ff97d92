#include <csignal>
#include <iostream>

#include "support/hub_server.h"

/// serve_hub FOLDER: a hub of FOLDER/models/ORG/NAME and FOLDER/datasets/ORG/NAME on loopback,
/// until it is killed. Prints the line HF_ENDPOINT=..., then one a request.
int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: serve_hub FOLDER\n";
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);  // before there are threads
  automodel::test::HubServer server;
  server.add_folder(argv[1]);
  std::cout << "HF_ENDPOINT=" << server.endpoint() << std::endl;
  int number = 0;
  sigwait(&ends, &number);
  for (const auto& request : server.requests()) {
    std::cout << request.method << " " << request.target << " " << request.range << "\n";
  }
  return 0;
}
