#include "recipes/commands/merge_command.h"

#include <iostream>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "datasets/samples/classified.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "models/catalog.h"
#include "peft/adapter_file.h"
#include "peft/merge_adapter.h"
#include "recipes/commands/named_model.h"

namespace automodel::recipes {

/// Names the pad token of a classifier that has none yet: transformers classifies batches by it.
static void name_missing_pad_token(const std::string& folder) {
  const std::string path = path_join(folder, "config.json");
  Json config = Json::parse_file(path);
  const Json* pad = config.find("pad_token_id");
  const bool is_named = pad != nullptr && !pad->is_null();
  const bool has_tokenizer = path_exists(path_join(folder, "tokenizer.json"));
  if (is_named || !has_tokenizer || !models::is_classifier(config)) return;
  const auto found =
      datasets::classifier_pad_id(*datasets::load_text_encoder(folder), std::nullopt);
  if (!found) return;
  config["pad_token_id"] = *found;
  write_file_atomic(path, config.dump(2) + "\n");
}

int run_merge_lora_command(const std::string& base_name, const std::string& adapter,
                           const std::string& out) {
  const std::string base = local_model(base_name);
  const int64_t count = peft::merge_adapter(base, adapter, out);
  name_missing_pad_token(out);
  const std::string made_for = peft::read_adapter_config(adapter).base;
  std::cout << cat(out, ": ", base, " with ", count, " weights changed by ", adapter,
                   file_name(made_for) == file_name(base_name) || made_for.empty()
                       ? ""
                       : cat(", which was made for ", made_for),
                   "\n");
  return 0;
}

}  // namespace automodel::recipes
