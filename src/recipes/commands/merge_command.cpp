#include "recipes/commands/merge_command.h"

#include <iostream>

#include "core/file.h"
#include "core/text.h"
#include "peft/adapter_file.h"
#include "peft/merge_adapter.h"

namespace automodel::recipes {

int run_merge_lora_command(const std::string& base, const std::string& adapter,
                           const std::string& out) {
  const int64_t count = peft::merge_adapter(base, adapter, out);
  const std::string made_for = peft::read_adapter_config(adapter).base;
  std::cout << cat(out, ": ", base, " with ", count, " weights changed by ", adapter,
                   file_name(made_for) == file_name(base) || made_for.empty()
                       ? ""
                       : cat(", which was made for ", made_for),
                   "\n");
  return 0;
}

}  // namespace automodel::recipes
