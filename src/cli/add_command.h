#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace automodel::cli {

/// A subcommand: its options, and what it does once they are read. Returns the exit status.
template <typename Command, typename App, typename... More>
void add_command(App& app, int& status, const More&... more) {
  App* parsed = app.add_subcommand(Command::kName, Command::kPurpose);
  const auto command = std::make_shared<Command>(*parsed, more...);
  parsed->callback([command, &status] { status = command->run(); });
}

inline void check_at_least_1(const char* option, std::optional<int64_t> value) {
  if (value && *value < 1) throw UserError(cat(option, " must be at least 1, found ", *value));
}

}  // namespace automodel::cli
