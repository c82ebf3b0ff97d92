#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::comm {

/// Where a rank is with one channel: a group's collectives, or its messages to or from one rank.
struct BeatLine {
  std::string group;
  std::string peer;  ///< channel_name of the other rank, "" for collectives
  int64_t num_started = 0;
  std::string waited;  ///< the operation that the rank waits for, or ""
  double wait_seconds = 0;
};

/// What a rank tells the others every second: that it lives, and where it is.
struct Beat {
  int64_t number = 0;            ///< of the rank's beats
  double computing_seconds = 0;  ///< since the rank last waited
  std::vector<BeatLine> lines;

  /// How long the rank has been waiting for others; nothing when it computes.
  std::optional<double> waited_seconds() const;
};

/// A beat as ranks leave it in the store: a line for the rank, then one a channel, fields between
/// tabs, times in milliseconds.
std::string format_beat(const Beat& beat);

/// Any text: what is no beat's line is left out.
Beat parse_beat(const std::string& text);

/// How a beat calls the messages to (from, when the reporting rank is the receiver) a rank.
std::string channel_name(int rank, bool is_receiver);

}  // namespace automodel::comm
