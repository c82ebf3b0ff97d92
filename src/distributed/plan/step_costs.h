#pragma once

#include <cstdint>
#include <string>

namespace automodel::distributed {

/// What is there at one moment of a step, in bytes.
struct MemoryMoment {
  std::string name;             ///< "backward of model.layers.3, micro-batch 2"
  int64_t gathered = 0;         ///< whole parameters
  int64_t gradients = 0;        ///< that the optimizer reads, of those that do not stay
  int64_t whole_gradients = 0;  ///< gradients that wait for their reduction
  int64_t casts = 0;            ///< copies in another dtype around a collective
  int64_t activations = 0;      ///< kept for backward
  int64_t working = 0;          ///< other intermediate tensors
  int64_t logits = 0;           ///< of working: a chunk of logits and the head's gradients

  int64_t total() const {
    return gathered + gradients + whole_gradients + casts + activations + working + logits;
  }
};

/// Collectives of one optimizer step on one rank. Bytes are those of the whole tensor.
struct StepCollectives {
  int64_t num_gathers = 0;
  int64_t gathered_bytes = 0;
  int64_t num_reductions = 0;  ///< reduce-scatters; all-reduces where gradients are replicated
  int64_t reduced_bytes = 0;
  int64_t num_replica_reductions = 0;  ///< all-reduces of a part over HSDP's replicas
  int64_t replica_reduced_bytes = 0;
  // Collectives of experts that are units of their own, which are not in those above.
  int64_t num_expert_gathers = 0;
  int64_t expert_gathered_bytes = 0;
  int64_t num_expert_reductions = 0;
  int64_t expert_reduced_bytes = 0;
  // All-to-alls of tokens, of which bytes are what this rank sends, its own part included.
  int64_t num_exchanges = 0;
  int64_t exchanged_bytes = 0;

  StepCollectives& operator+=(const StepCollectives& other);
  StepCollectives& operator*=(int64_t times);
  bool operator==(const StepCollectives&) const = default;
};

}  // namespace automodel::distributed
