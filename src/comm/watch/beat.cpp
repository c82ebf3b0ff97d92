#include "comm/watch/beat.h"

#include "core/text.h"

namespace automodel::comm {
namespace {

double parse_milliseconds(const std::string& text) {
  return static_cast<double>(parse_int(text).value_or(0)) / 1e3;
}

int64_t whole_milliseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e3);
}

}  // namespace

std::optional<double> Beat::waited_seconds() const {
  for (const BeatLine& line : lines) {
    if (!line.waited.empty()) return line.wait_seconds;
  }
  return std::nullopt;
}

std::string format_beat(const Beat& beat) {
  std::string text = cat(beat.number, "\t", whole_milliseconds(beat.computing_seconds));
  for (const BeatLine& line : beat.lines) {
    text += cat("\n", line.group, "\t", line.peer, "\t", line.num_started, "\t", line.waited, "\t",
                whole_milliseconds(line.wait_seconds));
  }
  return text;
}

Beat parse_beat(const std::string& text) {
  Beat beat;
  const std::vector<std::string> rows = split(text, '\n');
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::string> words = split(rows[i], '\t');
    if (i == 0 && words.size() == 2) {
      beat.number = parse_int(words[0]).value_or(0);
      beat.computing_seconds = parse_milliseconds(words[1]);
    }
    if (words.size() != 5) continue;
    beat.lines.push_back({words[0], words[1], parse_int(words[2]).value_or(0), words[3],
                          parse_milliseconds(words[4])});
  }
  return beat;
}

std::string channel_name(int rank, bool is_receiver) {
  return cat(is_receiver ? ">" : "<", rank);
}

}  // namespace automodel::comm
