// Noise on embedded tokens: NEFTune.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/decoder/forward_context.h"
#include "models/golden_model.h"

namespace automodel::models {
namespace {

using decoder::ForwardContext;
using decoder::with_noise;

ForwardContext training_on(int64_t length) {
  ForwardContext context;
  context.is_training = true;
  context.sequence = {length, length, {{0, length}}};
  context.dropout = {.seed = 7, .step = 3, .micro_batch = 1};
  return context;
}

TEST(EmbeddingNoiseTest, IsUniformUpToAlphaByTheRootOfTheSize) {
  const at::Tensor x = at::ones({2, 300, 16});
  const at::Tensor noise = with_noise(x, training_on(300), 5.0) - x;
  const double size = 5.0 / std::sqrt(300.0 * 16);
  const double largest = noise.abs().max().item<double>();
  EXPECT_LE(largest, size * (1 + 1e-5));
  EXPECT_GT(largest, 0.999 * size);
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.02 * size);
  EXPECT_NEAR(noise.square().mean().item<double>(), size * size / 3, 0.02 * size * size);
  EXPECT_FALSE(noise[0].equal(noise[1]));
}

TEST(EmbeddingNoiseTest, IsOfTheMicroBatchAndOfTrainingAlone) {
  const at::Tensor x = at::zeros({1, 8, 4});
  ForwardContext context = training_on(8);
  const at::Tensor noise = with_noise(x, context, 5.0);
  EXPECT_TRUE(with_noise(x, context, 5.0).equal(noise));
  EXPECT_TRUE(with_noise(x, context, 0.0).equal(x));
  context.dropout.micro_batch = 2;
  EXPECT_FALSE(with_noise(x, context, 5.0).equal(noise));
  context.is_training = false;
  EXPECT_TRUE(with_noise(x, context, 5.0).equal(x));
}

TEST(EmbeddingNoiseTest, PartsOfSequencesGetTheirPartOfIt) {
  const at::Tensor x = at::zeros({2, 12, 4});
  const at::Tensor whole = with_noise(x, training_on(12), 5.0);
  ForwardContext context = training_on(12);
  context.sequence.runs = {{0, 3}, {9, 3}};  // of a context-parallel rank
  const at::Tensor ends = at::cat({whole.slice(1, 0, 3), whole.slice(1, 9, 12)}, 1);
  EXPECT_TRUE(with_noise(x.slice(1, 0, 6), context, 5.0).equal(ends));
  context = training_on(12);
  context.sequence_part = 1;  // of a tensor-parallel rank with split sequences
  context.num_sequence_parts = 2;
  EXPECT_TRUE(with_noise(x.slice(1, 6, 12), context, 5.0).equal(whole.slice(1, 6, 12)));
}

/// The last hidden states' largest number, of a model whose weights are all zero but for its final
/// norm's: they are the noise, as it comes to the first block.
double largest_noise(const std::string& golden, double alpha) {
  const auto model = test::load_golden_model(golden, {{"rms_norm_eps", Json(1.0)}});
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.zero_();
  if (golden == "granite") model->named_parameters()["model.norm.weight"].fill_(1);
  model->train();
  model->set_embedding_noise(alpha);
  tensor::Batch batch;
  batch.input_ids = at::ones({4, 32}, at::kLong);
  return model->hidden_states(batch).abs().max().item<double>();
}

/// transformers' Gemma scales inside of its embedding, Granite outside; noise is added in between.
TEST(EmbeddingNoiseTest, ComesAfterAScaleThatIsTheEmbeddingsOwn) {
  const double size = 0.01 / std::sqrt(32.0 * 32);
  EXPECT_NEAR(largest_noise("gemma2", 0.01) / size, 1, 0.01);
  EXPECT_NEAR(largest_noise("granite", 0.01) / size, 6, 0.06);
}

}  // namespace
}  // namespace automodel::models
