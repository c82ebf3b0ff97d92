#include "recipes/commands/merge_command.h"

#include <iostream>

#include "core/text.h"
#include "peft/merge_adapter.h"

namespace automodel::recipes {

int run_merge_lora_command(const std::string& base, const std::string& adapter,
                           const std::string& out) {
  const int64_t count = peft::merge_adapter(base, adapter, out);
  std::cout << cat(out, ": ", base, " with ", count, " weights changed by ", adapter, "\n");
  return 0;
}

}  // namespace automodel::recipes
