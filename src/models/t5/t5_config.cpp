#include "models/t5/t5_config.h"

#include <string>
#include <string_view>

#include "core/text.h"

namespace automodel::models::t5 {

namespace {

/// `feed_forward_proj`: an activation, or "gated-" and one. "gated-gelu" is T5 1.1's, by tanh.
void read_mlp(decoder::ConfigReader& reader, std::string_view fallback, T5Config& config) {
  constexpr std::string_view kGated = "gated-";
  const std::string name = reader.text("feed_forward_proj", fallback);
  config.is_mlp_gated = name.starts_with(kGated);
  std::string activation = config.is_mlp_gated ? name.substr(kGated.size()) : name;
  if (name == "gated-gelu") activation = "gelu_new";
  if (const auto found = kernels::parse_activation(activation)) {
    config.activation = *found;
  } else {
    reader.problem(cat("feed_forward_proj '", name,
                       "' is neither an activation known here nor 'gated-' and one"));
  }
}

int64_t read_layers(decoder::ConfigReader& reader, std::string_view key, int64_t fallback) {
  return decoder::checked_layers(reader, key, reader.size(key, fallback));
}

/// Reads the table of biases by distance.
void read_distances(decoder::ConfigReader& reader, T5Config& config) {
  const size_t num_problems = reader.problems().size();
  config.num_buckets = reader.size("relative_attention_num_buckets", 32);
  config.max_distance = reader.size("relative_attention_max_distance", 128);
  constexpr int64_t kMost = int64_t{1} << 20;  // more is a slip
  // Half of the encoder's rows are for keys behind the query, half of those for single distances.
  const bool fits = config.num_buckets % 4 == 0 && config.num_buckets <= kMost &&
                    config.max_distance > config.num_buckets / 2 && config.max_distance <= kMost;
  if (fits || reader.problems().size() > num_problems) return;
  reader.problem(cat("relative_attention_num_buckets ", config.num_buckets,
                     " must be a multiple of 4, and less than twice "
                     "relative_attention_max_distance ",
                     config.max_distance, ", and neither more than ", kMost));
}

/// Whether the head is the embedding. T5 1.1's is not, nor mT5's, whatever transformers 5 says of
/// them: it writes tie_word_embeddings: true for every T5, and scale_decoder_outputs: false.
bool read_head(decoder::ConfigReader& reader, bool is_mt5) {
  const bool is_tied = reader.flag("tie_word_embeddings", true);
  return !is_mt5 && reader.flag("scale_decoder_outputs", is_tied);
}

}  // namespace

T5Config read_t5(decoder::ConfigReader& reader) {
  const std::string type = reader.text("model_type", "t5");
  const bool is_mt5 = type == "mt5";
  if (type != "t5" && !is_mt5) {
    reader.problem(cat("model_type '", type, "' is not that of a T5: t5 and mt5 are built"));
  }
  T5Config config;
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size("d_model", 512);
  config.num_encoder_layers = read_layers(reader, "num_layers", is_mt5 ? 8 : 6);
  config.num_decoder_layers = read_layers(reader, "num_decoder_layers", config.num_encoder_layers);
  config.num_heads = reader.size("num_heads", is_mt5 ? 6 : 8);
  config.head_dim = reader.size("d_kv", 64);
  config.intermediate_size = reader.size("d_ff", is_mt5 ? 1024 : 2048);
  read_mlp(reader, is_mt5 ? "gated-gelu" : "relu", config);
  read_distances(reader, config);
  config.is_head_tied = read_head(reader, is_mt5);
  config.dropout = reader.probability("dropout_rate", 0.1);
  config.norm_eps = reader.not_negative("layer_norm_epsilon", 1e-6);
  config.initializer_factor = reader.number("initializer_factor", 1.0);
  if (!reader.flag("is_encoder_decoder", true)) {
    reader.problem("is_encoder_decoder is false; T5 without its decoder is not built here");
  }
  return config;
}

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  const T5Config own = read_t5(reader);
  decoder::DecoderConfig sizes;
  sizes.vocab_size = own.vocab_size;
  sizes.hidden_size = own.hidden_size;
  sizes.num_heads = own.num_heads;
  sizes.num_kv_heads = own.num_heads;
  sizes.head_dim = own.head_dim;
  sizes.intermediate_size = own.intermediate_size;
  sizes.activation = own.activation;
  sizes.is_mlp_gated = own.is_mlp_gated;
  sizes.is_head_tied = own.is_head_tied;
  sizes.norm_eps = own.norm_eps;
  sizes.attention_dropout = own.dropout;
  sizes.residual_dropout = own.dropout;
  sizes.embedding_dropout = own.dropout;
  sizes.layers.resize(static_cast<size_t>(own.num_encoder_layers + own.num_decoder_layers));
  return sizes;
}

}  // namespace automodel::models::t5
