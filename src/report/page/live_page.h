#pragma once

#include <string>

namespace automodel::report {

/// How a page of a server keeps itself up to date.
struct LivePage {
  double seconds = 5;    ///< between two looks for something new
  bool has_end = false;  ///< nothing new is expected: without script, the page then stays as it is
  std::string home;      ///< address of the page above it; "" for none
};

/// The script of such a page: it fetches the page again, and where that has changed puts its <main>
/// in place of the one that is shown. Switches, opened details and the place read stay.
extern const char* const kLiveScript;

/// What goes into such a page's <head>: for readers without script, to load it anew.
std::string live_head(const LivePage& live);

/// The beginning of <body>, its tag included: the way home, and where the script tells of trouble.
std::string live_top(const LivePage& live);

/// The end of <body>, before its closing tag.
std::string live_end();

}  // namespace automodel::report
