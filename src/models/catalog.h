#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::models {

class CausalLM;

/// Whether this version builds the family of a config.json (by `architectures` or `model_type`).
struct FamilyCheck {
  bool is_known = false;
  std::string architecture;  ///< the Hugging Face class name
  std::string reason;        ///< for unknown families: what they would need
};

/// Looks up the family of a config.json without building anything.
FamilyCheck find_family(const Json& hf_config);

/// All architectures this version builds, sorted.
std::vector<std::string> known_architectures();

/// The class of a config.json's family that classifies sequences, "Qwen3ForSequenceClassification";
/// "" for a family that has none, or is not known.
std::string classifier_of(const Json& hf_config);

/// Whether a config.json's class classifies sequences.
bool is_classifier(const Json& hf_config);

/// The class of a config.json's family without a head, which makes embeddings of texts,
/// "Qwen3Model"; "" for a family that has none here, or is not known.
std::string embedder_of(const Json& hf_config);

/// Whether a config.json is that of a model which makes embeddings of texts: its class is that of
/// embedder_of(), and `pooling` says how (text_pooling.h).
bool makes_embeddings(const Json& hf_config);

/// Family::exchanges_expert_factors of a config.json's family.
bool exchanges_expert_factors(const Json& hf_config);

/// The head of the class that classifier_of() names, as transformers and its files call it.
struct ClassHead {
  std::vector<std::string> modules;  ///< what holds it: "score"; none where there is no such class
  std::string rows;  ///< the linear layer with a row a class: "score", "classifier.out_proj"
};
ClassHead class_head_of(const Json& hf_config);

/// The modules of the heads of all classes that classify sequences, sorted.
std::vector<std::string> class_head_modules();

/// Rows of the table of token types of an encoder; 0 for models without one, or not known.
int64_t num_token_types(const Json& hf_config);

/// Whether a config.json's family is one of an encoder and a decoder, whose batches have sources.
bool reads_sources(const Json& hf_config);

/// Whether a config.json's family is one of encoders, which classify a sequence by its first token.
bool is_encoder(const Json& hf_config);

/// Number of routed experts of each layer that has some; 0 for models without experts; nullopt when
/// config.json is not of a family built here.
std::optional<int64_t> num_routed_experts(const Json& hf_config);

/// Rows of the embedding; nullopt when config.json is not of a family built here.
std::optional<int64_t> vocabulary_size(const Json& hf_config);

/// Tokens of the longest sequence that an encoder's table of positions has rows for; nullopt for
/// other models.
std::optional<int64_t> encoder_positions(const Json& hf_config);

/// Whether the model is a diffusion language model, whose attention sees later tokens too. False
/// for a config.json that is not of a family built here.
bool sees_later_tokens(const Json& hf_config);

/// Whether tokens are mixed by attention to all earlier ones alone: no windows, caps, dropout of
/// its probabilities, chosen keys or states. False for a config.json that is not of the shared
/// decoder's.
bool sees_all_earlier_tokens(const Json& hf_config);

/// How many tokens further ahead training predicts (num_nextn_predict_layers); 0 for none and for
/// families that cannot.
int64_t num_next_tokens(const Json& hf_config);

/// Translates a tensor's or module's name in a family's files to its name in transformers' modules.
std::string name_in_modules(const Json& hf_config, std::string name);

/// The names, in transformers' modules, of a tensor or module of these that has the same weights as
/// `name` there: DiffusionGemma's encoder has its decoder's. Mostly there are none.
std::vector<std::string> twins_in_modules(const Json& hf_config, const std::string& name);

/// The inverse of name_in_modules(), also of twins' names; names in files are returned unchanged.
std::string name_in_files(const Json& hf_config, std::string name);

/// A module's name in a family's files, and behind it those of upstream's modules in its place,
/// which recipes use: q_proj, k_proj and v_proj of Ling's query_key_value. Mostly there are none.
std::vector<std::string> names_in_recipes(const Json& hf_config, const std::string& name);

/// Validates a config.json of a known family (old and new key forms): one text per finding, empty
/// when it is right.
std::vector<std::string> check_config(const Json& hf_config);

/// Builds the model; its parameters have the given dtype and no memory yet. Throws UnsupportedError
/// for an unknown family and InputError for a wrong config.
std::shared_ptr<CausalLM> build_causal_lm(const Json& hf_config, at::ScalarType dtype);

}  // namespace automodel::models
