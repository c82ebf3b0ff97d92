#include "distributed/plan/step_walk.h"

#include <algorithm>
#include <map>

#include "core/text.h"
#include "kernels/optimizer/update_pieces.h"

namespace automodel::distributed {

namespace {

/// Copies in float32 that a device makes of what it updates at once where no kernel does:
/// parameter, gradient, moments and what is between them, in Adam with amsgrad.
constexpr int64_t kUpdateCopies = 6;

// All-to-alls of a layer's dispatcher: counts, experts, tokens and results in a forward, and the
// gradients of the last two in its backward.
constexpr int64_t kExchangesForward = 4;
constexpr int64_t kExchangesBackward = 2;

}  // namespace

StepWalk::StepWalk(const std::vector<UnitMemory>& units, const MemoryOptions& options,
                   const nn::ActivationSizes& activations)
    : options_(options), activations_(activations), units_(units, options), now_(units_.now()) {
  for (SimulatedUnit& unit : units_.units()) {
    if (unit.is_expert) continue;
    if (unit.name.empty()) {
      roots_.push_back(&unit);
    } else if (unit.name == options.tables.embedding) {
      embedding_ = &unit;
    } else if (unit.name == options.tables.head) {
      head_ = &unit;
    } else {
      blocks_.push_back(&unit);
    }
  }
  for (SimulatedUnit& unit : units_.units()) {
    if (!unit.is_expert) continue;
    for (SimulatedUnit* block : blocks_) {
      if (unit.name.starts_with(block->name + ".")) block->experts = &unit;
    }
  }
}

StepCollectives StepWalk::micro_batch(int64_t number, bool is_last) {
  const bool defers = !options_.sharding || options_.sharding->defers_gradients;
  const bool ends_by_hand = options_.is_stage && (defers || options_.keeps_after_backward);
  const bool is_kept = ends_by_hand || (options_.keeps_after_backward && !is_last);
  units_.begin_micro_batch(number, is_kept, !ends_by_hand && (is_last || !defers));
  for (SimulatedUnit* root : roots_) units_.gather(*root, "start");
  now_.activations = activations_.embedding;
  if (embedding_ != nullptr) embed();
  run_passes();
  now_.activations = 0;
  if (embedding_ != nullptr) {
    units_.prepare_gradients(*embedding_);
    units_.mark("backward of the embedding");
  }
  for (SimulatedUnit* root : roots_) units_.finish_backward(*root);
  if (embedding_ != nullptr) units_.finish_backward(*embedding_);
  if (is_last && ends_by_hand) units_.finish_by_hand();
  if (is_last) units_.finish_reduction();
  if (is_last && !options_.sharding) reduce_in_buckets();
  return units_.counts();
}

void StepWalk::update() {
  units_.end_micro_batches();
  units_.mark("the update");
  if (!options_.device.is_cpu()) update_units();  // a CPU goes in small pieces
  units_.free_gradients();
}

void StepWalk::update_units() {
  for (const SimulatedUnit& unit : units_.units()) {
    for (const SimulatedFlat& flat : unit.flats) {
      // Matrices that are orthogonalized are changed whole.
      const int64_t most = options_.optimizer_bytes_of_tensors
                               ? flat.bytes->updated
                               : kernels::elements_updated_at_once(/*on_device=*/true);
      const int64_t at_once = std::min(flat.bytes->updated, most);
      now_.working = at_once * kUpdateCopies * 4;
      units_.mark("the update");
    }
  }
  now_.working = 0;
}

void StepWalk::run_passes() {
  const auto run_blocks = [&](int64_t times, void (StepWalk::*run)(size_t)) {
    for (int64_t pass = 0; pass < times; ++pass) {
      for (size_t i = 0; i < blocks_.size(); ++i) (this->*run)(i);
    }
  };
  run_blocks(options_.num_passes - 1, &StepWalk::forward);
  run_blocks(options_.num_graphless_passes, &StepWalk::forward_without_graph);
  run_blocks(1, &StepWalk::forward);
  head();
  for (int64_t pass = options_.num_passes; pass > 0; --pass) {
    units_.set_last_backward(pass == 1);
    for (size_t i = blocks_.size(); i-- > 0;) backward(i);
  }
}

/// All-to-alls of a layer of experts that are on several ranks.
void StepWalk::exchange(const SimulatedUnit& block, int64_t times, int64_t bytes) {
  if (block.experts == nullptr || !options_.experts.sharding) return;
  units_.counts().num_exchanges += times;
  units_.counts().exchanged_bytes += bytes;
}

bool StepWalk::is_kept_after_forward(size_t block) const {
  if (!options_.sharding) return true;
  const auto& reshards = options_.sharding->reshard_after_forward;
  if (reshards) return !*reshards;
  return block + 1 == blocks_.size();
}

int64_t StepWalk::prefetch_depth(bool is_forward) const {
  if (!options_.sharding || options_.sharding->reshard_after_forward == false) return 0;
  const ShardingOptions& sharding = *options_.sharding;
  const auto num_blocks = static_cast<int64_t>(blocks_.size());
  if (is_forward) return std::min<int64_t>(sharding.forward_prefetch_depth, num_blocks);
  const bool is_implicit = sharding.prefetches_implicitly.value_or(!options_.device.is_cpu());
  const int64_t asked = std::max<int64_t>(sharding.backward_prefetch_depth, is_implicit ? 1 : 0);
  return std::min(asked, num_blocks);
}

void StepWalk::begin_forward(size_t i, const std::string& when) {
  units_.gather(*blocks_[i], when);
  for (int64_t ahead = 1; ahead <= prefetch_depth(true); ++ahead) {
    const size_t next = i + static_cast<size_t>(ahead);
    if (next < blocks_.size()) units_.gather(*blocks_[next], when);
  }
  run_experts_forward(i, when);
}

void StepWalk::forward_without_graph(size_t i) {
  const std::string when = cat("forward of ", blocks_[i]->name, " without a graph");
  begin_forward(i, when);
  now_.working = activations_.block_forward;
  units_.mark(when);
  now_.working = 0;
  if (!options_.sharding) return;
  if (blocks_[i]->experts != nullptr) units_.release(*blocks_[i]->experts);
  units_.release(*blocks_[i]);
}

void StepWalk::forward(size_t i) {
  const std::string when = cat("forward of ", blocks_[i]->name);
  begin_forward(i, when);
  now_.working = activations_.block_forward;
  now_.activations += options_.recomputes ? activations_.block_input : activations_.block_kept;
  units_.mark(when);
  now_.working = 0;
  SimulatedUnit* const experts = blocks_[i]->experts;
  // A forward without a graph gives everything up.
  if (experts != nullptr && (options_.recomputes || !is_kept_after_forward(i)))
    units_.release(*experts);
  if (!is_kept_after_forward(i)) units_.release(*blocks_[i]);
}

void StepWalk::run_experts_forward(size_t i, const std::string& when) {
  if (blocks_[i]->experts == nullptr) return;
  units_.gather(*blocks_[i]->experts, when);
  exchange(*blocks_[i], kExchangesForward, activations_.exchanged_forward);
}

void StepWalk::embed() {
  units_.gather(*embedding_, "forward of the embedding");
  if (options_.sharding && options_.sharding->reshard_after_forward != false) {
    units_.release(*embedding_);
  }
}

void StepWalk::head() {
  if (head_ != nullptr) units_.gather(*head_, "the loss");
  now_.activations += activations_.final_norm_kept;
  now_.logits = activations_.logits + activations_.head_kept;
  units_.mark("the loss");
  for (SimulatedUnit* root : roots_) units_.prepare_gradients(*root);
  if (head_ != nullptr) units_.prepare_gradients(*head_);
  now_.logits = activations_.head_kept;
  units_.mark("backward of the head");
  now_.logits = 0;
  now_.activations -= activations_.final_norm_kept;
  if (head_ != nullptr) units_.finish_backward(*head_);
}

void StepWalk::backward(size_t i) {
  SimulatedUnit& block = *blocks_[i];
  const std::string when = cat("backward of ", block.name);
  units_.gather(block, when);
  units_.prepare_gradients(block);
  for (int64_t ahead = 1; ahead <= prefetch_depth(false); ++ahead) {
    if (ahead <= static_cast<int64_t>(i))
      units_.gather(*blocks_[i - static_cast<size_t>(ahead)], when);
  }
  if (block.experts != nullptr && options_.recomputes) {
    run_experts_forward(i, when);
    if (!is_kept_after_forward(i)) units_.release(*block.experts);
  }
  const int64_t kept_again = options_.recomputes ? activations_.block_kept : 0;
  if (block.experts != nullptr) {
    units_.gather(*block.experts, when);
    units_.prepare_gradients(*block.experts);
    exchange(block, kExchangesBackward, activations_.exchanged_backward);
  }
  now_.working = activations_.block_backward + kept_again;
  units_.mark(when);
  if (block.experts != nullptr) {
    now_.working = activations_.experts_input + kept_again;
    units_.finish_backward(*block.experts);
  }
  now_.working = 0;
  now_.activations -= options_.recomputes ? activations_.block_input : activations_.block_kept;
  units_.finish_backward(block);
}

void StepWalk::reduce_in_buckets() {
  if (options_.num_replicas == 1) return;
  std::map<at::ScalarType, int64_t> arenas;
  for (const SimulatedUnit& unit : units_.units()) {
    for (const SimulatedFlat& flat : unit.flats) {
      if (flat.bytes->is_trained) arenas[flat.bytes->dtype] += flat.bytes->gradients;
    }
  }
  for (const auto& [dtype, bytes] : arenas) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    units_.counts().num_reductions += static_cast<int64_t>(
        make_buckets(bytes / size, size, options_.first_bucket_bytes, options_.bucket_bytes)
            .size());
    units_.counts().reduced_bytes += bytes;
  }
}

}  // namespace automodel::distributed
