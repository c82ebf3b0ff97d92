#include "recipes/read/qat_section.h"

#include "config/bind.h"
#include "recipes/read/section_targets.h"

namespace automodel::recipes {

std::optional<QatSection> read_qat(const config::Node& root, config::Diagnostics& diagnostics) {
  const config::Node* node = root.find("qat");
  if (node == nullptr || node->is_null()) return std::nullopt;
  auto section = config::bind<QatSection>(*node, diagnostics);
  const config::Node* quantizer = node->find("qat_config");
  if (quantizer != nullptr && !quantizer->is_null()) {
    section.config = config::bind<QatConfig>(*quantizer, diagnostics,
                                             {.legacy_keys = {}, .other_keys = {"_target_"}});
    check_section_target(*quantizer, diagnostics);
  }
  const config::Node* enabled = node->find("enabled");
  if (node->is_mapping() && (enabled == nullptr || enabled->bool_value() == false)) {
    diagnostics.warning_at_key(*node, "'qat' has no effect: enabled is not true");
  }
  if (!section.enabled) return std::nullopt;
  return section;
}

}  // namespace automodel::recipes
