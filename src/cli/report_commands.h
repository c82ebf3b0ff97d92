#pragma once

namespace CLI {
class App;
}

namespace automodel::cli {

/// Adds the commands on what runs wrote: report, watch and serve. The command given sets `status`,
/// which outlives the application.
void add_report_commands(CLI::App& app, int& status);

}  // namespace automodel::cli
