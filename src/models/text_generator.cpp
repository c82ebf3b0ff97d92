#include "models/text_generator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "models/decoder/decoder_model.h"

namespace automodel::models {

namespace {

/// What a decoder is made of; null for other models.
const decoder::DecoderConfig* config_of(const CausalLM& model) {
  const auto* const own = dynamic_cast<const decoder::DecoderModel*>(&model);
  return own != nullptr ? &own->config() : nullptr;
}

/// Whether all that a token of this model needs of those before it are attention's keys and values.
bool needs_only_keys(const CausalLM& model) {
  const decoder::DecoderConfig* const config = config_of(model);
  return config != nullptr && config->is_causal && !config->has_recurrence() && !config->indexer &&
         !config->shares_choices() && !config->compressed_attention;
}

at::Tensor ids_tensor(const TokenIds& ids, int64_t num_sequences) {
  return at::tensor(ids, at::kLong).view({num_sequences, -1});
}

}  // namespace

std::optional<int64_t> most_positions(const CausalLM& model) {
  const decoder::DecoderConfig* const config = config_of(model);
  if (config == nullptr || !config->has_learned_positions) return std::nullopt;
  return config->max_positions;
}

void check_writes_text(const CausalLM& model) {
  const decoder::DecoderConfig* const config = config_of(model);
  if (config != nullptr && config->is_causal && !config->is_classifier()) return;
  throw UnsupportedError(
      cat(model.architecture(), " writes no text from left to right in this version"));
}

TextGenerator::TextGenerator(CausalLM& model, at::Device device, GenerationOptions options)
    : model_(model), device_(device), options_(std::move(options)) {
  AM_CHECK(!model.is_training(), "a model that writes is in evaluation mode");
  if (!needs_only_keys(model)) return;
  cache_ = std::make_shared<nn::CachedAttention>();
  model_.set_attention_core(cache_);
}

TextGenerator::~TextGenerator() {
  if (cache_) model_.set_attention_core(nn::make_local_attention_core());
}

bool TextGenerator::takes_together(const std::vector<TokenIds>& prompts) const {
  const decoder::DecoderConfig* const config = config_of(model_);
  if (config == nullptr || prompts.empty()) return true;
  if (prompts.size() > 1 && (config->indexer || config->compressed_attention)) return false;
  const auto [shortest, longest] = std::ranges::minmax(prompts, {}, &TokenIds::size);
  const auto first = static_cast<int64_t>(shortest.size());
  const int64_t most_new = std::min(options_.max_new_tokens, int64_t{1} << 40);
  const int64_t last = static_cast<int64_t>(longest.size()) + most_new;
  return std::ranges::all_of(config->ropes, [&](const nn::RopeOptions& rope) {
    return nn::rope_length_class(rope, first) == nn::rope_length_class(rope, last);
  });
}

std::vector<TokenIds> TextGenerator::write_on(const std::vector<TokenIds>& prompts,
                                              const GeneratingRanks& ranks,
                                              std::vector<uint64_t> numbers) {
  const at::NoGradGuard no_grad;
  for (size_t i = numbers.size(); i < prompts.size(); ++i) numbers.push_back(i);
  std::vector<TokenIds> sequences = prompts;
  std::vector<TokenIds> written(prompts.size());
  std::vector<bool> has_ended(prompts.size());
  const std::optional<int64_t> most = most_positions(model_);
  const auto ends = [&](size_t i) {
    const auto count = static_cast<int64_t>(written[i].size());
    const auto length = static_cast<int64_t>(prompts[i].size()) + count;
    return count >= options_.max_new_tokens || (most && length >= *most) ||
           (count > 0 &&
            std::ranges::find(options_.end_tokens, written[i].back()) != options_.end_tokens.end());
  };
  for (size_t i = 0; i < prompts.size(); ++i) has_ended[i] = ends(i);
  const bool is_together = takes_together(prompts);
  AM_CHECK(prompts.size() <= 1 || is_together, "prompts that need forwards of their own");
  const bool keeps = cache_ != nullptr && is_together;
  for (Pass pass = keeps ? Pass::kFirst : Pass::kWhole;; pass = keeps ? Pass::kNewest : pass) {
    const bool goes_on = std::ranges::find(has_ended, false) != has_ended.end();
    if (!ranks.any_goes_on(goes_on)) break;
    if (!goes_on) {
      idle(ranks);
      continue;
    }
    const at::Tensor found = scores(sequences, pass, ranks);
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (has_ended[i]) continue;
      const at::Tensor own = found[static_cast<int64_t>(i)];
      const int64_t token = takes_most_likely()
                                ? own.item<int64_t>()
                                : choose_token(own, sequences[i], options_.choice, numbers[i]);
      sequences[i].push_back(token);
      written[i].push_back(token);
      has_ended[i] = ends(i);
    }
  }
  if (cache_) cache_->forget();
  return written;
}

bool TextGenerator::takes_most_likely() const {
  return !options_.choice.does_sample && options_.choice.repetition_penalty == 1;
}

at::Tensor TextGenerator::scores(const std::vector<TokenIds>& sequences, Pass pass,
                                 const GeneratingRanks& ranks) {
  std::vector<int64_t> lengths;
  for (const TokenIds& ids : sequences) lengths.push_back(static_cast<int64_t>(ids.size()));
  const bool is_whole = pass != Pass::kNewest;
  if (pass == Pass::kFirst) cache_->begin(lengths);
  if (pass == Pass::kNewest) cache_->go_on(lengths);
  const tensor::Batch batch =
      (is_whole ? whole_batch(sequences) : newest_batch(sequences)).to(device_);
  return ranks.call([&] {
    const at::Tensor hidden = model_.hidden_states(batch);
    std::vector<at::Tensor> last;
    for (size_t i = 0; i < lengths.size(); ++i) {
      last.push_back(hidden[static_cast<int64_t>(i)][is_whole ? lengths[i] - 1 : 0]);
    }
    const at::Tensor logits = model_.logits(at::stack(last).unsqueeze(1)).squeeze(1);
    return (takes_most_likely() ? logits.argmax(-1) : logits).cpu();
  });
}

/// Whole sequences, padded at their ends with their first token.
tensor::Batch TextGenerator::whole_batch(const std::vector<TokenIds>& sequences) const {
  const auto shorter = [](const TokenIds& a, const TokenIds& b) { return a.size() < b.size(); };
  const size_t longest = std::ranges::max(sequences, shorter).size();
  TokenIds ids;
  at::Tensor mask =
      at::zeros({static_cast<int64_t>(sequences.size()), static_cast<int64_t>(longest)}, at::kBool);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const TokenIds& sequence = sequences[i];
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    ids.insert(ids.end(), longest - sequence.size(), sequence.front());
    mask[static_cast<int64_t>(i)]
        .narrow(0, static_cast<int64_t>(sequence.size()),
                static_cast<int64_t>(longest - sequence.size()))
        .fill_(true);
  }
  tensor::Batch batch;
  batch.input_ids = ids_tensor(ids, static_cast<int64_t>(sequences.size()));
  if (mask.any().item<bool>()) batch.padding_mask = mask;
  return batch;
}

/// The newest token of each sequence, at its place.
tensor::Batch TextGenerator::newest_batch(const std::vector<TokenIds>& sequences) const {
  TokenIds ids, places;
  for (const TokenIds& sequence : sequences) {
    ids.push_back(sequence.back());
    places.push_back(static_cast<int64_t>(sequence.size()) - 1);
  }
  tensor::Batch batch;
  batch.input_ids = ids_tensor(ids, static_cast<int64_t>(sequences.size()));
  batch.position_ids = ids_tensor(places, static_cast<int64_t>(sequences.size()));
  batch.num_positions = std::ranges::max(places) + 1;
  return batch;
}

/// A forward that others wait for.
void TextGenerator::idle(const GeneratingRanks& ranks) {
  if (cache_) cache_->forget();
  tensor::Batch batch;
  batch.input_ids = at::zeros({1, 1}, at::kLong);
  batch = batch.to(device_);
  ranks.call([&] { return model_.logits(model_.hidden_states(batch)); });
}

}  // namespace automodel::models
