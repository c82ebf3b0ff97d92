#pragma once

namespace CLI {
class App;
}

namespace automodel::cli {

/// Adds the commands on models and checkpoints: parity, generate, merge-lora and export. The
/// command given sets `status`, which outlives the application.
void add_model_commands(CLI::App& app, int& status);

}  // namespace automodel::cli
