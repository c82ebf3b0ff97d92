#include "recipes/read/gpt2_builder.h"

#include <algorithm>
#include <vector>

#include "config/bind.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// GPT-2's own <|endoftext|>.
constexpr int64_t kEndOfText = 50256;

std::vector<std::string> argument_names() {
  std::vector<std::string> names;
  for_each_field<Gpt2BuilderSection>([&](const auto& field) { names.emplace_back(field.name); });
  return names;
}

/// Takes the keys out that the builder does not have. One that is nearly an argument's is a
/// mistake.
void take_out_others(Node& arguments, Diagnostics& diagnostics) {
  const std::vector<std::string> names = argument_names();
  const std::vector<Node> children(arguments.children().begin(), arguments.children().end());
  for (const Node& child : children) {
    if (std::ranges::find(names, child.key()) != names.end()) continue;
    const auto meant = closest_match(child.key(), names);
    if (meant && edit_distance(child.key(), *meant) == 1) continue;  // binding reports it
    arguments.erase(child.key());
    if (child.is_deleted() || child.is_null()) continue;
    diagnostics.warning_at_key(
        child, cat("'", child.key(), "' has no effect: build_gpt2_model passes over it; it takes ",
                   join(names, ", ")));
  }
}

Json token_id(std::optional<int64_t> asked, int64_t vocab_size) {
  if (asked) return Json(*asked);
  return vocab_size > kEndOfText ? Json(kEndOfText) : Json();
}

}  // namespace

void read_gpt2_builder(const config::Target& target, ModelRecipe& plan, Diagnostics& diagnostics) {
  Node arguments = target.arguments;
  take_out_others(arguments, diagnostics);
  const auto section = config::bind<Gpt2BuilderSection>(arguments, diagnostics);
  plan.is_from_config = true;
  plan.dtype = at::kFloat;
  Json config = Json::object();
  config["architectures"] = Json(Json::Array{Json("GPT2LMHeadModel")});
  config["model_type"] = "gpt2";
  config["vocab_size"] = section.vocab_size;
  config["n_positions"] = section.n_ctx.value_or(section.n_positions);
  config["n_embd"] = section.n_embd;
  config["n_layer"] = section.n_layer;
  config["n_head"] = section.n_head;
  config["activation_function"] = "gelu";  // the exact one
  config["embd_pdrop"] = 0.1;
  config["attn_pdrop"] = 0.1;
  config["resid_pdrop"] = 0.0;
  config["layer_norm_epsilon"] = 1e-5;
  config["initializer_range"] = 0.02;
  config["scale_residual_init"] = false;
  config["tie_word_embeddings"] = true;
  config["bos_token_id"] = token_id(section.bos_token_id, section.vocab_size);
  config["eos_token_id"] = token_id(section.eos_token_id, section.vocab_size);
  plan.hf_config = std::move(config);
}

}  // namespace automodel::recipes
