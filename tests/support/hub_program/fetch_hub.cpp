#include <iostream>

#include "hub/hub.h"

namespace {

class Console final : public automodel::Reporter {
 public:
  void info(std::string_view text) override { std::cerr << text << "\n"; }
  void warning(std::string_view text) override { std::cerr << "warning: " << text << "\n"; }
  void error(std::string_view text) override { std::cerr << "error: " << text << "\n"; }
};

}  // namespace

/// fetch_hub model|dataset ID [FILE]...: files of a repository, or all, into the cache of the
/// environment. Prints the snapshot's folder.
int main(int argc, char** argv) {
  using namespace automodel::hub;
  if (argc < 3) {
    std::cerr << "usage: fetch_hub model|dataset ID [FILE]...\n";
    return 2;
  }
  try {
    Console console;
    Hub hub(Settings::from_environment(process_environment()), console);
    const bool is_model = std::string_view(argv[1]) == "model";
    const Repository repository{is_model ? RepositoryKind::kModel : RepositoryKind::kDataset,
                                argv[2], "main"};
    const Snapshot snapshot = hub.open(repository);
    std::vector<std::string> paths(argv + 3, argv + argc);
    if (paths.empty()) {
      for (const HubFile& file : snapshot.files) paths.push_back(file.path);
    }
    hub.fetch(repository, snapshot, paths);
    std::cout << snapshot.folder << "\n";
    return 0;
  } catch (const automodel::UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
