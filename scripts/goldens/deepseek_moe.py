"""DeepSeek MoE (DeepseekForCausalLM), of which transformers has no class: Llama with experts.

The gate's scores are a softmax over all experts; the weights of the chosen ones are rescaled only with norm_topk_prob.
Importing this module makes the class known to transformers.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP


class DeepseekConfig(LlamaConfig):
    model_type = "deepseek"
    moe_intermediate_size: int = 1407
    n_shared_experts: int | None = None
    n_routed_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_layer_freq: int = 1
    first_k_dense_replace: int = 0
    norm_topk_prob: bool = False
    scoring_func: str = "softmax"
    aux_loss_alpha: float = 0.001


def mlp_of(config, intermediate_size):
    mlp = LlamaMLP(config)
    for part in (mlp.gate_proj, mlp.up_proj):
        part.weight = torch.nn.Parameter(torch.empty(intermediate_size, config.hidden_size))
    mlp.down_proj.weight = torch.nn.Parameter(torch.empty(config.hidden_size, intermediate_size))
    return mlp


class DeepseekMoE(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_chosen = config.num_experts_per_tok
        self.norms = config.norm_topk_prob
        size = config.moe_intermediate_size
        self.experts = torch.nn.ModuleList(mlp_of(config, size) for _ in range(config.n_routed_experts))
        self.gate = torch.nn.Linear(config.hidden_size, config.n_routed_experts, bias=False)
        self.shared_experts = mlp_of(config, size * config.n_shared_experts) if config.n_shared_experts else None

    def forward(self, x):
        scores = self.gate(x).softmax(dim=-1)
        weights, chosen = scores.topk(self.num_chosen, dim=-1)
        if self.norms:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            weight = torch.where(chosen == index, weights, 0).sum(dim=-1, keepdim=True)
            out = out + (expert(x) * weight).to(x.dtype)
        return out if self.shared_experts is None else out + self.shared_experts(x)


class DeepseekForCausalLM(LlamaForCausalLM):
    config_class = DeepseekConfig

    def __init__(self, config):
        super().__init__(config)
        for index, layer in enumerate(self.model.layers):
            if config.n_routed_experts and index >= config.first_k_dense_replace:
                layer.mlp = DeepseekMoE(config)
        self.post_init()


AutoConfig.register("deepseek", DeepseekConfig)
AutoModelForCausalLM.register(DeepseekConfig, DeepseekForCausalLM)
