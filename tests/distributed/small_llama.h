#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "distributed/fill_by_name.h"
#include "distributed/strategies/parallelizer.h"
#include "models/golden_model.h"
#include "tensor/random.h"

namespace automodel::distributed {

/// A golden model, without memory, and what a parallelizer is told of it; by default the Llama of
/// tests/golden/llama_default (2 layers, 4 heads of 8, 2 of keys and values, a head of
/// its own, 128 tokens), without memory, and what a parallelizer is told of it.
struct SmallLlama {
  explicit SmallLlama(const std::vector<std::pair<std::string, Json>>& changes = {},
                      at::ScalarType dtype = at::kFloat,
                      const std::string& golden = "llama_default") {
    Json config = Json::parse_file(test::golden_file(golden, "config.json"));
    for (const auto& [key, value] : changes) config[key] = value;
    model = models::build_causal_lm(config, dtype);
    model->train();
    const models::ModelDims dims = model->dims();
    facts = {model->architecture(), dims.num_heads,         dims.num_kv_heads,
             dims.vocab_size,       model->parallel_plan(), model->key_map()};
  }

  ParallelModel parallel() {
    return {*model, facts,
            [this](std::shared_ptr<nn::LossHead> head) { model->set_loss_head(std::move(head)); }};
  }

  at::Tensor loss(int64_t length = 12) {
    tensor::Batch batch;
    batch.input_ids = at::remainder(at::arange(2 * length).pow(2) * 7 + 3, 128).view({2, length});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, 128);
    return model->loss(batch, 10.0, -100);
  }

  at::Tensor parameter(const std::string& fqn) { return model->named_parameters()[fqn]; }

  std::shared_ptr<models::CausalLM> model;
  TpModel facts;
};

/// Micro-batches that are all alike, and what they add up to.
inline double norm_of_micro_batches(SmallLlama& llama, Engine& engine, int count = 1,
                                    int64_t length = 12) {
  for (int i = 0; i < count; ++i) {
    engine.begin_micro_batch(i + 1 == count);
    llama.loss(length).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  return engine.gradient_norm();
}

}  // namespace automodel::distributed
