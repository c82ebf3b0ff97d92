#include "recipes/read/new_findings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/text.h"

namespace automodel::recipes {

void add_new_findings(const config::Diagnostics& found, config::Diagnostics& diagnostics,
                      std::string_view whose) {
  const std::vector<config::Finding> known = diagnostics.findings();
  for (size_t i = known.size(); i < found.findings().size(); ++i) {
    config::Finding finding = found.findings()[i];
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& other) {
      return other.text == finding.text && other.position.source == finding.position.source &&
             other.position.line == finding.position.line &&
             other.position.column == finding.position.column;
    });
    if (is_known) continue;
    finding.text = cat(whose, finding.text);
    diagnostics.add(std::move(finding));
  }
  for (const config::DefaultValue& one : found.defaults()) {
    diagnostics.add_default(one.path, one.value);
  }
}

}  // namespace automodel::recipes
