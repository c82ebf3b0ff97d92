#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/mamba_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// A list of config.json with an entry for each layer; longer lists are cut (a recipe may ask for
/// fewer layers, and the layers that predict further tokens may have entries). Empty if absent, or
/// after a finding.
std::vector<Json> read_layer_list(ConfigReader& reader, std::string_view key, int64_t num_layers) {
  const Json* found = reader.find(key);
  if (found == nullptr) return {};
  if (!found->is_array() || static_cast<int64_t>(found->size()) < num_layers) {
    reader.problem(cat(key, " must be a list with an entry for each of ", num_layers, " layers"));
    return {};
  }
  const auto first = found->as_array().begin();
  return std::vector<Json>(first, first + num_layers);
}

/// The kinds of attention by `layer_types`, or by the older `compress_ratios`.
std::vector<Compression> read_compressions(ConfigReader& reader, int64_t num_layers) {
  using Kind = std::pair<Json, Compression>;
  const std::vector<Kind> types = {{Json("sliding_attention"), Compression::kNone},
                                   {Json("compressed_sparse_attention"), Compression::kSparse},
                                   {Json("heavily_compressed_attention"), Compression::kHeavy}};
  const std::vector<Kind> ratios = {{Json(int64_t{0}), Compression::kNone},
                                    {Json(int64_t{4}), Compression::kSparse},
                                    {Json(int64_t{128}), Compression::kHeavy}};
  const bool has_types = reader.has("layer_types");
  const char* key = has_types ? "layer_types" : "compress_ratios";
  const std::vector<Json> listed = read_layer_list(reader, key, num_layers);
  std::vector<Compression> out;
  for (const Json& entry : listed) {
    const std::vector<Kind>& kinds = has_types ? types : ratios;
    const auto known = std::ranges::find(kinds, entry, &Kind::first);
    if (known == kinds.end()) {
      reader.problem(cat(key, " holds ", entry.dump(), "; known here: ",
                         has_types ? "sliding_attention, compressed_sparse_attention, "
                                     "heavily_compressed_attention"
                                   : "0, 4, 128"));
    }
    out.push_back(known == kinds.end() ? Compression::kNone : known->second);
  }
  for (auto i = static_cast<int64_t>(out.size()); i < num_layers; ++i) {
    out.push_back(i >= 2 && i % 2 == 1 ? Compression::kSparse : Compression::kHeavy);
  }
  return out;
}

/// Which layers' experts are chosen by a table, by `mlp_layer_types` or the older
/// `num_hash_layers`.
void read_hash_layers(ConfigReader& reader, DecoderConfig& config) {
  constexpr int64_t kDefault = 3;
  const int64_t count = reader.count("num_hash_layers", kDefault);
  const std::vector<Json> listed = read_layer_list(reader, "mlp_layer_types", config.num_layers());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerOptions& layer = config.layers[i];
    layer.is_hash_routed =
        listed.empty() ? static_cast<int64_t>(i) < count : listed[i] == "hash_moe";
    if (!listed.empty() && listed[i] != "hash_moe" && listed[i] != "moe") {
      reader.problem(
          cat("mlp_layer_types holds ", listed[i].dump(), "; known here: hash_moe, moe"));
    }
  }
}

/// Tokens of a compressed key by `compress_rates`, an object by kind of layer, or the older keys.
int64_t read_rate(ConfigReader& reader, std::string_view kind, std::string_view older,
                  int64_t fallback) {
  const Json* rates = reader.find("compress_rates");
  if (rates != nullptr && !rates->is_object()) {
    reader.problem(cat("compress_rates must be an object, not ", rates->kind()));
  } else if (rates != nullptr) {
    ConfigReader own(*rates);
    fallback = own.size(kind, fallback);
    for (const std::string& text : own.problems()) reader.problem(cat("compress_rates.", text));
  }
  return reader.size(older, fallback);
}

CompressedAttentionOptions read_compressed_attention(ConfigReader& reader,
                                                     const DecoderConfig& config) {
  CompressedAttentionOptions sizes;
  sizes.q_rank = reader.size("q_lora_rank", 1024);
  sizes.num_output_groups = reader.size("o_groups", 8);
  sizes.output_rank = reader.size("o_lora_rank", 1024);
  sizes.sparse_rate = read_rate(reader, "compressed_sparse_attention", "compress_rate_csa", 4);
  sizes.heavy_rate = read_rate(reader, "heavily_compressed_attention", "compress_rate_hca", 128);
  sizes.indexer.num_heads = reader.size("index_n_heads", 64);
  sizes.indexer.head_dim = reader.size("index_head_dim", 128);
  sizes.indexer.num_chosen = reader.size("index_topk", 512);
  sizes.indexer.is_rope_interleaved = true;
  if (config.num_heads % sizes.num_output_groups != 0) {
    reader.problem(cat("o_groups ", sizes.num_output_groups,
                       " does not divide num_attention_heads ", config.num_heads));
    sizes.num_output_groups = 1;
  }
  return sizes;
}

/// Rope 0 for layers without a compression, rope 1 for the others: `rope_parameters` by "main" and
/// "compress", or the older flat form, which scales compressed layers alone.
void add_ropes(ConfigReader& reader, DecoderConfig& config) {
  const double head_dim = static_cast<double>(config.head_dim);
  const double rotated = static_cast<double>(reader.size("qk_rope_head_dim", config.head_dim / 8));
  const Json partial(reader.number("partial_rotary_factor", rotated / head_dim));
  const Json* found = reader.find("rope_scaling");  // comes first in transformers too
  if (found == nullptr) found = reader.find("rope_parameters");
  const Json none = Json::object();
  if (found != nullptr && !found->is_object()) {
    reader.problem(cat("rope_parameters must be an object, not ", found->kind()));
    found = nullptr;
  }
  const Json& parameters = found == nullptr ? none : *found;
  const auto nested = [&](const char* kind) -> const Json* {
    const Json* own = parameters.find(kind);
    return own != nullptr && own->is_object() ? own : nullptr;
  };
  const bool is_nested = nested("main") != nullptr && nested("compress") != nullptr;
  Json main = is_nested ? *nested("main") : Json::object();
  Json compress = is_nested ? *nested("compress") : parameters;
  if (!is_nested) {
    main["rope_theta"] = Json(reader.number("rope_theta", 10000.0));
    compress["rope_theta"] = Json(reader.number("compress_rope_theta", 160000.0));
    for (Json* rope : {&main, &compress}) (*rope)["partial_rotary_factor"] = partial;
    const std::string type = compress.get("rope_type", compress.get("type", "default"));
    if (type == "yarn" && !compress.contains("attention_factor")) {
      compress["attention_factor"] = Json(1.0);  // cosines and sines are not scaled
    }
  }
  const RopeDefaults defaults{.has_partial_default = true, .partial_default = rotated / head_dim};
  for (const Json* rope : {&main, &compress}) {
    config.ropes.push_back(read_rope(reader, rope, config, defaults));
  }
  for (LayerOptions& layer : config.layers) {
    layer.rope = layer.compression == Compression::kNone ? 0 : 1;
  }
  const int64_t indexed = config.compressed_attention->indexer.head_dim;
  if (config.ropes[1].rotary_dim > indexed) {
    reader.problem(cat("index_head_dim ", indexed, " is less than the ", config.ropes[1].rotary_dim,
                       " dims of a head that rotate"));
  }
}

nn::HyperConnectionOptions read_hyper_connections(ConfigReader& reader,
                                                  const DecoderConfig& config) {
  nn::HyperConnectionOptions out;
  out.num_streams = reader.size("hc_mult", 4);
  out.hidden_size = config.hidden_size;
  out.sinkhorn_iterations = reader.size("hc_sinkhorn_iters", 20);
  out.eps = reader.number("hc_eps", 1e-6);
  out.norm_eps = config.norm_eps;
  return out;
}

moe::MoEConfig read_v4_experts(ConfigReader& reader, const DecoderConfig& config) {
  moe::MoEConfig moe =
      read_experts(reader, config,
                   {.num_experts = "n_routed_experts",
                    .num_experts_alias = "num_local_experts",
                    .default_num_experts = 256,
                    .inner_dim = either(reader, "moe_intermediate_size", "intermediate_size"),
                    .default_inner_dim = 2048,
                    .default_num_chosen = 6});
  moe.n_shared_experts = 1;
  if (const int64_t shared = reader.count("n_shared_experts", 1); shared != 1) {
    reader.problem(cat("n_shared_experts is ", shared,
                       "; transformers' class has one shared MLP of "
                       "moe_intermediate_size, so 1 is right"));
  }
  const std::string scores = reader.text("scoring_func", "sqrtsoftplus");
  moe.score_func =
      scores == "sigmoid" ? moe::ScoreFunction::kSigmoid : moe::ScoreFunction::kSqrtSoftplus;
  if (scores != "sigmoid" && scores != "sqrtsoftplus") {
    reader.problem(
        cat("scoring_func '", scores, "' is not known here; known: sqrtsoftplus, sigmoid"));
  }
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = true;
  if (!reader.flag("norm_topk_prob", true)) {
    reader.problem("norm_topk_prob is false; a DeepSeek V4 always divides by the scores' sum");
  }
  moe.route_scale = reader.number("routed_scaling_factor", 1.5);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 1e-3);
  const double limit = reader.number("swiglu_limit", 10.0);
  if (!(limit > 0)) reader.problem(cat("swiglu_limit is ", limit, "; it must be above 0"));
  moe.gate_bounds = {limit, limit};
  moe.shared_gate_bounds = moe.gate_bounds;
  refuse_router_jitter(reader);
  return moe;
}

/// Findings for options of the class that have no effect in transformers or are not built.
void refuse_others(ConfigReader& reader, const DecoderConfig& config) {
  if (const int64_t heads = reader.size("num_key_value_heads", 1); heads != 1) {
    reader.problem(cat("num_key_value_heads is ", heads,
                       "; all heads of a DeepSeek V4 share one head of keys: 1 is right"));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader.flag(key, false)) reader.problem(cat(key, " true is not built for DeepSeek V4"));
  }
  if (config.attention_dropout > 0) {
    reader.problem("attention_dropout above 0 is not built for DeepSeek V4");
  }
}

DecoderConfig read_deepseek_v4(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 512,
                                              .vocab_size = 129280,
                                              .hidden_size = 4096,
                                              .num_heads = 64,
                                              .intermediate_size = 2048,
                                              .max_positions = 1048576});
  config.num_kv_heads = 1;
  refuse_others(reader, config);
  config.has_attention_sinks = true;
  config.compressed_attention = read_compressed_attention(reader, config);
  const std::vector<Compression> kinds = read_compressions(reader, config.num_layers());
  for (size_t i = 0; i < kinds.size(); ++i) config.layers[i].compression = kinds[i];
  set_window(config, reader.size("sliding_window", 128));
  add_ropes(reader, config);
  config.hyper_connections = read_hyper_connections(reader, config);
  config.moe = read_v4_experts(reader, config);
  config.intermediate_size = config.moe->moe_inter_dim;
  use_experts_from(config, 0);
  read_hash_layers(reader, config);
  read_next_token_layers(reader, config);
  config.num_next_token_layers = 0;  // their tensors have a prefix of their own
  return config;
}

/// A count of our own: six operations for every parameter that a token is multiplied by, indexers
/// included though they are not trained, and for every pair of a query and a key that it sees;
/// hyper-connections' mixing of streams is left out, as it is no product of a weight.
double deepseek_v4_flops(const DecoderConfig& config, double B, double S) {
  const CompressedAttentionOptions& sizes = *config.compressed_attention;
  const auto h = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_heads * config.head_dim);
  const auto q_rank = static_cast<double>(sizes.q_rank);
  const auto hc_weights = static_cast<double>(config.hyper_connections->num_weights()) *
                          static_cast<double>(config.stream_dims());
  const auto indexer = static_cast<double>(sizes.indexer.num_heads * sizes.indexer.head_dim);
  const double projections = q_rank * (h + heads) + h * static_cast<double>(config.head_dim) +
                             static_cast<double>(sizes.output_rank) *
                                 (heads + static_cast<double>(sizes.num_output_groups) * h);
  double products = h * static_cast<double>(config.head_rows());  // of a token
  for (const LayerOptions& layer : config.layers) {
    const double window = std::min(S, static_cast<double>(layer.window));
    double keys = (window * (window + 1) / 2 + (S - window) * window) / S;  // of a query
    products += projections + 2 * hc_weights;
    products += 3 * h * static_cast<double>(mlp_inner_size(config, layer)) +
                h * static_cast<double>(config.moe->n_routed_experts);
    if (layer.compression != Compression::kNone) {
      const auto rate = static_cast<double>(sizes.rate(layer.compression));
      const auto width = static_cast<double>(sizes.width(layer.compression));
      const double seen = S / rate / 2;  // of compressed keys, on average
      const bool is_sparse = layer.compression == Compression::kSparse;
      keys += is_sparse ? std::min(seen, static_cast<double>(sizes.indexer.num_chosen)) : seen;
      products += 2 * h * width * static_cast<double>(config.head_dim);
      if (is_sparse) {
        products += 2 * h * width * static_cast<double>(sizes.indexer.head_dim) + q_rank * indexer +
                    h * static_cast<double>(sizes.indexer.num_heads) + seen * indexer;
      }
    }
    products += 2 * heads * keys;
  }
  return 6 * B * S * products;
}

}  // namespace

/// DeepSeek V4: streams of hidden states, attention to a window and to compressed keys, experts of
/// the first layers chosen by a table of token ids. Names are those of the released checkpoints;
/// files that transformers saves have some of its own.
extern const Family kDeepseekV4{
    .architecture = "DeepseekV4ForCausalLM",
    .model_type = "deepseek_v4",
    .config_class = "DeepseekV4Config",
    .layer_class = "DeepseekV4DecoderLayer",
    .experts_class = "DeepseekV4Experts",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.deepseek_v4.config.DeepseekV4Config"},
    .read_config = read_deepseek_v4,
    .names = {.embedding = "embed",
              .layers = "layers",
              .final_norm = "norm",
              .head = "head",
              .attention = "attn",
              .mlp = "ffn",
              .gate = "w1",
              .up = "w3",
              .down = "w2",
              .correction = "gate.bias",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2",
              .attention_pre_norm = "attn_norm",
              .mlp_pre_norm = "ffn_norm"},
    .module_names = {{{"layers.", "model.layers."},
                      {"head", "lm_head"},
                      {".attn.", ".self_attn."},
                      {".ffn.", ".mlp."},
                      {".wq_a", ".q_a_proj"},
                      {".wq_b", ".q_b_proj"},
                      {".wkv", ".kv_proj"},
                      {".wo_b", ".o_b_proj"},
                      {".compressor.wgate", ".compressor.gate_proj"},
                      {".shared_experts.w1", ".shared_experts.gate_proj"},
                      {".shared_experts.w2", ".shared_experts.down_proj"},
                      {".shared_experts.w3", ".shared_experts.up_proj"}}},
    .kept_prefixes = {"mtp."},
    .stand_ins = {{{"embed.weight", "embed_tokens.weight"},
                   {".attn.kv_norm.weight", ".attn.norm.weight"},
                   {"hc_head_fn", "hc_head.hc_fn"},
                   {"hc_head_base", "hc_head.hc_base"},
                   {"hc_head_scale", "hc_head.hc_scale"}}},
    .flops = deepseek_v4_flops,
};

}  // namespace automodel::models::decoder
