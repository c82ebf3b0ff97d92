#include "distributed/plan/memory_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "distributed/strategies/nvfsdp_options.h"

namespace automodel::distributed {

namespace {

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t optimizer_bytes(const MemoryOptions& options, at::ScalarType parameter) {
  return options.optimizer_bytes ? options.optimizer_bytes(parameter) : 2 * size_of(parameter);
}

bool shards_parameters(const MemoryOptions& options) {
  return options.sharding && options.sharding->parameters == Placement::kSharded;
}

bool shards_gradients(const MemoryOptions& options) {
  return options.sharding && options.sharding->gradients == Placement::kSharded;
}

/// Float32 copies that a device makes of what it updates: parameter, gradient, moments and
/// intermediate results, for Adam with amsgrad.
constexpr int64_t kUpdateCopies = 6;

/// Moves this rank's ranges to the host. The device still needs a copy of them for gathers, and one
/// of a reduction's result.
void offload(const FlatGroup& group, const MemoryOptions& options, int64_t range,
             UnitMemory& unit) {
  const ShardingOptions& sharding = *options.sharding;
  const at::ScalarType main = sharding.main_dtype.value_or(group.dtype);
  const at::ScalarType reduced = sharding.reduce_dtype.value_or(unit.computed_dtype);
  unit.gather_copy = range * size_of(unit.computed_dtype);
  unit.host = range * size_of(main) + unit.optimizer;
  unit.masters = unit.optimizer = 0;
  if (shards_parameters(options)) unit.parameters = 0;
  if (!group.is_trained) return;
  unit.host += range * size_of(sharding.gradient_dtype.value_or(main));
  unit.gradients = shards_gradients(options) ? 0 : unit.sent;
  unit.sum_copy = range * size_of(reduced);
  unit.updated = 0;
}

/// Sets the bytes of a sharded unit, by the rules of FSDPModule::make_flat.
void add_sharded_bytes(const FlatGroup& group, const MemoryOptions& options, UnitMemory& unit) {
  const ShardingOptions& sharding = *options.sharding;
  const FlatLayout layout = group.layout(size_of(group.dtype), options.num_parts);
  const int64_t range = layout.range_numel(options.num_parts);
  const at::ScalarType main = sharding.main_dtype.value_or(group.dtype);
  const at::ScalarType computed = unit.computed_dtype;
  const at::ScalarType reduced = sharding.reduce_dtype.value_or(computed);
  if (main != computed) unit.gather_copy = range * size_of(computed);
  if (shards_parameters(options)) {
    unit.parameters = range * size_of(main);
    unit.gathered = layout.numel * size_of(computed);
  } else {
    unit.parameters = layout.numel * size_of(computed);
    if (main != computed) unit.masters = range * size_of(main);
  }
  const bool offloads = sharding.offload_policy && !options.device.is_cpu();
  if (!group.is_trained) {
    if (offloads) offload(group, options, range, unit);
    return;
  }
  const at::ScalarType kept = sharding.gradient_dtype.value_or(main);
  unit.updated = range;
  unit.optimizer = range * optimizer_bytes(options, main);
  unit.sent = layout.numel * size_of(reduced);
  const bool has_accumulated = reduced != computed;
  if (shards_gradients(options)) {
    unit.gradients = range * size_of(kept);
    unit.whole_gradients = layout.numel * size_of(computed);
    if (has_accumulated) unit.accumulated = unit.sent;
  } else {
    // The whole buffer stays allocated; the optimizer reads this rank's range in it.
    unit.gradients = unit.sent + (reduced != kept ? range * size_of(kept) : 0);
    if (has_accumulated) unit.whole_gradients = layout.numel * size_of(computed);
  }
  if (reduced != kept) unit.sum_copy = range * size_of(reduced);
  if (offloads) offload(group, options, range, unit);
}

/// The options of experts that are units of their own, as shard_experts sets them.
MemoryOptions expert_options(const MemoryOptions& options) {
  MemoryOptions own = options;
  if (!options.experts.sharding) return own;
  own.sharding = options.experts.sharding;
  own.num_parts = options.experts.num_parts;
  own.num_replicas = 1;
  return own;
}

/// The bytes of one flat group on one rank.
UnitMemory unit_memory(const FlatGroup& group, const MemoryOptions& options) {
  UnitMemory unit;
  unit.unit = group.unit;
  unit.dtype = group.dtype;
  unit.computed_dtype = group.dtype;
  unit.is_trained = group.is_trained;
  unit.numel = group.numel();
  if (options.sharding) {
    MemoryOptions own = options;
    if (options.head_dtype && group.unit == options.tables.head) {
      own.sharding->param_dtype = own.sharding->reduce_dtype = options.head_dtype;
    }
    if (!c10::isFloatingType(group.dtype)) {
      own.sharding->param_dtype.reset();
      own.sharding->main_dtype.reset();
    }
    unit.computed_dtype = own.sharding->param_dtype.value_or(group.dtype);
    add_sharded_bytes(group, own, unit);
    return unit;
  }
  unit.parameters = group.layout(size_of(group.dtype), 1).numel * size_of(group.dtype);
  if (!group.is_trained) return unit;
  unit.gradients = unit.parameters;
  unit.updated = unit.parameters / size_of(group.dtype);
  unit.optimizer = unit.updated * optimizer_bytes(options, group.dtype);
  return unit;
}

/// Walks through steps as the engines do, and keeps the moment with the most memory.
class StepWalk final {
 public:
  StepWalk(const std::vector<UnitMemory>& units, const MemoryOptions& options,
           const nn::ActivationSizes& activations)
      : options_(options), expert_options_(expert_options(options)), activations_(activations) {
    for (const UnitMemory& unit : units) {
      auto it = std::find_if(units_.begin(), units_.end(),
                             [&](const Unit& known) { return known.name == unit.unit; });
      if (it == units_.end()) {
        it = units_.insert(units_.end(), Unit{unit.unit});
        it->options = unit.is_expert ? &expert_options_ : &options_;
        it->is_expert = unit.is_expert;
      }
      it->flats.push_back({&unit});
    }
    for (Unit& unit : units_) {
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
    for (Unit& unit : units_) {
      if (!unit.is_expert) continue;
      for (Unit* block : blocks_) {
        if (unit.name.starts_with(block->name + ".")) block->experts = &unit;
      }
    }
  }
  StepWalk(const StepWalk&) = delete;  // units point to the options
  StepWalk& operator=(const StepWalk&) = delete;

  /// Begins a step after the update of replicated parameters, with new gradients.
  void begin_step() {
    for (Unit& unit : units_) {
      for (Flat& flat : unit.flats) {
        if (flat.bytes->gathered == 0) flat.is_gathered = false;
        flat.is_reduced = false;
      }
    }
  }

  /// Walks through one micro-batch; returns its collectives.
  StepCollectives micro_batch(int64_t number, bool is_last) {
    number_ = number;
    const bool defers = !options_.sharding || options_.sharding->defers_gradients;
    const bool ends_by_hand = options_.is_stage && (defers || options_.keeps_after_backward);
    is_kept_ = ends_by_hand || (options_.keeps_after_backward && !is_last);
    is_synced_ = !ends_by_hand && (is_last || !defers);
    counts_ = {};
    for (Unit* root : roots_) gather(*root, "start");
    now_.activations = activations_.embedding;
    if (embedding_ != nullptr) embed();
    run_passes();
    now_.activations = 0;
    if (embedding_ != nullptr) {
      prepare_gradients(*embedding_);
      mark("backward of the embedding");
    }
    for (Unit* root : roots_) finish_backward(*root);
    if (embedding_ != nullptr) finish_backward(*embedding_);
    if (is_last && ends_by_hand) finish_by_hand();
    if (is_last) finish_reduction();
    if (is_last && !options_.sharding) reduce_in_buckets();
    return counts_;
  }

  /// Walks through the optimizer's update, one unit after the other.
  void update() {
    if (options_.device.is_cpu()) return;  // a CPU updates small pieces
    for (const Unit& unit : units_) {
      for (const Flat& flat : unit.flats) {
        now_.working = flat.bytes->updated * kUpdateCopies * 4;
        if (now_.total() <= peak_.total()) continue;
        peak_ = now_;
        peak_.name = "the update";
      }
    }
    now_.working = 0;
  }

  const MemoryMoment& peak() const { return peak_; }
  int64_t resting() const { return now_.total(); }

 private:
  void run_passes() {
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
      is_last_backward_ = pass == 1;
      for (size_t i = blocks_.size(); i-- > 0;) backward(i);
    }
  }

  struct Flat {
    const UnitMemory* bytes;
    bool is_gathered = false;
    bool has_gradients = false;    // from this micro-batch
    bool has_accumulated = false;  // from earlier micro-batches
    bool is_reduced = false;       // at least once in this step
  };
  struct Unit {
    std::string name;
    std::vector<Flat> flats = {};
    const MemoryOptions* options = nullptr;
    bool is_expert = false;
    Unit* experts = nullptr;  // of a block, if they are a unit
  };

  void mark(const std::string& what) {
    if (now_.total() <= peak_.total()) return;
    peak_ = now_;
    peak_.name = options_.num_micro_batches == 1 ? what : cat(what, ", micro-batch ", number_);
  }

  // The engine's pool keeps some freed buffers of each size for the next unit.
  void take(int64_t bytes) {
    int64_t& idle = idle_[bytes];
    if (idle == 0) return;
    --idle;
    now_.idle -= bytes;
  }

  void give(int64_t bytes) {
    int64_t& idle = idle_[bytes];
    if (!options_.sharding || idle == num_kept_buffers(*options_.sharding)) return;
    ++idle;
    now_.idle += bytes;
  }

  void gather(Unit& unit, const std::string& when) {
    for (Flat& flat : unit.flats) {
      const UnitMemory& bytes = *flat.bytes;
      if (!options_.sharding || flat.is_gathered) continue;
      flat.is_gathered = true;
      if (bytes.gathered > 0) take(bytes.gathered);
      now_.gathered += bytes.gathered;
      count_gather(unit, bytes);
      now_.casts += bytes.gather_copy;
      mark(cat("gather at ", when));
      now_.casts -= bytes.gather_copy;
    }
  }

  void count_gather(const Unit& unit, const UnitMemory& bytes) {
    if (unit.options->num_parts == 1) return;  // no peers to gather from
    // Replicated parameters are gathered once a step, after their update.
    const int64_t whole = bytes.gathered > 0 ? bytes.gathered : bytes.parameters;
    (unit.is_expert ? counts_.num_expert_gathers : counts_.num_gathers) += 1;
    (unit.is_expert ? counts_.expert_gathered_bytes : counts_.gathered_bytes) += whole;
  }

  void release(Unit& unit) {
    for (Flat& flat : unit.flats) {
      if (!flat.is_gathered || flat.bytes->gathered == 0) continue;
      flat.is_gathered = false;
      now_.gathered -= flat.bytes->gathered;
      give(flat.bytes->gathered);
    }
  }

  void prepare_gradients(Unit& unit) {
    for (Flat& flat : unit.flats) {
      if (!flat.bytes->is_trained) continue;
      if (pending_flat_ == &flat) finish_reduction();
      allocate(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
    }
  }

  /// Counts a buffer's memory, unless it is already allocated.
  void allocate(bool& is_allocated, int64_t bytes, int64_t& held) {
    if (std::exchange(is_allocated, true) || bytes == 0) return;
    take(bytes);
    held += bytes;
  }

  void drop(bool& is_allocated, int64_t bytes, int64_t& held) {
    if (!std::exchange(is_allocated, false) || bytes == 0) return;
    held -= bytes;
    give(bytes);
  }

  bool has_wider_sum(const Flat& flat) const {
    return flat.bytes->whole_gradients > 0 && flat.bytes->sent != flat.bytes->whole_gradients;
  }

  /// Adds the micro-batch's gradients to the sum of earlier ones.
  void stash(Flat& flat) {
    allocate(flat.has_accumulated, flat.bytes->accumulated, now_.whole_gradients);
    mark("sum of gradients");
    drop(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
  }

  /// Frees and reduces what the hooks left when a stage's last backward has ended.
  void finish_by_hand() {
    is_kept_ = false;
    is_synced_ = true;
    for (Unit& unit : units_) finish_backward(unit);
  }

  void finish_backward(Unit& unit) {
    if (!is_kept_) release(unit);
    if (!options_.sharding) return;
    for (Flat& flat : unit.flats) {
      if (!flat.bytes->is_trained) continue;
      if (!is_synced_) {
        if (has_wider_sum(flat)) stash(flat);
        continue;
      }
      // Whole gradients are averaged in place, so only once.
      if (!is_last_backward_ && !shards_gradients(*unit.options)) continue;
      finish_reduction();
      if (has_wider_sum(flat)) stash(flat);
      pending_ = &unit;
      pending_flat_ = &flat;
      // A step's first sum is written directly into the gradients.
      const bool is_direct = !flat.is_reduced && flat.bytes->sum_copy == 0;
      pending_copy_ = is_direct || !shards_gradients(*unit.options)
                          ? flat.bytes->sum_copy
                          : flat.bytes->sent / unit.options->num_parts;
      now_.casts += pending_copy_;
      mark(cat("reduction of ", unit.name.empty() ? "the root" : unit.name));
      if (!options_.sharding->overlaps_reductions) finish_reduction();
    }
  }

  void finish_reduction() {
    if (pending_ == nullptr) return;
    const Unit& unit = *std::exchange(pending_, nullptr);
    Flat& flat = *std::exchange(pending_flat_, nullptr);
    now_.casts -= std::exchange(pending_copy_, 0);
    flat.is_reduced = true;
    drop(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
    drop(flat.has_accumulated, flat.bytes->accumulated, now_.whole_gradients);
    if (unit.options->num_parts > 1) {
      (unit.is_expert ? counts_.num_expert_reductions : counts_.num_reductions) += 1;
      (unit.is_expert ? counts_.expert_reduced_bytes : counts_.reduced_bytes) += flat.bytes->sent;
    }
    if (unit.options->num_replicas > 1) {
      counts_.num_replica_reductions += 1;
      counts_.replica_reduced_bytes += flat.bytes->sent / unit.options->num_parts;
    }
  }

  /// Counts the all-to-alls of a block whose experts are split over ranks.
  void exchange(const Unit& block, int64_t times, int64_t bytes) {
    if (block.experts == nullptr || !options_.experts.sharding) return;
    counts_.num_exchanges += times;
    counts_.exchanged_bytes += bytes;
  }

  bool is_kept_after_forward(size_t block) const {
    if (!options_.sharding) return true;
    const auto& reshards = options_.sharding->reshard_after_forward;
    if (reshards) return !*reshards;
    return block + 1 == blocks_.size();
  }

  int64_t prefetch_depth(bool is_forward) const {
    if (!options_.sharding || options_.sharding->reshard_after_forward == false) return 0;
    const ShardingOptions& sharding = *options_.sharding;
    if (is_forward) return sharding.forward_prefetch_depth;
    const bool is_implicit = sharding.prefetches_implicitly.value_or(!options_.device.is_cpu());
    return std::max<int64_t>(sharding.backward_prefetch_depth, is_implicit ? 1 : 0);
  }

  void begin_forward(size_t i, const std::string& when) {
    gather(*blocks_[i], when);
    for (int64_t ahead = 1; ahead <= prefetch_depth(true); ++ahead) {
      const size_t next = i + static_cast<size_t>(ahead);
      if (next < blocks_.size()) gather(*blocks_[next], when);
    }
    run_experts_forward(i, when);
  }

  void forward_without_graph(size_t i) {
    const std::string when = cat("forward of ", blocks_[i]->name, " without a graph");
    begin_forward(i, when);
    now_.working = activations_.block_forward;
    mark(when);
    now_.working = 0;
    if (!options_.sharding) return;
    if (blocks_[i]->experts != nullptr) release(*blocks_[i]->experts);
    release(*blocks_[i]);
  }

  void forward(size_t i) {
    const std::string when = cat("forward of ", blocks_[i]->name);
    begin_forward(i, when);
    now_.working = activations_.block_forward;
    now_.activations += options_.recomputes ? activations_.block_input : activations_.block_kept;
    mark(when);
    now_.working = 0;
    Unit* const experts = blocks_[i]->experts;
    // A forward without a graph (a recomputed block's) frees its units.
    if (experts != nullptr && (options_.recomputes || !is_kept_after_forward(i))) release(*experts);
    if (!is_kept_after_forward(i)) release(*blocks_[i]);
  }

  void run_experts_forward(size_t i, const std::string& when) {
    if (blocks_[i]->experts == nullptr) return;
    gather(*blocks_[i]->experts, when);
    exchange(*blocks_[i], kExchangesForward, activations_.exchanged_forward);
  }

  void embed() {
    gather(*embedding_, "forward of the embedding");
    if (options_.sharding && options_.sharding->reshard_after_forward != false) {
      release(*embedding_);
    }
  }

  void head() {
    if (head_ != nullptr) gather(*head_, "the loss");
    now_.activations += activations_.final_norm_kept;
    now_.logits = activations_.logits + activations_.head_kept;
    mark("the loss");
    for (Unit* root : roots_) prepare_gradients(*root);
    if (head_ != nullptr) prepare_gradients(*head_);
    now_.logits = activations_.head_kept;
    mark("backward of the head");
    now_.logits = 0;
    now_.activations -= activations_.final_norm_kept;
    if (head_ != nullptr) finish_backward(*head_);
  }

  void backward(size_t i) {
    Unit& block = *blocks_[i];
    const std::string when = cat("backward of ", block.name);
    gather(block, when);
    prepare_gradients(block);
    for (int64_t ahead = 1; ahead <= prefetch_depth(false); ++ahead) {
      if (ahead <= static_cast<int64_t>(i)) gather(*blocks_[i - static_cast<size_t>(ahead)], when);
    }
    if (block.experts != nullptr && options_.recomputes) {
      run_experts_forward(i, when);
      if (!is_kept_after_forward(i)) release(*block.experts);
    }
    const int64_t kept_again = options_.recomputes ? activations_.block_kept : 0;
    if (block.experts != nullptr) {
      gather(*block.experts, when);
      prepare_gradients(*block.experts);
      exchange(block, kExchangesBackward, activations_.exchanged_backward);
    }
    now_.working = activations_.block_backward + kept_again;
    mark(when);
    if (block.experts != nullptr) {
      now_.working = activations_.experts_input + kept_again;
      finish_backward(*block.experts);
    }
    now_.working = 0;
    now_.activations -= options_.recomputes ? activations_.block_input : activations_.block_kept;
    finish_backward(block);
  }

  void reduce_in_buckets() {
    if (options_.num_replicas == 1) return;
    std::map<at::ScalarType, int64_t> arenas;
    for (const Unit& unit : units_) {
      for (const Flat& flat : unit.flats) {
        if (flat.bytes->is_trained) arenas[flat.bytes->dtype] += flat.bytes->gradients;
      }
    }
    for (const auto& [dtype, bytes] : arenas) {
      const int64_t size = size_of(dtype);
      counts_.num_reductions += static_cast<int64_t>(
          make_buckets(bytes / size, size, options_.first_bucket_bytes, options_.bucket_bytes)
              .size());
      counts_.reduced_bytes += bytes;
    }
  }

  // The dispatcher's all-to-alls of counts, expert ids, tokens and results; backward has two, of
  // gradients.
  static constexpr int64_t kExchangesForward = 4;
  static constexpr int64_t kExchangesBackward = 2;

  const MemoryOptions& options_;
  const MemoryOptions expert_options_;
  const nn::ActivationSizes& activations_;
  std::vector<Unit> units_;
  std::vector<Unit*> blocks_;
  std::vector<Unit*> roots_;
  Unit* embedding_ = nullptr;  // if it is a unit of its own
  Unit* head_ = nullptr;
  std::map<int64_t, int64_t> idle_;
  MemoryMoment now_;
  MemoryMoment peak_;
  StepCollectives counts_;
  int64_t number_ = 1;
  bool is_synced_ = true;
  bool is_kept_ = false;           // units stay gathered after backward
  bool is_last_backward_ = true;   // of a micro-batch's passes
  const Unit* pending_ = nullptr;  // of the reduction under way
  Flat* pending_flat_ = nullptr;
  int64_t pending_copy_ = 0;
};

/// Splits experts over their own ranks, `num_parts` of which share the same experts. The default
/// strategy then uses its sharding for everything, even if one rank holds all the rest.
void split_experts_in(const DistributedSetup& setup, int64_t num_parts, MemoryOptions& options) {
  const MoEParallelizerConfig moe = setup.moe.value_or(MoEParallelizerConfig{});
  ShardingOptions sharding = sharding_options(setup.fsdp2, options.device);
  if (moe.mp_policy) apply_policy(*moe.mp_policy, sharding);
  if (!sharding.reshard_after_forward) sharding.reshard_after_forward = moe.reshard_after_forward;
  options.sharding = sharding;
  options.head_dtype = own_head_dtype(moe);
  options.experts.sharding = fitted_to(sharding, static_cast<int>(num_parts));
  options.experts.num_parts = num_parts;
}

}  // namespace

MemoryOptions memory_options(const DistributedSetup& setup, const mesh::MeshSizes& sizes,
                             at::Device device) {
  MemoryOptions options;
  options.device = device;
  options.recomputes = activation_checkpointing_mode(setup) != ActivationCheckpointingMode::kOff &&
                       has_language_scope(activation_checkpointing_scope(setup));
  if (const auto cap = setup.ddp.bucket_cap_mb) {
    options.bucket_bytes = *cap << 20;
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  }
  const int64_t ranks = int64_t{sizes.dp()} * sizes.cp;
  const int64_t ep = setup.sizes.ep_size.value_or(1);
  if (ep > 1) split_experts_in(setup, sizes.world_size() / sizes.pp / ep, options);
  if (ranks == 1 && ep == 1) return options;
  const MegatronFSDPConfig& megatron = setup.megatron_fsdp;
  switch (setup.strategy) {
    case Strategy::kFsdp2:
      if (!options.sharding) options.sharding = sharding_options(setup.fsdp2, device);
      options.sharding = fitted_to(*options.sharding, static_cast<int>(ranks));
      options.num_parts = int64_t{sizes.dp_shard} * sizes.cp;
      options.num_replicas = sizes.dp_replicate;
      break;
    case Strategy::kMegatronFsdp:
      if (megatron.zero_dp_strategy > 0 || megatron.preserve_fp32_weights) {
        options.sharding = sharding_options(megatron, device);
      }
      (megatron.zero_dp_strategy > 0 ? options.num_parts : options.num_replicas) = ranks;
      break;
    case Strategy::kDdp:
      options.num_replicas = ranks;
      break;
  }
  return options;
}

StepCollectives& StepCollectives::operator+=(const StepCollectives& other) {
  num_gathers += other.num_gathers;
  gathered_bytes += other.gathered_bytes;
  num_reductions += other.num_reductions;
  reduced_bytes += other.reduced_bytes;
  num_replica_reductions += other.num_replica_reductions;
  replica_reduced_bytes += other.replica_reduced_bytes;
  num_expert_gathers += other.num_expert_gathers;
  expert_gathered_bytes += other.expert_gathered_bytes;
  num_expert_reductions += other.num_expert_reductions;
  expert_reduced_bytes += other.expert_reduced_bytes;
  num_exchanges += other.num_exchanges;
  exchanged_bytes += other.exchanged_bytes;
  return *this;
}

StepCollectives StepCollectives::operator*(int64_t times) const {
  return {
      num_gathers * times,          gathered_bytes * times,         num_reductions * times,
      reduced_bytes * times,        num_replica_reductions * times, replica_reduced_bytes * times,
      num_expert_gathers * times,   expert_gathered_bytes * times,  num_expert_reductions * times,
      expert_reduced_bytes * times, num_exchanges * times,          exchanged_bytes * times};
}

const UnitMemory& MemoryPlan::largest_unit() const {
  AM_CHECK(!units.empty());
  return *std::max_element(units.begin(), units.end(),
                           [](const auto& a, const auto& b) { return a.numel < b.numel; });
}

MemoryPlan plan_memory(std::span<const FlatGroup> groups, const MemoryOptions& options,
                       const nn::ActivationSizes& activations) {
  MemoryPlan plan;
  const std::vector<std::string>& experts = options.experts.modules;
  const MemoryOptions of_experts = expert_options(options);
  for (const FlatGroup& group : groups) {
    const bool is_expert = std::find(experts.begin(), experts.end(), group.unit) != experts.end();
    plan.units.push_back(unit_memory(group, is_expert ? of_experts : options));
    UnitMemory& unit = plan.units.back();
    unit.is_expert = is_expert;
    plan.parameters += unit.parameters + unit.masters;
    plan.gradients += unit.gradients;
    plan.optimizer += unit.optimizer;
    plan.host += unit.host;
    // Each buffer is allocated once when it is made.
    plan.building =
        std::max(plan.building, unit.gathered + unit.whole_gradients + unit.accumulated);
  }
  StepWalk walk(plan.units, options, activations);
  const int64_t count = options.num_micro_batches;
  // The second step begins with the buffers that the first has freed, as all later ones do.
  for (int step = 0; step < 2; ++step) {
    walk.begin_step();
    plan.per_micro = walk.micro_batch(1, count == 1);
    plan.per_step = plan.per_micro;
    // Micro-batches between the second and the last are like the second.
    if (count > 2) plan.per_step += walk.micro_batch(2, false) * (count - 2);
    if (count > 1) plan.per_step += walk.micro_batch(count, true);
    walk.update();
  }
  plan.peak = walk.peak();
  plan.resting = walk.resting();
  return plan;
}

}  // namespace automodel::distributed
