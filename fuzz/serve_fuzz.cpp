// rooms: core report serve
// A request's method, path, Host, Authorization, token, cookie and If-None-Match, a line each, then
// the runs of its query, to a site with a token and to one without. Nothing but the run that is
// there may be shown, and that only to who has the token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/text.h"
#include "fuzz/input.h"
#include "serve/access.h"
#include "serve/site.h"

namespace {

using namespace automodel;

constexpr const char* kToken = "token-of-the-fuzzer";

/// A folder with one run, and two sites of it.
struct Place {
  fuzz::Folder folder;
  std::unique_ptr<serve::RunIndex> index;
  std::unique_ptr<serve::Site> open, closed;

  Place() {
    folder.write("training.jsonl", "{\"step\": 0, \"loss\": 1}\n");
    index = std::make_unique<serve::RunIndex>(folder.path(), serve::IndexOptions{});
    open = std::make_unique<serve::Site>(*index, serve::SiteOptions{});
    closed = std::make_unique<serve::Site>(*index, serve::SiteOptions{false, kToken});
  }
};

/// Where percent_encoded() puts a byte, a browser finds it again.
std::string percent_decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Place place;
  std::vector<std::string> lines =
      split(std::string_view(reinterpret_cast<const char*>(data), size), '\n');
  constexpr size_t kFields = 7, kMostRuns = 20;
  lines.resize(std::max(lines.size(), kFields));
  std::vector<std::string> runs(lines.begin() + kFields, lines.end());
  runs.resize(std::min(runs.size(), kMostRuns));
  const serve::Request request{lines[0], lines[1], lines[2], lines[3],
                               lines[4], lines[5], lines[6], runs};
  const serve::Response open = place.open->answer(request);
  const bool is_get = lines[0] == "GET" || lines[0] == "HEAD";
  const bool is_compared = open.status < 400 && lines[1] == "/compare";
  if (is_compared && !std::ranges::all_of(runs, &std::string::empty))
    std::abort();  // its one run is ""
  if (open.status < 400 && (!is_get || !serve::names_loopback(lines[2]))) std::abort();
  const serve::Response closed = place.closed->answer(request);
  const bool has_token =
      lines[3].find(kToken) != std::string::npos || lines[4] == kToken || lines[1] == "/health";
  if (closed.status < 400 && !has_token) std::abort();
  if (percent_decoded(serve::percent_encoded(lines[1])) != lines[1]) std::abort();
  return 0;
}
