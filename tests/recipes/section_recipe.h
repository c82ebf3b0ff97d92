#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "config/load.h"
#include "core/json.h"
#include "models/catalog.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/recipe.h"
#include "support/program.h"

namespace automodel::recipes {

/// A recipe that says nothing but `distributed`, which must be right.
inline Recipe recipe_with(const std::string& section) {
  const config::Document document = config::load_text(
      cat("distributed:\n  ", replace_all(section, "\n", "\n  "), "\n"), "r.yaml");
  config::Diagnostics diagnostics(document.sources);
  Recipe recipe;
  recipe.root = document.root;
  recipe.distributed = read_distributed(*document.root.find("distributed"), diagnostics);
  diagnostics.throw_if_errors();
  return recipe;
}

/// The configuration of a golden model.
inline Json golden_config(const std::string& golden) {
  return Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
}

/// A golden model without memory.
inline std::shared_ptr<models::CausalLM> golden_model(const std::string& golden) {
  return models::build_causal_lm(golden_config(golden), at::kFloat);
}

}  // namespace automodel::recipes
