#include "training/step_graph.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "tensor/random.h"

namespace automodel::training {

namespace {

using Sizes = std::vector<std::vector<int64_t>>;

/// The tensors of a batch that a recorded step reads.
std::vector<at::Tensor*> tensors_of(tensor::Batch& batch) {
  std::vector<at::Tensor*> tensors = {&batch.input_ids, &batch.labels};
  if (batch.position_ids.defined()) tensors.push_back(&batch.position_ids);
  if (batch.token_types.defined()) tensors.push_back(&batch.token_types);
  return tensors;
}

Sizes sizes_of(const std::vector<tensor::Batch>& batches) {
  Sizes sizes;
  for (const tensor::Batch& batch : batches) {
    sizes.push_back(batch.input_ids.sizes().vec());
    sizes.back().push_back(batch.position_ids.defined() ? batch.needed_positions() : 0);
    sizes.back().push_back(batch.token_types.defined() ? 1 : 0);
  }
  return sizes;
}

/// Whether a kernel's shape follows from the batch's sizes alone.
bool is_dense(const tensor::Batch& batch) {
  return !batch.padding_mask.defined() && !batch.document_ids.defined() && !batch.part &&
         !batch.visible_keys.defined() && !batch.source_ids.defined();
}

}  // namespace

StepGraph::StepGraph(std::unique_ptr<tensor::KernelGraph> graph, at::Device device)
    : graph_(std::move(graph)), device_(device) {}

void StepGraph::drop() {
  if (std::exchange(is_recorded_, false)) graph_->forget();
  num_alike_ = 0;
}

void StepGraph::record(const std::vector<tensor::Batch>& batches, const Work& work) {
  fixed_.clear();
  for (const tensor::Batch& batch : batches) {
    fixed_.push_back(batch.to(device_));
    tensor::Batch& fixed = fixed_.back();
    for (at::Tensor* tensor : tensors_of(fixed)) *tensor = tensor->clone();
  }
  const int64_t num_keys = tensor::num_named_keys();
  try {
    graph_->record([&] { work(fixed_, true); });
  } catch (const c10::Error& error) {
    throw NotRecorded(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw NotRecorded(error.what());
  }
  if (tensor::num_named_keys() != num_keys) {
    throw NotRecorded("it draws random numbers (dropout, noise), other ones in every step");
  }
  is_recorded_ = true;
}

/// Puts a step's batches where the recording reads them.
void StepGraph::take(const std::vector<tensor::Batch>& batches) {
  for (size_t i = 0; i < batches.size(); ++i) {
    tensor::Batch batch = batches[i].to(device_);
    const std::vector<at::Tensor*> from = tensors_of(batch);
    const std::vector<at::Tensor*> to = tensors_of(fixed_[i]);
    for (size_t j = 0; j < from.size(); ++j) to[j]->copy_(*from[j]);
  }
}

bool StepGraph::run(const std::vector<tensor::Batch>& batches, const Work& work) {
  const bool is_recordable =
      !batches.empty() && std::all_of(batches.begin(), batches.end(), is_dense);
  const Sizes sizes = is_recordable ? sizes_of(batches) : Sizes();
  if (sizes.empty() || sizes != last_) drop();
  last_ = sizes;
  if (sizes.empty() || num_alike_++ < kAlike) {
    graph_->run([&] { work(batches, false); });
    return false;
  }
  graph_->run([&] {
    is_recorded_ ? take(batches) : record(batches, work);
    graph_->replay();
  });
  return true;
}

}  // namespace automodel::training
