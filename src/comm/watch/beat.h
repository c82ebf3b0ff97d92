#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::comm {

/// How far a rank is on one channel: a group's collectives, or its messages to or from one rank.
struct BeatLine {
  std::string group;
  std::string peer;  ///< channel_name of the other rank, "" for collectives
  int64_t num_started = 0;
  std::string waited;  ///< operation that the rank is waiting for, or ""
  double wait_seconds = 0;
};

/// What a rank reports to the others twice a second: that it is alive, and how far it is.
struct Beat {
  int64_t number = 0;            ///< counts the rank's beats
  double computing_seconds = 0;  ///< since the rank last waited
  std::vector<BeatLine> lines;

  /// How long the rank has been waiting for others; nullopt while it computes.
  std::optional<double> waited_seconds() const;
};

/// For how long a rank has given no sign of life.
class Silence final {
 public:
  /// Seconds since the rank's beat was another one than `beat`, its latest, by the times at which
  /// this is called.
  double seconds(const std::string& beat, double now) {
    if (beat != last_) {
      last_ = beat;
      since_ = now;
    }
    return now - since_;
  }

 private:
  std::string last_;
  double since_ = 0;
};

/// A beat in the form in which it is stored: a line for the rank, then one per channel, fields
/// separated by tabs, times in milliseconds.
std::string format_beat(const Beat& beat);

/// Accepts any text and ignores lines that belong to no beat.
Beat parse_beat(const std::string& text);

/// The name in a beat of the messages to a rank, or from it when the reporting rank is the
/// receiver.
std::string channel_name(int rank, bool is_receiver);

}  // namespace automodel::comm
