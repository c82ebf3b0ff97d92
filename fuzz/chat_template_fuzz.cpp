// rooms: chat
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat/chat_template.h"
#include "core/error.h"
#include "core/json.h"

namespace {

const automodel::Json& variables() {
  static const automodel::Json json = automodel::Json::parse(
      R"({"messages": [{"role": "system", "content": "é"}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
          "arguments": {"a": [1, 2.5, true]}}}]}], "tools": null, "bos_token": "<s>",
          "add_generation_prompt": true})",
      "variables");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  automodel::chat::Limits limits;
  limits.max_steps = 100'000;
  limits.max_bytes = size_t{1} << 25;
  limits.max_output_bytes = size_t{1} << 20;
  limits.max_depth = 300;
  try {
    automodel::chat::ChatTemplate(text, "template").render(variables(), 0, limits);
  } catch (const automodel::UserError&) {
    return 0;
  }
  return 0;
}
