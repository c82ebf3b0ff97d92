#pragma once

namespace CLI {
class App;
}

namespace automodel::cli {

/// Adds the commands that help before a run: ls, cp, new, doctor, completion. `status`
/// gets the exit status of the one that is run; it and `app` outlive the parsing.
void add_setup_commands(CLI::App& app, int& status);

}  // namespace automodel::cli
