// Several documents in one sequence: each is what it is alone, in every family, by the fused
// kernels and by the plain path.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "datasets/loading/collate.h"
#include "kernels/base/fused.h"
#include "models/golden_families.h"
#include "models/golden_model.h"

namespace automodel {
namespace {

using datasets::Sample;

constexpr int64_t kLengths[] = {5, 9, 4};
constexpr int64_t kNumDocuments = std::size(kLengths);

/// The document of a number; `change` gives it other tokens.
Sample document(int64_t number, int64_t vocab_size, int64_t change = 0) {
  Sample sample;
  const int64_t length = kLengths[number];
  for (int64_t i = 0; i < length; ++i) {
    sample.input_ids.push_back((i * i * 7 + number * 13 + change * (i + 1) + 3) % vocab_size);
    sample.labels.push_back((i * 5 + number * 3 + 1) % vocab_size);
  }
  sample.labels.front() = datasets::kIgnoreIndex;
  sample.num_attended = length;
  return sample;
}

/// All of them in one sequence, with two tokens of padding behind.
tensor::Batch pack_of(const std::vector<Sample>& documents) {
  Sample pack;
  for (const Sample& one : documents) {
    pack.input_ids.insert(pack.input_ids.end(), one.input_ids.begin(), one.input_ids.end());
    pack.labels.insert(pack.labels.end(), one.labels.begin(), one.labels.end());
    pack.document_lengths.push_back(one.num_attended);
  }
  pack.num_attended = std::ssize(pack.input_ids);
  pack.input_ids.resize(pack.input_ids.size() + 2, 0);
  pack.labels.resize(pack.input_ids.size(), datasets::kIgnoreIndex);
  return datasets::default_collater(std::vector<Sample>{pack});
}

using Gradients = std::map<std::string, at::Tensor>;

/// Adds a batch's sum of losses to the gradients and returns it.
double add_loss(models::CausalLM& model, const tensor::Batch& batch) {
  const at::Tensor loss = model.loss(batch, 1.0, datasets::kIgnoreIndex);
  loss.backward();
  return loss.item<double>();
}

Gradients taken_gradients(models::CausalLM& model) {
  Gradients gradients;
  for (const auto& item : model.named_parameters()) {
    at::Tensor parameter = item.value();
    const at::Tensor& gradient = parameter.grad();
    gradients[item.key()] = gradient.defined() ? gradient.clone() : at::zeros_like(parameter);
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

class PackedModelsTest : public testing::TestWithParam<std::string> {
 protected:
  /// Packed and apart, by the path that applies: equal to `tolerance` of the largest gradient.
  void expect_equal(models::CausalLM& model, double tolerance) {
    const int64_t vocab_size = model.dims().vocab_size;
    std::vector<Sample> documents;
    double apart = 0;
    for (int64_t i = 0; i < kNumDocuments; ++i) {
      documents.push_back(document(i, vocab_size));
      apart += add_loss(model, datasets::default_collater(std::vector<Sample>{documents.back()}));
    }
    const Gradients wanted = taken_gradients(model);
    const double packed = add_loss(model, pack_of(documents));
    const Gradients found = taken_gradients(model);
    EXPECT_NEAR(packed, apart, tolerance * apart);
    double scale = 0;
    for (const auto& [name, gradient] : wanted)
      scale = std::max(scale, gradient.abs().max().item<double>());
    for (const auto& [name, gradient] : wanted) {
      EXPECT_LE((found.at(name) - gradient).abs().max().item<double>(), tolerance * scale) << name;
    }
  }
};

TEST_P(PackedModelsTest, APackIsItsDocumentsApart) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model(GetParam());
  model->eval();
  expect_equal(*model, 2e-5);
  for (at::Tensor parameter : model->parameters()) {
    if (parameter.is_floating_point()) parameter.set_data(parameter.to(at::kDouble));
  }
  const kernels::PlainPathScope path;
  expect_equal(*model, 1e-10);
}

/// What one document's loss says of the embeddings: nothing of another's tokens.
TEST_P(PackedModelsTest, NoTokenSeesAnotherDocument) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model(GetParam());
  model->eval();
  const int64_t vocab_size = model->dims().vocab_size;
  const auto loss_of_last = [&](int64_t change) {
    std::vector<Sample> documents;
    for (int64_t i = 0; i < kNumDocuments; ++i) {
      documents.push_back(document(i, vocab_size, i + 1 == kNumDocuments ? 0 : change));
    }
    for (int64_t i = 0; i + 1 < kNumDocuments; ++i) {
      documents[static_cast<size_t>(i)].labels.assign(static_cast<size_t>(kLengths[i]),
                                                      datasets::kIgnoreIndex);
    }
    const double loss = add_loss(*model, pack_of(documents));
    return std::pair(loss, taken_gradients(*model));
  };
  for (const bool is_plain : {false, true}) {
    std::optional<kernels::PlainPathScope> path;
    if (is_plain) path.emplace();
    const auto [loss, gradients] = loss_of_last(0);
    const auto [other_loss, other_gradients] = loss_of_last(1);
    EXPECT_NEAR(loss, other_loss, 1e-6 * loss) << is_plain;
    for (const auto& [name, gradient] : gradients) {
      const double scale = gradient.abs().max().item<double>() + 1e-6;
      EXPECT_LE((other_gradients.at(name) - gradient).abs().max().item<double>(), 2e-5 * scale)
          << name << " " << is_plain;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackedModelsTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& it) { return it.param; });

}  // namespace
}  // namespace automodel
