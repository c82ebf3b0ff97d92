#include "config/other_names.h"

#include <algorithm>
#include <vector>

#include "core/text.h"

namespace automodel::config {

namespace {

constexpr OtherName kNames[] = {
    {"learning_rate", "lr", ""},
    {"beta1", "betas", "both, as [0.9, 0.999]"},
    {"adam_beta1", "betas", "both, as [0.9, 0.999]"},
    {"adam_beta2", "betas", "both, as [0.9, 0.999]"},
    {"adam_epsilon", "eps", ""},
    {"epsilon", "eps", ""},
    {"optim", "optimizer", ""},
    {"num_train_epochs", "num_epochs", ""},
    {"epochs", "num_epochs", ""},
    {"steps", "max_steps", ""},
    {"per_device_train_batch_size", "local_batch_size", ""},
    {"per_device_eval_batch_size", "validation_dataloader", "its batch_size"},
    {"eval_batch_size", "validation_dataloader", "its batch_size"},
    {"micro_batch_size", "local_batch_size", ""},
    {"train_batch_size", "global_batch_size", ""},
    {"gradient_accumulation_steps", "global_batch_size",
     "it is local_batch_size × ranks of data parallelism × steps of accumulation"},
    {"save_steps", "ckpt_every_steps", ""},
    {"save_total_limit", "max_recent_checkpoints", ""},
    {"load_best_model_at_end", "best_metric_key", ""},
    {"metric_for_best_model", "best_metric_key", ""},
    {"early_stopping_patience", "patience", ""},
    {"early_stopping_threshold", "threshold", ""},
    {"min_delta", "threshold", ""},
    {"eval_steps", "val_every_steps", ""},
    {"eval_strategy", "val_every_steps", ""},
    {"evals_per_epoch", "val_every_steps", "it is a number of steps"},
    {"saves_per_epoch", "ckpt_every_steps", "it is a number of steps"},
    {"save_strategy", "ckpt_every_steps", "epochs end with a checkpoint anyway"},
    {"cosine_min_lr_ratio", "min_lr", "it is a learning rate"},
    {"roles_to_train", "chat_template", "{% generation %} marks in it what is trained"},
    {"train_on_eos", "chat_template", "{% generation %} marks in it what is trained"},
    {"evaluation_strategy", "val_every_steps", ""},
    {"logging_steps", "log_remote_every_steps", ""},
    {"warmup_steps", "lr_warmup_steps", ""},
    {"warmup_ratio", "lr_warmup_steps", "it is a number of steps"},
    {"warmup", "lr_warmup_steps", ""},
    {"num_warmup_steps", "lr_warmup_steps", ""},
    {"lr_scheduler_type", "lr_decay_style", ""},
    {"scheduler", "lr_scheduler", ""},
    {"max_grad_norm", "max_norm", ""},
    {"output_dir", "checkpoint_dir", ""},
    {"resume_from_checkpoint", "restore_from", ""},
    {"bf16", "autocast_dtype", "torch_dtype of the model says what weights are held in"},
    {"fp16", "autocast_dtype", "torch_dtype of the model says what weights are held in"},
    {"mixed_precision", "autocast_dtype", "torch_dtype of the model says what weights are held in"},
    {"dtype", "torch_dtype", ""},
    {"use_flash_attention_2", "attn_implementation", ""},
    {"flash_attention", "attn_implementation", ""},
    {"report_to", "wandb", "tensorboard and mlflow are sections too"},
    {"wandb_project", "wandb", "its project"},
    {"wandb_entity", "wandb", "its entity"},
    {"wandb_run_group", "wandb", "its group"},
    {"data_path", "path_or_dataset_id", ""},
    {"data_files", "path_or_dataset_id", ""},
    {"val_set_size", "split", "train[:95%] and train[95%:] divide a set"},
    {"cutoff_len", "seq_length", ""},
    {"sequence_len", "seq_length", ""},
    {"max_seq_length", "seq_length", ""},
    {"model_name_or_path", "pretrained_model_name_or_path", ""},
    {"base_model", "pretrained_model_name_or_path", ""},
    {"model_name", "pretrained_model_name_or_path", ""},
    {"gradient_checkpointing", "activation_checkpointing", ""},
    {"tensor_parallel_degree", "tp_size", ""},
    {"tensor_parallel_size", "tp_size", ""},
    {"pipeline_parallel_degree", "pp_size", ""},
    {"context_parallel_degree", "cp_size", ""},
    {"context_parallel_size", "cp_size", ""},
    {"pipeline_parallel_size", "pp_size", ""},
    {"expert_parallel_size", "ep_size", ""},
    {"train_on_inputs", "answer_only_loss_mask", ""},
    {"assistant_only_loss", "answer_only_loss_mask", ""},
    {"completion_only_loss", "answer_only_loss_mask", ""},
    {"dataset_text_field", "text_column", ""},
    {"tf32", "float32_matmul_precision", "high turns it on"},
    {"expert_parallel_degree", "ep_size", ""},
    {"lora", "peft", ""},
    {"lora_config", "peft", ""},
    {"resume", "restore_from", ""},
    {"cpu_offload", "offload_policy", ""},
    {"batch_size", "local_batch_size", ""},
    {"r", "dim", ""},
    {"rank", "dim", ""},
    {"lora_r", "dim", ""},
    {"lora_alpha", "alpha", ""},
    {"lora_dropout", "dropout", ""},
    {"lora_target_modules", "target_modules", ""},
    {"lora_target_linear", "exclude_modules", "[\"*lm_head\"] leaves only the head out"},
    {"packing", "packed_sequence", ""},
    {"sample_packing", "packed_sequence", ""},
    {"lora_modules_to_save", "modules_to_save", ""},
    {"additional_target", "modules_to_save", ""},
    {"unfrozen_parameters", "trainable_parameters", ""},
    {"freeze_parameters", "frozen_parameters", "regular expressions"},
    {"freeze_trainable_modules", "trainable_parameters", "regular expressions"},
    {"freeze_trainable_layers", "trainable_parameters", "regular expressions"},
    {"neftune_noise_alpha", "noise_alpha", ""},
    {"dataloader_num_workers", "num_workers", ""},
    {"data", "dataset", ""},
    {"datasets", "dataset", ""},
    {"train_dataset", "dataset", ""},
    {"eval_dataset", "validation_dataset", ""},
    {"fsdp", "distributed", "strategy: fsdp2"},
    {"deepspeed", "distributed", "strategy: fsdp2 shards as ZeRO-3 does"},
    {"gradient_accumulation", "global_batch_size",
     "it is local_batch_size × ranks of data parallelism × steps of accumulation"},
    {"warmup_steps_ratio", "lr_warmup_steps", "it is a number of steps"},
    {"use_rslora", "alpha", "alpha × sqrt(dim) scales as rank-stabilized LoRA does"},
    {"decay_type", "lr_decay_style", ""},
    {"decay_ratio", "lr_decay_steps", "it is a number of steps"},
    {"min_lr_factor", "min_lr", "it is a learning rate"},
    {"training", "step_scheduler", ""},
    {"parallelism", "distributed", ""},
    {"parallelism_config", "distributed", ""},
    {"fsdp_config", "distributed", "strategy: fsdp2"},
    {"data_parallel_shard_degree", "dp_size",
     "it counts all data-parallel ranks, replicas included"},
    {"data_parallel_replicate_degree", "dp_replicate_size", ""},
    {"activation_checkpoint", "activation_checkpointing", ""},
    {"recompute", "activation_checkpointing", ""},
    {"interval", "ckpt_every_steps", ""},
    {"save_freq", "ckpt_every_steps", ""},
    {"log_freq", "log_remote_every_steps", ""},
    {"folder", "checkpoint_dir", ""},
    {"dump_folder", "checkpoint_dir", ""},
    {"keep_latest_k", "max_recent_checkpoints", ""},
    {"torch_compile", "compile", ""},
    {"adapter", "peft", "quantization.load_in_4bit: true makes it QLoRA"},
    {"target_linear", "exclude_modules", "[\"*lm_head\"] leaves only the head out"},
    {"tokenizer_name_or_path", "tokenizer", ""},
};

/// Names of optimizers in Hugging Face's Trainer.
constexpr std::pair<std::string_view, std::string_view> kOptimizers[] = {
    {"adamw_torch", "torch.optim.AdamW"},
    {"adamw_torch_fused", "torch.optim.AdamW"},
    {"adamw_hf", "torch.optim.AdamW"},
    {"adamw_8bit", "bitsandbytes.optim.AdamW8bit"},
    {"adamw_bnb_8bit", "bitsandbytes.optim.AdamW8bit"},
    {"paged_adamw_8bit", "bitsandbytes.optim.PagedAdamW8bit"},
};

constexpr std::pair<std::string_view, std::string_view> kTargets[] = {
    {"model", "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained"},
    {"optimizer", "torch.optim.AdamW"},
    {"dataset", "nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset"},
    {"loss_fn", "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
    {"peft", "nemo_automodel.components._peft.lora.PeftConfig"},
};

}  // namespace

std::string_view example_target(std::string_view section) {
  const std::string_view kind = section.starts_with("validation_dataset") ? "dataset" : section;
  const auto* const found =
      std::ranges::find(kTargets, kind, [](const auto& target) { return target.first; });
  return found == std::end(kTargets) ? std::string_view() : found->second;
}

std::string_view target_here(std::string_view name_elsewhere) {
  const auto* const found = std::ranges::find(
      kOptimizers, name_elsewhere, [](const auto& optimizer) { return optimizer.first; });
  return found == std::end(kOptimizers) ? std::string_view() : found->second;
}

std::span<const OtherName> names_elsewhere() {
  return kNames;
}

namespace {

const OtherName* find_name(std::string_view name_elsewhere) {
  const auto* const found = std::ranges::find(kNames, name_elsewhere, &OtherName::elsewhere);
  return found == std::end(kNames) ? nullptr : found;
}

}  // namespace

std::string_view name_here(std::string_view name_elsewhere) {
  const OtherName* const found = find_name(name_elsewhere);
  return found == nullptr ? std::string_view() : found->here;
}

std::string hint_of_meaning(std::string_view name_elsewhere, std::span<const std::string> keys) {
  if (keys.empty()) return "";
  const OtherName* const found = find_name(name_elsewhere);
  const std::string hint = cat("; did you mean '", join(keys, "' or '"), "'?");
  return found == nullptr || found->how.empty() ? hint : cat(hint, " (", found->how, ")");
}

namespace {

std::string hint_by_name(std::string_view key, std::span<const std::string> valid) {
  const std::string_view meant = name_here(key);
  if (std::ranges::find(valid, meant) == valid.end()) return "";
  return hint_of_meaning(key, std::vector<std::string>{std::string(meant)});
}

}  // namespace

std::string hint_for_key(std::string_view key, std::span<const std::string> valid) {
  const std::string hint = hint_by_name(key, valid);
  return hint.empty() ? did_you_mean(key, valid) : hint;
}

std::string hint_for_key(const Node& key, std::span<const std::string> valid,
                         const Diagnostics& diagnostics) {
  std::string hint = hint_by_name(key.key(), valid);
  if (hint.empty()) hint = diagnostics.hint_elsewhere(key);
  return hint.empty() ? did_you_mean(key.key(), valid) : hint;
}

}  // namespace automodel::config
