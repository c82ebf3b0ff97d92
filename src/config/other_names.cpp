#include "config/other_names.h"

#include <algorithm>

#include "core/text.h"

namespace automodel::config {

namespace {

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"learning_rate", "lr"},
    {"beta1", "betas"},
    {"adam_beta1", "betas"},
    {"adam_beta2", "betas"},
    {"adam_epsilon", "eps"},
    {"epsilon", "eps"},
    {"optim", "optimizer"},
    {"num_train_epochs", "num_epochs"},
    {"epochs", "num_epochs"},
    {"steps", "max_steps"},
    {"per_device_train_batch_size", "local_batch_size"},
    {"per_device_eval_batch_size", "validation_dataloader"},
    {"eval_batch_size", "validation_dataloader"},
    {"micro_batch_size", "local_batch_size"},
    {"train_batch_size", "global_batch_size"},
    {"gradient_accumulation_steps", "global_batch_size"},
    {"save_steps", "ckpt_every_steps"},
    {"save_total_limit", "max_recent_checkpoints"},
    {"load_best_model_at_end", "best_metric_key"},
    {"metric_for_best_model", "best_metric_key"},
    {"eval_steps", "val_every_steps"},
    {"eval_strategy", "val_every_steps"},
    {"evaluation_strategy", "val_every_steps"},
    {"logging_steps", "log_remote_every_steps"},
    {"warmup_steps", "lr_warmup_steps"},
    {"warmup_ratio", "lr_warmup_steps"},
    {"warmup", "lr_warmup_steps"},
    {"num_warmup_steps", "lr_warmup_steps"},
    {"lr_scheduler_type", "lr_decay_style"},
    {"scheduler", "lr_scheduler"},
    {"max_grad_norm", "max_norm"},
    {"output_dir", "checkpoint_dir"},
    {"resume_from_checkpoint", "restore_from"},
    {"bf16", "autocast_dtype"},
    {"fp16", "autocast_dtype"},
    {"mixed_precision", "autocast_dtype"},
    {"dtype", "torch_dtype"},
    {"use_flash_attention_2", "attn_implementation"},
    {"flash_attention", "attn_implementation"},
    {"report_to", "mlflow"},
    {"data_path", "path_or_dataset_id"},
    {"data_files", "path_or_dataset_id"},
    {"val_set_size", "split"},
    {"cutoff_len", "seq_length"},
    {"sequence_len", "seq_length"},
    {"max_seq_length", "seq_length"},
    {"model_name_or_path", "pretrained_model_name_or_path"},
    {"base_model", "pretrained_model_name_or_path"},
    {"model_name", "pretrained_model_name_or_path"},
    {"gradient_checkpointing", "activation_checkpointing"},
    {"tensor_parallel_degree", "tp_size"},
    {"tensor_parallel_size", "tp_size"},
    {"pipeline_parallel_degree", "pp_size"},
    {"context_parallel_degree", "cp_size"},
    {"context_parallel_size", "cp_size"},
    {"pipeline_parallel_size", "pp_size"},
    {"expert_parallel_size", "ep_size"},
    {"train_on_inputs", "answer_only_loss_mask"},
    {"assistant_only_loss", "answer_only_loss_mask"},
    {"expert_parallel_degree", "ep_size"},
    {"lora", "peft"},
    {"lora_config", "peft"},
    {"r", "dim"},
    {"rank", "dim"},
    {"lora_r", "dim"},
    {"lora_alpha", "alpha"},
    {"lora_dropout", "dropout"},
    {"lora_target_modules", "target_modules"},
    {"lora_target_linear", "exclude_modules"},
    {"packing", "packed_sequence"},
    {"sample_packing", "packed_sequence"},
    {"neftune_noise_alpha", "noise_alpha"},
    {"dataloader_num_workers", "num_workers"},
    {"data", "dataset"},
    {"datasets", "dataset"},
    {"train_dataset", "dataset"},
    {"eval_dataset", "validation_dataset"},
    {"fsdp", "distributed"},
    {"deepspeed", "distributed"},
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

std::span<const std::pair<std::string_view, std::string_view>> names_elsewhere() {
  return kNames;
}

std::string_view name_here(std::string_view name_elsewhere) {
  const auto* const found =
      std::ranges::find(kNames, name_elsewhere, [](const auto& name) { return name.first; });
  return found == std::end(kNames) ? std::string_view() : found->second;
}

std::string hint_for_key(std::string_view key, std::span<const std::string> valid) {
  const std::string_view meant = name_here(key);
  if (std::ranges::find(valid, meant) != valid.end()) return cat("; did you mean '", meant, "'?");
  return did_you_mean(key, valid);
}

}  // namespace automodel::config
