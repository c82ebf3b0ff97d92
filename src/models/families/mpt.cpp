#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

/// MPT's slopes: powers of two down to 2^-bias_max; beyond a power of two of heads every other of
/// the next power's, the second ones first.
std::vector<double> mpt_slopes(int64_t num_heads, int64_t bias_max) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_heads)));
  const auto slope = [&](int64_t number) {
    return std::exp2(-static_cast<double>(bias_max * number) / static_cast<double>(power));
  };
  std::vector<double> slopes;
  const int64_t step = power == num_heads ? 1 : 2;
  for (int64_t first = step; first >= 1; --first) {
    for (int64_t i = first; i <= power && std::ssize(slopes) < num_heads; i += step) {
      slopes.push_back(slope(i));
    }
  }
  return slopes;
}

/// The options of attn_config.
void read_attention(ConfigReader& reader, DecoderConfig& config) {
  const Json* stated = reader.find("attn_config");
  const Json none = Json::object();
  if (stated != nullptr && !stated->is_object()) {
    reader.problem(cat("attn_config must be an object, not ", stated->kind()));
    stated = nullptr;
  }
  ConfigReader own(stated == nullptr ? none : *stated);
  config.attention_dropout = config.residual_dropout = own.probability("attn_pdrop", 0);
  config.qkv_clip = own.not_negative("clip_qkv", 0);
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  for (LayerOptions& layer : config.layers) {
    layer.attention_scale = own.number("softmax_scale", usual);
  }
  for (const char* key : {"qk_ln", "prefix_lm"}) {
    if (own.flag(key, false)) own.problem(cat(key, " true is not in this version"));
  }
  if (!own.flag("alibi", true)) own.problem("alibi false is not in this version");
  if (own.text("attn_type", "multihead_attention") != "multihead_attention") {
    own.problem("attn_type other than multihead_attention is not in this version");
  }
  config.distance_slopes = mpt_slopes(config.num_heads, own.size("alibi_bias_max", 8));
  for (const std::string& problem : own.problems()) reader.problem(cat("attn_config.", problem));
}

DecoderConfig read_mpt(ConfigReader& reader) {
  const Json renamed = with_renamed_keys(reader, {{"max_seq_len", "max_position_embeddings"}});
  ConfigReader own(renamed);
  DecoderConfig config = read_gpt_kind(own, {.hidden_size = "d_model",
                                             .intermediate_size = "",
                                             .num_layers = "n_layers",
                                             .num_heads = "n_heads",
                                             .positions = "max_position_embeddings",
                                             .embedding_dropout = "emb_pdrop",
                                             .residual_dropout = "",
                                             .attention_dropout = "",
                                             .max_positions = 2048,
                                             .activation = "gelu"});
  config.activation = kernels::Activation::kGelu;  // no key
  config.has_norm_bias = false;
  read_attention(own, config);
  if (own.size("expansion_ratio", 4) != 4) {
    own.problem("expansion_ratio other than 4 is not in this version: transformers' class has 4");
  }
  if (!own.flag("no_bias", true)) own.problem("no_bias false is not in this version");
  if (own.has("logit_scale")) own.problem("logit_scale is not in this version; null leaves it out");
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// MPT: LayerNorms without biases, q, k and v in one tensor, and scores that fall with the distance
/// (ALiBi).
extern const Family kMpt{
    .architecture = "MptForCausalLM",
    .model_type = "mpt",
    .config_class = "MptConfig",
    .layer_class = "MptBlock",
    .classifier = "MptForSequenceClassification",
    .upstream = {.architecture = "MPTForCausalLM"},  // of the first released files
    .read_config = read_mpt,
    .names = {.embedding = "transformer.wte",
              .layers = "transformer.blocks",
              .final_norm = "transformer.norm_f",
              .attention = "attn",
              .qkv = "Wqkv",
              .output = "out_proj",
              .mlp = "ffn",
              .attention_pre_norm = "norm_1",
              .mlp_pre_norm = "norm_2"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
