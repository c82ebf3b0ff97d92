#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "config/node.h"
#include "core/field.h"
#include "core/text.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::recipes {

/// `dist_env`.
struct DistEnvSection {
  std::string backend = "nccl";

  /// Whether the backend is NCCL or has it for CUDA ("cpu:gloo,cuda:nccl").
  bool names_nccl() const { return to_lower(backend).find("nccl") != std::string::npos; }
  double timeout_minutes = 1;

  static constexpr auto fields() {
    using S = DistEnvSection;
    return std::tuple{
        field("backend", &S::backend, "nccl or gloo; without a GPU training runs on gloo"),
        field("timeout_minutes", &S::timeout_minutes, "how long a collective may wait for a rank")
            .above(0)
            .at_most(1e8)};
  }
};

/// `float32_matmul_precision`: how products of float32 matrices are computed.
enum class MatmulPrecision {
  kIeee,     ///< by float32 multiply-adds alone
  kHighest,  ///< with an error no greater than theirs: on a CPU with AMX by parts of bfloat16
  kHigh      ///< on a GPU by TF32, of 11 bits; elsewhere as kHighest
};

/// What a step does whose gradient norm is far above the usual ones.
enum class OnSpike {
  kContinue,  ///< its clipped update is made
  kSkip,      ///< nothing is updated
  kRollback   ///< the run goes back to its newest checkpoint, and on with the data after the spike
};

/// `clip_grad_norm`; an absent section clips at 1.
struct ClipSection {
  std::optional<double> max_norm = 1.0;
  double norm_type = 2.0;
  std::optional<std::string> backend;
  OnSpike on_spike = OnSpike::kContinue;
  int max_rollbacks = 3;
  double spike_multiple = 10.0;

  static constexpr auto fields() {
    using S = ClipSection;
    return std::tuple{field("max_norm", &S::max_norm,
                            "largest norm of all gradients; null: 1; .inf clips nothing")
                          .above(0)
                          .or_infinite(),
                      field("norm_type", &S::norm_type, "must be 2").or_infinite(),
                      field("backend", &S::backend, "triton or te")
                          .without_effect("the norm is one float64 pass here"),
                      field("on_spike", &S::on_spike,
                            "what a step does whose norm is far above the usual ones, or (skip and "
                            "rollback) whose loss or norm is not finite: continue, skip its "
                            "update, or rollback to the newest checkpoint, leaving out the data "
                            "since then"),
                      field("spike_multiple", &S::spike_multiple,
                            "on_spike: skip and rollback act on norms above so many times the "
                            "median of the last 64 steps")
                          .above(1),
                      field("max_rollbacks", &S::max_rollbacks,
                            "on_spike: rollback ends the run at the spike after so many rollbacks")
                          .at_least(1)};
  }
};

/// `packed_sequence`; off while its size is 0.
struct PackedSequenceSection {
  int64_t packed_sequence_size = 0;
  std::string packing_strategy = "thd";
  std::optional<int64_t> max_packs;
  bool prepacked = false;
  std::optional<int64_t> num_proc;
  bool drop_long_samples = true;
  int64_t pad_to_multiple_of = 1;
  std::optional<bool> split_across_pack;

  static constexpr auto fields() {
    using S = PackedSequenceSection;
    return std::tuple{
        field("packed_sequence_size", &S::packed_sequence_size, "tokens of a pack; 0: no packing")
            .at_least(0)
            .at_most(datasets::kMostTokens),
        field("packing_strategy", &S::packing_strategy, "thd or neat"),
        field("max_packs", &S::max_packs, "packs at most").above(0),
        field("prepacked", &S::prepacked, "the data are packs already; must be false"),
        field("num_proc", &S::num_proc,
              "threads that tokenize; absent: as many as the rank computes with")
            .above(0),
        field("drop_long_samples", &S::drop_long_samples, "leave out what fits no pack"),
        field("pad_to_multiple_of", &S::pad_to_multiple_of, "pad samples to a multiple")
            .above(0)
            .at_most(datasets::kMostTokens),
        field("split_across_pack", &S::split_across_pack, "legacy")
            .without_effect("samples are never split over packs")};
  }
};

/// `checkpoint`; an absent section saves with these defaults.
struct CheckpointSection {
  bool enabled = true;
  std::string checkpoint_dir = "checkpoints/";
  std::string model_save_format = "safetensors";
  std::string save_consolidated = "final";
  std::optional<std::string> restore_from;
  std::optional<int64_t> max_recent_checkpoints;
  std::string best_metric_key = "default";
  bool is_async = false;
  bool wait_for_staging = false;
  bool cpu_offload = false;
  bool allow_changed_data = false;
  bool allow_legacy_pickle_restore = false;
  std::optional<bool> dequantize_base_checkpoint;
  std::optional<std::string> original_model_root_dir;
  std::optional<std::vector<std::string>> skip_task_head_prefixes_for_base_model;
  bool single_rank_consolidation = false;
  std::optional<std::string> staging_dir;
  bool v4_compatible = false;
  bool diffusers_compatible = false;
  bool legacy_paramwrapper_layout = false;
  double consolidation_timeout_minutes = 30;
  std::optional<std::string> model_cache_dir;
  std::optional<std::string> model_repo_id;
  std::optional<bool> is_peft;

  static constexpr auto fields() {
    using S = CheckpointSection;
    return std::tuple{
        field("enabled", &S::enabled, "save checkpoints"),
        field("checkpoint_dir", &S::checkpoint_dir, "folder of checkpoints and logs"),
        field("model_save_format", &S::model_save_format,
              "safetensors; torch_save is read as safetensors"),
        field("save_consolidated", &S::save_consolidated,
              "write a Hugging Face folder: false, final (last checkpoint) or every"),
        field("restore_from", &S::restore_from,
              "checkpoint to continue: LATEST, LOWEST_VAL, a name or a path; absent: newest"),
        field("max_recent_checkpoints", &S::max_recent_checkpoints,
              "checkpoints to keep; absent: all")
            .above(0),
        field("best_metric_key", &S::best_metric_key,
              "validation set that LOWEST_VAL follows where there are several; a single one is "
              "followed by any name"),
        field("is_async", &S::is_async,
              "save while training goes on, from a copy that takes the memory of what is saved"),
        field("wait_for_staging", &S::wait_for_staging, "wait until the copy is made")
            .without_effect("training always waits until the copy is made"),
        field("cpu_offload", &S::cpu_offload, "copy to CPU memory before writing")
            .without_effect("writing streams from the parameters here"),
        field("allow_changed_data", &S::allow_changed_data,
              "a run may continue with data files that have changed since, or with other rows or "
              "another order of them; with more or fewer samples, another order, packs or an order "
              "by length the epoch begins anew"),
        field("allow_legacy_pickle_restore", &S::allow_legacy_pickle_restore, "load pickles")
            .without_effect("pickled checkpoints can run code and are never loaded"),
        field("dequantize_base_checkpoint", &S::dequantize_base_checkpoint,
              "false: refuse base weights that are quantized; else they are dequantized"),
        field("original_model_root_dir", &S::original_model_root_dir, "folder of the base model")
            .without_effect("the base model's folder is known"),
        field("skip_task_head_prefixes_for_base_model", &S::skip_task_head_prefixes_for_base_model,
              "tensors whose names begin so are drawn anew instead of read from the base weights"),
        field("single_rank_consolidation", &S::single_rank_consolidation, "export on one rank")
            .without_effect("the export streams and needs no such choice"),
        field("staging_dir", &S::staging_dir, "scratch folder of the export")
            .without_effect("the export is written in place and renamed"),
        field("v4_compatible", &S::v4_compatible, "keep config.json in transformers 4's form")
            .without_effect(
                "an exported config.json keeps the form that it came in, but for the key dtype"),
        field("diffusers_compatible", &S::diffusers_compatible, "diffusers file names"),
        field("legacy_paramwrapper_layout", &S::legacy_paramwrapper_layout,
              "PEFT 0.18 layout of expert adapters")
            .without_effect(
                "both layouts are read, and adapters are written in the one of PEFT 0.19"),
        field(
            "consolidation_timeout_minutes", &S::consolidation_timeout_minutes,
            "how long ranks wait for one that makes no progress in saving, exporting, verifying or "
            "loading files; while it does, they wait as long as it takes")
            .above(0)
            .at_most(1e8),
        field("model_cache_dir", &S::model_cache_dir, "cache that the base model is in")
            .without_effect("the model section says it (model.cache_dir)"),
        field("model_repo_id", &S::model_repo_id, "name of the base model")
            .without_effect("the model section says it (pretrained_model_name_or_path)"),
        field("is_peft", &S::is_peft, "save adapters only")
            .without_effect("the peft section says it by being there")};
  }
};

/// `mfu`.
struct MfuSection {
  std::optional<std::string> device;
  std::optional<double> peak_tflops;

  static constexpr auto fields() {
    using S = MfuSection;
    return std::tuple{field("device", &S::device, "device whose peak is meant"),
                      field("peak_tflops", &S::peak_tflops, "peak TFLOP/s of one device").above(0)};
  }
};

/// `moe_metrics`.
struct MoeMetricsSection {
  bool enabled = false;
  std::string mode = "brief";
  std::optional<int64_t> detailed_every_steps;
  int64_t top_k_experts = 0;

  static constexpr auto fields() {
    using S = MoeMetricsSection;
    return std::tuple{
        field("enabled", &S::enabled, "add the experts' load to every training record"),
        field("mode", &S::mode, "brief, or detailed: also of every layer"),
        field("detailed_every_steps", &S::detailed_every_steps,
              "steps between detailed records; absent: all of them are")
            .at_least(1),
        field("top_k_experts", &S::top_k_experts,
              "tell so many of each layer's most and least used experts")
            .at_least(0)};
  }
};

/// `tokenizer` of a dataset.
struct TokenizerSection {
  std::optional<std::string> pretrained_model_name_or_path;
  std::optional<std::string> revision;
  std::optional<std::string> cache_dir;
  std::optional<bool> trust_remote_code;
  std::optional<bool> use_fast;
  std::optional<std::string> tokenizer_backend;
  std::optional<bool> force_default;
  std::optional<bool> force_hf;
  std::optional<std::string> padding_side;
  std::optional<std::string> truncation_side;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;

  static constexpr auto fields() {
    using S = TokenizerSection;
    constexpr const char* kOneReader = "tokenizer.json is read as it is";
    return std::tuple{
        field("pretrained_model_name_or_path", &S::pretrained_model_name_or_path,
              "folder with tokenizer.json, or the name of a model on the hub"),
        field("revision", &S::revision, "commit, branch or tag on the hub"),
        field("cache_dir", &S::cache_dir, "Hugging Face cache"),
        field("trust_remote_code", &S::trust_remote_code, "run code of the hub")
            .without_effect("no code is ever loaded"),
        field("use_fast", &S::use_fast, "the fast tokenizer").without_effect(kOneReader),
        field("tokenizer_backend", &S::tokenizer_backend, "which class reads it")
            .without_effect(kOneReader),
        field("force_default", &S::force_default, "which class reads it")
            .without_effect(kOneReader),
        field("force_hf", &S::force_hf, "which class reads it").without_effect(kOneReader),
        field("padding_side", &S::padding_side, "must be right"),
        field("truncation_side", &S::truncation_side,
              "right or left: what texts lose that truncation cuts; absent: as the tokenizer's "
              "configuration says"),
        field("add_bos_token", &S::add_bos_token,
              "true: texts begin with BOS, if the tokenizer does not put it there"),
        field("add_eos_token", &S::add_eos_token,
              "true: texts end with EOS, so that a model learns where to stop")};
  }
};

/// Keys of `model` that are read here; others must be names of the model configuration.
struct ModelSection {
  std::optional<std::string> pretrained_model_name_or_path;
  std::optional<std::string> torch_dtype;
  std::optional<std::string> dtype;
  std::optional<std::string> attn_implementation;
  std::optional<bool> trust_remote_code;
  bool force_hf = false;
  std::optional<bool> load_base_model;
  bool use_liger_kernel = true;
  bool use_sdpa_patching = true;
  std::optional<std::vector<std::string>> sdpa_method;
  std::optional<bool> output_hidden_states;
  std::optional<std::string> cache_dir;
  std::optional<std::string> revision;
  std::optional<int64_t> num_labels;

  static constexpr auto fields() {
    using S = ModelSection;
    return std::tuple{
        field("pretrained_model_name_or_path", &S::pretrained_model_name_or_path,
              "Hugging Face folder, or the name of a model on the hub"),
        field("torch_dtype", &S::torch_dtype,
              "storage dtype; auto: the checkpoint's, bfloat16 for from_config"),
        field("dtype", &S::dtype, "the same, wins over torch_dtype"),
        field("attn_implementation", &S::attn_implementation, "attention kernel")
            .without_effect("the fastest exact kernel is chosen here"),
        field("trust_remote_code", &S::trust_remote_code, "run code of the hub")
            .without_effect("no code is ever loaded"),
        field("force_hf", &S::force_hf, "transformers' own class")
            .without_effect("there is one implementation here"),
        field("load_base_model", &S::load_base_model,
              "read the base weights; default: yes, but from_config draws them"),
        field("use_liger_kernel", &S::use_liger_kernel, "Liger kernels")
            .without_effect("kernels are fused here"),
        field("use_sdpa_patching", &S::use_sdpa_patching, "patch attention")
            .without_effect("nothing is patched here"),
        field("sdpa_method", &S::sdpa_method, "SDPA back ends")
            .without_effect("the fastest exact kernel is chosen here"),
        field("output_hidden_states", &S::output_hidden_states, "return hidden states")
            .without_effect("the head and the loss are one operation here"),
        field("cache_dir", &S::cache_dir, "Hugging Face cache"),
        field("revision", &S::revision, "commit, branch or tag on the hub"),
        field("num_labels", &S::num_labels,
              "classes of a model that classifies sequences; absent: those of id2label, or of its "
              "config.json")
            .at_least(1)};
  }
};

/// `embedding_row_repair`: rows of the base's embedding that were never trained.
struct EmbeddingRowRepairSection {
  bool enabled = true;
  double min_norm = 1e-6;
  int64_t max_rows = 256;

  static constexpr auto fields() {
    using S = EmbeddingRowRepairSection;
    return std::tuple{
        field("enabled", &S::enabled, "repair them when the base is read"),
        field("min_norm", &S::min_norm, "rows that are not longer are repaired").at_least(0),
        field("max_rows", &S::max_rows, "more wrong rows are an error").at_least(1)};
  }
};

/// `neftune`: noise on embedded tokens in training.
struct NeftuneSection {
  double noise_alpha = 5;

  static constexpr auto fields() {
    return std::tuple{field("noise_alpha", &NeftuneSection::noise_alpha,
                            "noise is uniform up to noise_alpha / sqrt(tokens of a sequence × "
                            "hidden size); 0: none")
                          .at_least(0)};
  }
};

}  // namespace automodel::recipes

template <>
struct automodel::EnumNames<automodel::recipes::MatmulPrecision> {
  using M = recipes::MatmulPrecision;
  static constexpr std::array<std::pair<std::string_view, M>, 3> values = {
      {{"ieee", M::kIeee}, {"highest", M::kHighest}, {"high", M::kHigh}}};
};

template <>
struct automodel::EnumNames<automodel::recipes::OnSpike> {
  using S = recipes::OnSpike;
  static constexpr std::array<std::pair<std::string_view, S>, 3> values = {
      {{"continue", S::kContinue}, {"skip", S::kSkip}, {"rollback", S::kRollback}}};
};
