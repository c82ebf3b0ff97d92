#pragma once

#include <string>

#include "report/page/live_page.h"
#include "serve/run_index.h"

namespace automodel::serve {

/// The style sheet of the page of runs.
const std::string& list_style();

/// The page of all runs: a row each with what it does, its task and model, steps, loss, and when it
/// was last heard of. On a narrow screen a run is a card.
std::string list_page(const RunList& list, const report::LivePage& live);

}  // namespace automodel::serve
