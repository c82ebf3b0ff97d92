#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "config/registry.h"
#include "core/field.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The arguments of upstream's build_gpt2_model.
struct Gpt2BuilderSection {
  int64_t vocab_size = 50257;
  int64_t n_positions = 2048;
  std::optional<int64_t> n_ctx;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  std::optional<std::string> attn_implementation;

  static constexpr auto fields() {
    using S = Gpt2BuilderSection;
    return std::tuple{
        field("vocab_size", &S::vocab_size, "of build_gpt2_model: tokens that the model knows")
            .at_least(1),
        field("n_positions", &S::n_positions, "of build_gpt2_model: the longest sequence")
            .at_least(1),
        field("n_ctx", &S::n_ctx, "of build_gpt2_model: the same, wins over n_positions")
            .at_least(1),
        field("n_embd", &S::n_embd, "of build_gpt2_model: width of the hidden states").at_least(1),
        field("n_layer", &S::n_layer, "of build_gpt2_model: number of blocks").at_least(1),
        field("n_head", &S::n_head, "of build_gpt2_model: attention heads; they must divide n_embd")
            .at_least(1),
        field("bos_token_id", &S::bos_token_id,
              "of build_gpt2_model: for the exported config.json (default: 50256 where the "
              "vocabulary "
              "has it)")
            .at_least(0),
        field("eos_token_id", &S::eos_token_id,
              "of build_gpt2_model: for the exported config.json (default: 50256 where the "
              "vocabulary "
              "has it)")
            .at_least(0),
        field("attn_implementation", &S::attn_implementation, "attention kernel")
            .without_effect("the fastest exact kernel is chosen here")};
  }
};

/// Reads the arguments of build_gpt2_model: a new model in float32 whose configuration is that of a
/// GPT2LMHeadModel. Keys that the builder does not take get a warning, as there.
void read_gpt2_builder(const config::Target& target, ModelRecipe& plan,
                       config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
