#!/usr/bin/env python3
"""Makes tests/golden/: tiny Hugging Face models and what transformers computes with them.

Each folder holds a Hugging Face model (config.json, model.safetensors) and reference.safetensors:

  input_ids, labels (already shifted, -100 where nothing is learned)  int64 [B, S]
  attention_mask (only where a sequence is padded)                     int64 [B, S]
  logits                                                               float32 [B, S, V]
  loss            sum of cross-entropies / number of labels            float32 scalar
  grad.<name>     gradient of every parameter                          float32
  losses          loss before each of three AdamW updates              float32 [3]

float32, eager attention, evaluation mode (no dropout), torch.optim.AdamW with lr 1e-3, betas
(0.9, 0.999), eps 1e-8, weight decay 0.01 on everything, no clipping.

rope_frequencies.json holds what transformers' ROPE_INIT_FUNCTIONS return.

bfloat16.json holds how far transformers in bfloat16 (the worse of eager attention and sdpa) is from itself in
float32, of the folders' weights rounded to bfloat16 in both: relative L2 differences of the logits, of the gradient
of all parameters together and the worst of a single one's; root of the mean square difference of a token's loss.

Run: python scripts/goldens/make_goldens.py [name ...]; needs torch, transformers, safetensors.
     python scripts/goldens/make_goldens.py --bfloat16 makes bfloat16.json from the folders that are there; with names
     behind it, only their entries, which then say with what.
"""

import json
import os
import shutil
import sys
import tempfile

import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import deepseek_moe  # noqa: F401  makes its class known
from kimi_names import released_names
from ling_as_glm4 import glm_config, ling_tensors, make_ling_folder, seeing_all, write_glm_folder
from renamed_families import make_own_folder, own_tensors, peer_config, write_peer_folder

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "golden")

SIZES = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
GEMMA = dict(SIZES, head_dim=16, pad_token_id=0)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
PHI3 = dict(SIZES, pad_token_id=0, head_dim=None)


def longrope(partial):
    half = int(8 * partial) // 2
    return dict(
        rope_type="longrope",
        rope_theta=10000.0,
        short_factor=[1.0 + 0.1 * i for i in range(half)],
        long_factor=[2.0 + 0.7 * i for i in range(half)],
        partial_rotary_factor=partial,
    )


# name -> (model_type, options of the config class, sequence length)
MODELS = {
    "llama_default": ("llama", dict(SIZES), 24),
    "llama_llama3_tied": ("llama", dict(SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3), 24),
    "llama_linear_biases": (
        "llama",
        dict(
            SIZES,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
        ),
        24,
    ),
    "llama_yarn_head_dim": (
        "llama",
        dict(
            SIZES,
            head_dim=16,
            num_key_value_heads=1,
            rope_parameters=dict(
                rope_type="yarn",
                factor=4.0,
                rope_theta=10000.0,
                original_max_position_embeddings=16,
                beta_fast=16.0,
                beta_slow=1.0,
            ),
        ),
        24,
    ),
    "llama_dynamic_padding": (
        "llama",
        dict(
            SIZES,
            pad_token_id=3,
            rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=10000.0),
        ),
        24,
    ),
    "qwen2_tied": ("qwen2", dict(SIZES, tie_word_embeddings=True), 24),
    "qwen2_window": (
        "qwen2",
        dict(SIZES, num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=1),
        24,
    ),
    "qwen3_tied": ("qwen3", dict(SIZES, head_dim=16, tie_word_embeddings=True), 24),
    "qwen3_bias_window_yarn": (
        "qwen3",
        dict(
            SIZES,
            head_dim=16,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters=dict(
                rope_type="yarn", factor=2.0, rope_theta=1000000.0, original_max_position_embeddings=32
            ),
        ),
        24,
    ),
    "mistral_window": ("mistral", dict(SIZES, sliding_window=6, head_dim=12), 24),
    "mistral_full": ("mistral", dict(SIZES, sliding_window=None), 24),
    "phi3_default": ("phi3", dict(PHI3, sliding_window=7), 24),
    "phi3_longrope_short": (
        "phi3",
        dict(PHI3, original_max_position_embeddings=32, rope_parameters=longrope(1.0)),
        24,
    ),
    "phi3_longrope_long_partial": (
        "phi3",
        dict(
            PHI3,
            original_max_position_embeddings=16,
            tie_word_embeddings=True,
            rope_parameters=longrope(0.75),
        ),
        24,
    ),
    "gemma": ("gemma", dict(GEMMA, num_key_value_heads=1), 24),
    "gemma2": (
        "gemma2",
        dict(
            GEMMA,
            sliding_window=6,
            query_pre_attn_scalar=24,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=4.0,
        ),
        24,
    ),
    "gemma3_text": (
        "gemma3_text",
        dict(
            GEMMA,
            num_hidden_layers=3,
            sliding_window=6,
            query_pre_attn_scalar=16,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
        24,
    ),
    "gpt2": (
        "gpt2",
        dict(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2),
        24,
    ),
    "gpt2_inner_untied": (
        "gpt2",
        dict(
            vocab_size=128,
            n_positions=32,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_inner=48,
            activation_function="relu",
            scale_attn_by_inverse_layer_idx=True,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=2,
        ),
        24,
    ),
    "olmo2": ("olmo2", dict(SIZES, pad_token_id=1), 24),
    "olmo2_bias_tied": (
        "olmo2",
        dict(SIZES, pad_token_id=1, attention_bias=True, tie_word_embeddings=True),
        24,
    ),
    "granite": (
        "granite",
        dict(
            SIZES,
            tie_word_embeddings=True,
            embedding_multiplier=6.0,
            attention_multiplier=0.25,
            residual_multiplier=0.4,
            logits_scaling=3.0,
        ),
        24,
    ),
    "granite_biases": (
        "granite",
        dict(SIZES, attention_bias=True, mlp_bias=True, attention_multiplier=0.3),
        24,
    ),
    "smollm3": (
        "smollm3",
        dict(
            SIZES,
            num_hidden_layers=3,
            pad_token_id=3,
            no_rope_layers=[1, 0, 1],
            use_sliding_window=True,
            sliding_window=6,
        ),
        24,
    ),
}


MOE = dict(SIZES, num_hidden_layers=3, moe_intermediate_size=24, num_experts_per_tok=2)
MODELS.update(
    qwen3_moe=(
        "qwen3_moe",
        dict(MOE, head_dim=16, num_experts=6, norm_topk_prob=True, mlp_only_layers=[1]),
        24,
    ),
    qwen3_moe_padding=(
        "qwen3_moe",
        dict(MOE, num_experts=5, num_experts_per_tok=3, decoder_sparse_step=2, pad_token_id=3),
        24,
    ),
    mixtral=("mixtral", dict(SIZES, num_local_experts=5, num_experts_per_tok=2, sliding_window=6), 24),
    deepseek_v3=(
        "deepseek_v3",
        dict(
            MOE,
            num_key_value_heads=4,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            q_lora_rank=20,
            kv_lora_rank=12,
            qk_nope_head_dim=6,
            qk_rope_head_dim=8,
            v_head_dim=10,
            first_k_dense_replace=1,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=10000.0,
                factor=4.0,
                original_max_position_embeddings=16,
                beta_fast=16.0,
                beta_slow=1.0,
                mscale=0.7,
                mscale_all_dim=1.3,
            ),
        ),
        24,
    ),
    deepseek_v3_plain_queries=(
        "deepseek_v3",
        dict(
            MOE,
            num_key_value_heads=4,
            n_routed_experts=6,
            n_group=1,
            topk_group=1,
            q_lora_rank=None,
            kv_lora_rank=12,
            qk_nope_head_dim=8,
            qk_rope_head_dim=4,
            v_head_dim=8,
            first_k_dense_replace=0,
            rope_interleave=False,
            attention_bias=True,
        ),
        24,
    ),
    gpt_oss=(
        "gpt_oss",
        dict(
            SIZES,
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=2,
            sliding_window=6,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=150000.0,
                factor=4.0,
                original_max_position_embeddings=16,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
            ),
        ),
        24,
    ),
    glm4_moe=(
        "glm4_moe",
        dict(MOE, head_dim=16, n_routed_experts=6, use_qk_norm=True, routed_scaling_factor=1.5),
        24,
    ),
    glm4_moe_groups=(
        "glm4_moe",
        dict(
            MOE,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=3,
            n_shared_experts=2,
            attention_bias=True,
            first_k_dense_replace=2,
            norm_topk_prob=False,
        ),
        24,
    ),
)

MODELS.update(
    seed_oss=("seed_oss", dict(SIZES, head_dim=16, pad_token_id=3), 24),
    seed_oss_biases=("seed_oss", dict(SIZES, head_dim=8, attention_out_bias=True, mlp_bias=True, pad_token_id=3), 24),
    starcoder2=("starcoder2", dict(SIZES, sliding_window=6), 24),
    starcoder2_plain=("starcoder2", dict(SIZES, use_bias=False, tie_word_embeddings=False, norm_epsilon=1e-6), 24),
    minimax_m2=("minimax_m2", dict(SIZES, head_dim=16, num_local_experts=5, num_experts_per_tok=2, rotary_dim=8), 24),
    glm4_moe_lite=(
        "glm4_moe_lite",
        dict(
            MOE,
            num_key_value_heads=4,
            n_routed_experts=6,
            q_lora_rank=20,
            kv_lora_rank=12,
            qk_nope_head_dim=6,
            qk_rope_head_dim=8,
            v_head_dim=10,
            mlp_layer_types=["sparse", "dense", "sparse"],
        ),
        24,
    ),
)

GLM = dict(SIZES, head_dim=16, pad_token_id=3, eos_token_id=2)
MODELS.update(
    glm=("glm", dict(GLM), 24),
    glm4=("glm4", dict(GLM), 24),
    glm4_no_bias=("glm4", dict(GLM, attention_bias=False, rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=1.0)), 24),
    ministral3=(
        "ministral3",
        dict(
            SIZES,
            head_dim=16,
            pad_token_id=3,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1000000.0,
                factor=8.0,
                original_max_position_embeddings=8,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.3,
            ),
        ),
        24,
    ),
    ministral3_window=(
        "ministral3",
        dict(SIZES, head_dim=16, pad_token_id=None, sliding_window=6),
        24,
    ),
)

DELTA = dict(
    SIZES,
    head_dim=16,
    num_hidden_layers=3,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=12,
    linear_conv_kernel_dim=3,
    rms_norm_eps=1e-2,  # an early token's state has one key: by how much it is read changes its sign
    moe_intermediate_size=24,
    shared_expert_intermediate_size=20,
)
MODELS.update(
    qwen3_next=("qwen3_next", dict(DELTA, num_experts=6, num_experts_per_tok=2, mlp_only_layers=[1]), 24),
    qwen3_next_padding=(
        "qwen3_next",
        dict(
            DELTA,
            num_experts=5,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            attention_bias=True,
            linear_num_value_heads=2,
            linear_conv_kernel_dim=4,
            partial_rotary_factor=0.5,
            pad_token_id=3,
        ),
        24,
    ),
    qwen3_5=(
        "qwen3_5_text",
        dict({k: v for k, v in DELTA.items() if "expert" not in k and "moe" not in k}, max_position_embeddings=128),
        75,
    ),
    qwen3_5_moe=(
        "qwen3_5_moe_text",
        dict({k: v for k, v in DELTA.items() if k != "intermediate_size"}, num_experts=6, num_experts_per_tok=2),
        24,
    ),
)

TOWER = dict(
    depth=1,
    hidden_size=16,
    intermediate_size=24,
    num_heads=2,
    patch_size=4,
    out_hidden_size=32,
    num_position_embeddings=16,
)
MODELS.update(
    qwen3_5_tower=(
        "qwen3_5",
        dict(text_config=MODELS["qwen3_5"][1], vision_config=TOWER, tie_word_embeddings=True),
        24,
    ),
    qwen3_5_moe_tower=(
        "qwen3_5_moe",
        dict(text_config=dict(MODELS["qwen3_5_moe"][1], num_experts=3, num_experts_per_tok=3), vision_config=TOWER),
        24,
    ),
)

PIXTRAL = dict(
    model_type="pixtral",
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_dim=8,
    patch_size=4,
    image_size=16,
)
MODELS.update(
    mistral3_tower=(
        "mistral3",
        dict(
            text_config=dict(MODELS["mistral_full"][1], model_type="mistral", head_dim=8),
            vision_config=PIXTRAL,
            tie_word_embeddings=True,
        ),
        24,
    ),
    ministral3_tower=(
        "mistral3",
        dict(
            text_config=dict(MODELS["ministral3"][1], model_type="ministral3"),
            vision_config=PIXTRAL,
            tie_word_embeddings=False,
        ),
        24,
    ),
)

NEOX = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
LATENT = dict(
    MOE,
    num_key_value_heads=4,
    q_lora_rank=20,
    kv_lora_rank=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=8,
    v_head_dim=10,
)
MISTRAL4_ROPE = dict(
    rope_type="yarn",
    rope_theta=10000.0,
    factor=8.0,
    original_max_position_embeddings=8,
    beta_fast=32.0,
    beta_slow=1.0,
    mscale=1.0,
    mscale_all_dim=1.0,
    llama_4_scaling_beta=0.3,
)
MISTRAL4 = dict(LATENT, n_routed_experts=4, pad_token_id=3, rope_parameters=MISTRAL4_ROPE)
INDEXER = dict(LATENT, index_n_heads=5, index_head_dim=12, index_topk=9)
MODELS.update(
    mistral4=("mistral4", MISTRAL4, 24),
    mistral4_groups_padding=(
        "mistral4",
        dict(
            MISTRAL4,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=3,
            n_shared_experts=2,
            norm_topk_prob=False,
            routed_scaling_factor=1.5,
            first_k_dense_replace=1,
            rope_interleave=False,
            attention_bias=True,
            q_lora_rank=None,
        ),
        24,
    ),
    mistral4_tower=(
        "mistral3",
        dict(text_config=dict(MISTRAL4, model_type="mistral4"), vision_config=PIXTRAL, tie_word_embeddings=False),
        24,
    ),
    deepseek_v32=(
        "deepseek_v32",
        dict(
            INDEXER,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            first_k_dense_replace=1,
            rope_parameters=MODELS["deepseek_v3"][1]["rope_parameters"],
        ),
        24,
    ),
    deepseek_v32_padding=("deepseek_v32", dict(INDEXER, index_topk=16, n_routed_experts=6, n_group=1, topk_group=1, pad_token_id=3), 24),
    glm_moe_dsa=("glm_moe_dsa", dict(INDEXER, n_routed_experts=6, mlp_layer_types=["sparse", "dense", "sparse"]), 24),
    glm_moe_dsa_shared=(
        "glm_moe_dsa",
        dict(
            INDEXER,
            num_hidden_layers=4,
            n_routed_experts=6,
            attention_bias=True,
            indexer_types=["full", "shared", "full", "shared"],
            index_topk=5,
        ),
        24,
    ),
)

KIMI = dict(
    MOE,
    num_hidden_layers=3,
    num_key_value_heads=4,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    linear_num_heads=3,
    linear_head_dim=8,
    linear_conv_kernel_dim=3,
    kv_lora_rank=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=8,
    v_head_dim=10,
    num_local_experts=6,
    rms_norm_eps=1e-2,  # as of Qwen's delta nets
    pad_token_id=3,
)
MODELS.update(
    kimi_linear=("kimi_linear", dict(KIMI, max_position_embeddings=128), 75),
    kimi_linear_groups_padding=(
        "kimi_linear",
        dict(
            KIMI,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            linear_conv_kernel_dim=4,
            num_local_experts=8,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=3,
            n_shared_experts=2,
            norm_topk_prob=False,
            routed_scaling_factor=1.5,
            mlp_layer_types=["sparse", "sparse"],
            q_lora_rank=20,
            attention_bias=True,
        ),
        24,
    ),
)

HUNYUAN = dict(SIZES, head_dim=12, pad_token_id=3)
HUNYUAN_ALPHA = dict(rope_type="dynamic", type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0)
MODELS.update(
    hunyuan_v1_dense=("hunyuan_v1_dense", dict(HUNYUAN, rope_parameters=HUNYUAN_ALPHA), 24),
    hunyuan_v1_dense_biases=(
        "hunyuan_v1_dense",
        dict(HUNYUAN, attention_bias=True, tie_word_embeddings=True, head_dim=8, num_key_value_heads=None),
        24,
    ),
    hunyuan_v1_moe=("hunyuan_v1_moe", dict(HUNYUAN, num_experts=6, moe_topk=2, rope_parameters=HUNYUAN_ALPHA), 24),
    hunyuan_v1_moe_padding=(
        "hunyuan_v1_moe",
        dict(HUNYUAN, num_experts=5, moe_topk=3, attention_bias=True),
        24,
    ),
)

MAMBA = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=56,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
    mamba_num_heads=6,
    mamba_head_dim=8,
    ssm_state_size=12,
    n_groups=2,
    time_step_min=1e-9,  # transformers clamps steps to it; the released models' own code and upstream do not
    bos_token_id=1,
    eos_token_id=2,
)
MODELS.update(
    nemotron_h=(
        "nemotron_h",
        dict(MAMBA, layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"]),
        75,
    ),
    nemotron_h_biases_padding=(
        "nemotron_h",
        dict(
            MAMBA,
            layers_block_type=["linear_attention", "full_attention", "mlp"],
            n_groups=1,
            conv_kernel=3,
            use_bias=True,
            mlp_bias=True,
            pad_token_id=3,
        ),
        24,
    ),
    nemotron_h_moe=(
        "nemotron_h",
        dict(
            MAMBA,
            layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
            use_conv_bias=False,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            moe_intermediate_size=24,
            moe_shared_expert_intermediate_size=20,
            routed_scaling_factor=2.5,
        ),
        24,
    ),
)
MODELS.update(
    nemotron_h_latent=(
        "nemotron_h",
        dict(MODELS["nemotron_h_moe"][1], moe_latent_size=8),
        24,
    ),
)

FALCON = dict(
    SIZES,
    head_dim=12,
    num_hidden_layers=2,
    mamba_d_ssm=48,
    mamba_n_heads=6,
    mamba_d_head=8,
    mamba_d_state=12,
)
MODELS.update(
    falcon_h1=(
        "falcon_h1",
        dict(
            FALCON,
            max_position_embeddings=128,
            pad_token_id=3,
            embedding_multiplier=3.0,
            lm_head_multiplier=0.5,
            key_multiplier=0.6,
            attention_in_multiplier=0.8,
            attention_out_multiplier=0.9,
            ssm_in_multiplier=0.7,
            ssm_out_multiplier=1.3,
            ssm_multipliers=[0.6, 1.2, 0.8, 1.4, 0.7],
            mlp_multipliers=[0.9, 1.2],
        ),
        75,
    ),
    falcon_h1_norm_padding=(
        "falcon_h1",
        dict(
            FALCON,
            mamba_n_groups=2,
            mamba_rms_norm=True,
            mamba_norm_before_gate=True,
            mamba_conv_bias=False,
            mamba_d_conv=3,
            mamba_proj_bias=True,
            projectors_bias=True,
            attention_bias=True,
            mlp_bias=True,
            time_step_limit=[0.1, 2.0],
            pad_token_id=3,
        ),
        24,
    ),
    falcon_h1_gate_first=(
        "falcon_h1",
        dict(FALCON, mamba_d_ssm=None, mamba_d_head=None, mamba_n_heads=8, mamba_rms_norm=True,
             mamba_norm_before_gate=False, tie_word_embeddings=True),
        24,
    ),
    hy_v3=("hy_v3", dict(MOE, head_dim=12, num_experts=6, num_shared_experts=2), 24),
    hy_v3_padding=(
        "hy_v3",
        dict(MOE, head_dim=16, num_experts=5, attention_bias=True, router_scaling_factor=1.5,
             mlp_layer_types=["sparse", "dense", "sparse"], enable_moe_fp32_combine=False, pad_token_id=3),
        24,
    ),
    qwen2_moe=("qwen2_moe", dict(MOE, num_experts=6, shared_expert_intermediate_size=20, mlp_only_layers=[1]), 24),
    qwen2_moe_window=(
        "qwen2_moe",
        dict(MOE, num_experts=5, shared_expert_intermediate_size=40, norm_topk_prob=True, qkv_bias=False,
             use_sliding_window=True, sliding_window=6, max_window_layers=2, pad_token_id=3),
        24,
    ),
    ernie4_5=("ernie4_5", dict(SIZES, head_dim=12, pad_token_id=3), 24),
    ernie4_5_biases=("ernie4_5", dict(SIZES, head_dim=8, use_bias=True, tie_word_embeddings=False), 24),
    ernie4_5_moe=(
        "ernie4_5_moe",
        dict({k: v for k, v in MOE.items() if k != "num_experts_per_tok"}, moe_num_experts=6, moe_k=2, pad_token_id=3),
        24,
    ),
    ernie4_5_moe_some_layers_padding=(
        "ernie4_5_moe",
        dict(
            {k: v for k, v in MOE.items() if k != "num_experts_per_tok"},
            num_hidden_layers=4,
            moe_num_experts=5,
            moe_k=3,
            moe_num_shared_experts=1,
            moe_layer_interval=2,
            moe_layer_start_index=0,
            moe_layer_end_index=2,
            tie_word_embeddings=False,
            pad_token_id=3,
        ),
        24,
    ),
    cohere=("cohere", dict(SIZES, logit_scale=0.9, pad_token_id=3), 24),
    cohere_biases=("cohere", dict(SIZES, attention_bias=True, tie_word_embeddings=False, logit_scale=1.5, layer_norm_eps=1e-4), 24),
    phi=("phi", dict(SIZES, pad_token_id=3), 24),
    phi_partial_padding=(
        "phi",
        dict(
            SIZES,
            num_attention_heads=2,
            num_key_value_heads=1,
            hidden_act="relu",
            pad_token_id=3,
            rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25),
        ),
        24,
    ),
    cohere2=("cohere2", dict(SIZES, logit_scale=0.8, num_hidden_layers=4, sliding_window=6, pad_token_id=3), 24),
    cohere2_layer_types=(
        "cohere2",
        dict(SIZES, logit_scale=1.25, sliding_window=5, layer_types=["full_attention", "sliding_attention"], pad_token_id=3),
        24,
    ),
)

MODELS.update(
    cohere_qk_norm=("cohere", dict(SIZES, use_qk_norm=True, logit_scale=0.7, pad_token_id=3), 24),
    phi_qk_layernorm=("phi", dict(SIZES, qk_layernorm=True, pad_token_id=3), 24),
    ernie4_5_moe_biases=(
        "ernie4_5_moe",
        dict(
            {k: v for k, v in MOE.items() if k != "num_experts_per_tok"},
            use_bias=True,
            tie_word_embeddings=False,
            moe_num_experts=5,
            moe_k=2,
            pad_token_id=3,
        ),
        24,
    ),
    hy_v3_biases=("hy_v3", dict(MOE, head_dim=8, num_experts=5, mlp_bias=True), 24),
    olmo=("olmo", dict(SIZES, pad_token_id=1), 24),
    olmo_clip_tied=(
        "olmo",
        dict(SIZES, pad_token_id=3, clip_qkv=0.9, attention_bias=True, tie_word_embeddings=True),
        24,
    ),
    olmo3=(
        "olmo3",
        dict(
            SIZES,
            num_hidden_layers=4,
            pad_token_id=1,
            sliding_window=6,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="yarn",
                    rope_theta=500000.0,
                    factor=8.0,
                    original_max_position_embeddings=8,
                    beta_fast=32.0,
                    beta_slow=1.0,
                    attention_factor=1.2,
                ),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
        24,
    ),
    olmo3_layer_types_padding=(
        "olmo3",
        dict(SIZES, pad_token_id=3, attention_bias=True, sliding_window=9, layer_types=["full_attention", "sliding_attention"]),
        24,
    ),
    olmoe=("olmoe", dict(SIZES, num_experts=6, num_experts_per_tok=2, pad_token_id=1), 24),
    olmoe_clip_padding=(
        "olmoe",
        dict(SIZES, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True, attention_bias=True, clip_qkv=0.8, pad_token_id=3),
        24,
    ),
    stablelm=("stablelm", dict(SIZES, use_qkv_bias=True, partial_rotary_factor=0.25), 24),
    stablelm_parallel_padding=(
        "stablelm",
        dict(SIZES, qk_layernorm=True, use_parallel_residual=True, tie_word_embeddings=True, partial_rotary_factor=0.5, pad_token_id=3),
        24,
    ),
    nemotron=("nemotron", dict(SIZES, head_dim=16, partial_rotary_factor=0.5), 24),
    nemotron_biases_padding=(
        "nemotron",
        dict(SIZES, attention_bias=True, mlp_bias=True, hidden_act="gelu", norm_eps=1e-3, partial_rotary_factor=1.0, pad_token_id=3),
        24,
    ),
    arcee=("arcee", dict(SIZES, head_dim=12), 24),
    arcee_biases=("arcee", dict(SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, pad_token_id=3), 24),
    helium=("helium", dict(SIZES, head_dim=8, pad_token_id=3), 24),
    helium_biases=("helium", dict(SIZES, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), 24),
    exaone4=("exaone4", dict(SIZES, num_hidden_layers=4, head_dim=12, sliding_window=6), 24),
    exaone4_full_padding=(
        "exaone4",
        dict(SIZES, sliding_window=None, layer_types=["full_attention", "full_attention"], tie_word_embeddings=True, pad_token_id=3),
        24,
    ),
    gpt_neox=("gpt_neox", dict(NEOX, rotary_pct=0.5), 24),
    gpt_neox_serial_padding=(
        "gpt_neox",
        dict(
            NEOX,
            num_attention_heads=2,
            use_parallel_residual=False,
            attention_bias=False,
            tie_word_embeddings=True,
            hidden_act="gelu_new",
            pad_token_id=3,
        ),
        24,
    ),
    deepseek_v2=(
        "deepseek_v2",
        dict(
            LATENT,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            routed_scaling_factor=1.6,
            first_k_dense_replace=1,
            rope_parameters=MODELS["deepseek_v3"][1]["rope_parameters"],
        ),
        24,
    ),
    deepseek_v2_lite_padding=(
        "deepseek_v2",
        dict(LATENT, n_routed_experts=4, q_lora_rank=None, n_shared_experts=1, attention_bias=True, mlp_bias=True, pad_token_id=3),
        24,
    ),
    granitemoe=(
        "granitemoe",
        dict(
            SIZES,
            num_local_experts=6,
            num_experts_per_tok=2,
            embedding_multiplier=4.0,
            attention_multiplier=0.25,
            residual_multiplier=0.6,
            logits_scaling=2.0,
            tie_word_embeddings=True,
        ),
        24,
    ),
    granitemoe_bias_padding=(
        "granitemoe",
        dict(SIZES, num_local_experts=5, num_experts_per_tok=3, attention_bias=True, attention_multiplier=0.3, pad_token_id=3),
        24,
    ),
    granitemoeshared=(
        "granitemoeshared",
        dict(SIZES, num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=40, residual_multiplier=0.7, attention_multiplier=0.3),
        24,
    ),
    dots1=(
        "dots1",
        dict(MOE, head_dim=16, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, sliding_window=6, max_window_layers=2, norm_topk_prob=True, routed_scaling_factor=2.5),
        24,
    ),
    dots1_groups_padding=(
        "dots1",
        dict(MOE, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=2, attention_bias=True, pad_token_id=3),
        24,
    ),
)

KINDS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
LAGUNA = dict(SIZES, num_hidden_layers=4, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
              shared_expert_intermediate_size=20, moe_routed_scaling_factor=2.5)
MIMO = dict(SIZES, num_hidden_layers=4, num_attention_heads=8, head_dim=24, v_head_dim=16, layer_types=KINDS,
            num_experts_per_tok=3, moe_intermediate_size=24)
MODELS.update(
    laguna=(
        "laguna",
        dict(
            LAGUNA,
            layer_types=KINDS,
            num_attention_heads_per_layer=[4, 6, 6, 4],
            sliding_window=7,
            gating="per-head",
            rope_parameters=dict(
                full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=16,
                                    beta_fast=64.0, beta_slow=1.0, attention_factor=1.0, partial_rotary_factor=0.5),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0),
            ),
        ),
        24,
    ),
    laguna_elements_padding=(
        "laguna",
        dict(LAGUNA, gating="per-element", mlp_layer_types=["sparse", "dense", "sparse", "dense"], pad_token_id=3),
        24,
    ),
    mimo_v2_flash=("mimo_v2_flash", dict(MIMO, n_routed_experts=6, sliding_window=7), 24),
    mimo_v2_flash_groups_padding=(
        "mimo_v2_flash",
        dict(
            MIMO,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            routed_scaling_factor=2.5,
            attention_bias=True,
            attention_value_scale=None,
            mlp_layer_types=["sparse", "dense", "sparse", "dense"],
            rope_parameters=dict(
                full_attention=dict(rope_type="default", rope_theta=50000.0, partial_rotary_factor=0.5),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25),
            ),
            pad_token_id=3,
        ),
        24,
    ),
)

GEMMA4 = dict(
    SIZES,
    num_hidden_layers=4,
    head_dim=16,
    global_head_dim=32,
    num_global_key_value_heads=1,
    attention_k_eq_v=True,
    layer_types=["sliding_attention", "full_attention"] * 2,
    sliding_window=7,
    hidden_activation="gelu_pytorch_tanh",
    final_logit_softcapping=5.0,
    rms_norm_eps=1e-5,
    pad_token_id=0,
    tie_word_embeddings=True,
)
GEMMA4_VISION = dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=16)
UNIFIED_VISION = dict(model_type="gemma4_unified_vision", patch_size=4, pooling_kernel_size=1, mm_embed_dim=32,
                      mm_posemb_size=8, output_proj_dims=32)
MODELS.update(
    gemma4=("gemma4_text", dict(GEMMA4, hidden_size_per_layer_input=0), 24),
    gemma4_own_values_padding=(
        "gemma4_text",
        dict(
            GEMMA4,
            hidden_size_per_layer_input=0,
            attention_k_eq_v=False,
            attention_bias=True,
            sliding_window=8,
            layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=0.5),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
            pad_token_id=3,
            tie_word_embeddings=False,
        ),
        24,
    ),
    gemma4_moe=(
        "gemma4_text",
        dict(GEMMA4, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=8, top_k_experts=3,
             moe_intermediate_size=24),
        24,
    ),
    gemma4_layer_inputs=(  # as E2B and E4B have them
        "gemma4_text",
        dict(
            GEMMA4,
            num_hidden_layers=6,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
            attention_k_eq_v=False,
            num_global_key_value_heads=None,
            hidden_size_per_layer_input=12,
            vocab_size_per_layer_input=128,
            num_kv_shared_layers=3,
            use_double_wide_mlp=True,
        ),
        24,
    ),
    gemma4_everything_padding=(
        "gemma4_text",
        dict(
            GEMMA4,
            num_hidden_layers=5,
            sliding_window=8,  # so that no padded query is blind
            layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=128,
            num_kv_shared_layers=2,
            enable_moe_block=True,
            num_experts=5,
            top_k_experts=2,
            moe_intermediate_size=16,
            pad_token_id=3,
            tie_word_embeddings=False,
        ),
        24,
    ),
    gemma4_towers=(
        "gemma4",
        dict(text_config=dict(GEMMA4, model_type="gemma4_text", hidden_size_per_layer_input=0),
             vision_config=GEMMA4_VISION, tie_word_embeddings=True),
        24,
    ),
    gemma4_unified=("gemma4_unified_text", dict(GEMMA4, num_global_key_value_heads=2, final_logit_softcapping=None), 24),
    gemma4_unified_embedders=(
        "gemma4_unified",
        dict(text_config=dict(GEMMA4, model_type="gemma4_unified_text"), vision_config=UNIFIED_VISION,
             tie_word_embeddings=True),
        24,
    ),
)

MUSE = dict(SIZES, model_type="muse_glimmer_text", num_hidden_layers=4, head_dim=16, sliding_window=7, post_norm_eps=1e-6,
            output_multiplier=0.5, final_logit_softcapping=5.0,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0))
MUSE_VISION = dict(model_type="muse_glimmer_vision", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                   num_attention_heads=2, patch_size=4, pos_emb_height=4, pos_emb_width=4)
MODELS.update(
    muse_glimmer=(
        "muse_glimmer",
        dict(text_config=MUSE, vision_config=MUSE_VISION, out_hidden_size=64, projector_hidden_size=16,
             tie_word_embeddings=False),
        24,
    ),
    muse_glimmer_thetas_padding=(
        "muse_glimmer",
        dict(text_config=dict(MUSE, layer_rope_theta=[500000.0, 0, 0, 500000.0], qk_scale_factor=2.0, pad_token_id=3,
                              layer_types=["sliding_attention", "full_attention", "full_attention", "full_attention"],
                              sliding_window=9),
             vision_config=MUSE_VISION, out_hidden_size=64, projector_hidden_size=16, tie_word_embeddings=False),
        24,
    ),
)

DEEPSEEK_V4 = dict(
    vocab_size=128,
    hidden_size=32,
    moe_intermediate_size=24,
    num_hidden_layers=4,
    num_attention_heads=4,
    head_dim=16,
    q_lora_rank=24,
    o_groups=2,
    o_lora_rank=8,
    qk_rope_head_dim=8,
    sliding_window=6,
    index_n_heads=2,
    index_head_dim=16,
    index_topk=2,
    n_routed_experts=6,
    num_experts_per_tok=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    layer_types=[
        "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention",
    ],
    compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=8),
    mlp_layer_types=["hash_moe", "moe", "hash_moe", "moe"],
    swiglu_limit=1.5,
    hc_eps=1e-4,
)
MODELS.update(
    deepseek_v4=(
        "deepseek_v4",
        dict(
            DEEPSEEK_V4,
            rope_parameters=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0,
            ),
        ),
        24,
    ),
    deepseek_v4_padding=(
        "deepseek_v4",
        dict(
            DEEPSEEK_V4,
            num_hidden_layers=3,
            layer_types=["heavily_compressed_attention", "sliding_attention", "compressed_sparse_attention"],
            compress_rates=dict(compressed_sparse_attention=3, heavily_compressed_attention=5),
            mlp_layer_types=["moe", "hash_moe", "moe"],
            index_topk=16,
            scoring_func="sigmoid",
            routed_scaling_factor=2.5,
            n_routed_experts=5,
            num_experts_per_tok=3,
            o_groups=4,
            hc_mult=2,
            hc_sinkhorn_iters=3,
            pad_token_id=3,
        ),
        24,
    ),
)

# Ling 2.0, which transformers lacks: GLM 4.5's class computes the same (ling_as_glm4.py).
LING = dict(
    MOE,
    head_dim=16,
    num_experts=8,
    num_shared_experts=1,
    n_group=4,
    topk_group=2,
    first_k_dense_replace=1,
    use_qk_norm=True,
    use_qkv_bias=False,
    use_bias=False,
    norm_topk_prob=True,
    routed_scaling_factor=2.5,
    rope_theta=600000,
    partial_rotary_factor=0.5,
    rms_norm_eps=1e-6,
    hidden_act="silu",
    tie_word_embeddings=False,
    score_function="sigmoid",
    moe_router_enable_expert_bias=True,
    pad_token_id=3,
    model_type="bailing_moe",
    architectures=["BailingMoeV2ForCausalLM"],
)
LINGS = dict(
    bailing_moe_v2=LING,
    bailing_moe_v2_bias_padding=dict(
        LING, use_qk_norm=False, use_qkv_bias=True, num_shared_experts=2, n_group=1, topk_group=1,
        first_k_dense_replace=0, num_experts=5, num_experts_per_tok=3, rotary_dim=4,
    ),
    llada2_moe=dict(
        LING, model_type="llada2_moe", architectures=["LLaDA2MoeModelLM"], mask_token_id=126, num_shared_experts=2,
        rotary_dim=8, attention_dropout=0.0, embedding_dropout=0.0, output_dropout=0.0,
    ),
)
for name, ling in LINGS.items():
    own = {k: v for k, v in glm_config(ling).items() if k not in ("model_type", "architectures")}
    MODELS[name] = ("glm4_moe", own, 24)


GPT = dict(vocab_size=128, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
WINDOWED = dict(SIZES, num_hidden_layers=4, sliding_window=6)
BAMBA = dict(SIZES, num_hidden_layers=3, mamba_n_heads=8, mamba_d_state=12, mamba_expand=2)
GRANITE4 = dict(
    BAMBA, intermediate_size=24, num_hidden_layers=4, layer_types=["linear_attention", "full_attention"] * 2,
    num_experts_per_tok=2, shared_intermediate_size=40, embedding_multiplier=3.0, attention_multiplier=0.3,
    residual_multiplier=0.7, logits_scaling=2.0,
)
MODELS.update(
    cwm=("cwm", dict(WINDOWED, num_hidden_layers=5, head_dim=12), 24),
    cwm_padding=("cwm", dict(SIZES, head_dim=8, mlp_bias=True, sliding_window=9, layer_types=["sliding_attention",
                 "full_attention"], rope_parameters=dict(rope_type="default", rope_theta=10000.0), pad_token_id=3), 24),
    ministral=("ministral", dict(WINDOWED, head_dim=12, layer_types=["full_attention"] + ["sliding_attention"] * 3), 24),
    ministral_padding=("ministral", dict(SIZES, head_dim=8, sliding_window=9, tie_word_embeddings=True, pad_token_id=3), 24),
    solar_open=("solar_open", dict({k: v for k, v in MOE.items() if k != "intermediate_size"}, head_dim=12,
                n_routed_experts=8, n_group=4, topk_group=2, routed_scaling_factor=1.5), 24),
    solar_open_padding=("solar_open", dict({k: v for k, v in MOE.items() if k != "intermediate_size"}, head_dim=16,
                        n_routed_experts=5, n_shared_experts=2, norm_topk_prob=False, attention_bias=True,
                        pad_token_id=3), 24),
    jais2=("jais2", dict(SIZES, head_dim=12), 24),
    jais2_padding=("jais2", dict(SIZES, attention_bias=False, mlp_bias=False, tie_word_embeddings=True, pad_token_id=3), 24),
    hyperclovax=("hyperclovax", dict(SIZES, head_dim=8, embedding_multiplier=3.0, residual_multiplier=0.7,
                 logits_scaling=0.5, attention_multiplier=0.3), 24),
    hyperclovax_padding=("hyperclovax", dict(SIZES, head_dim=12, use_post_norm=False, attention_bias=True, mlp_bias=True,
                         tie_word_embeddings=True, pad_token_id=3), 24),
    exaone_moe=("exaone_moe", dict(MOE, num_hidden_layers=5, head_dim=12, sliding_window=6, num_experts=8, n_group=4,
                topk_group=2, num_shared_experts=2), 24),
    exaone_moe_padding=("exaone_moe", dict(MOE, num_experts=6, sliding_window=9, layer_types=["full_attention", "sliding_attention", "full_attention"],
                        norm_topk_prob=False, mlp_layer_types=["sparse", "dense", "sparse"], pad_token_id=3), 24),
    vaultgemma=("vaultgemma", dict(GEMMA, num_hidden_layers=3, sliding_window=7, query_pre_attn_scalar=24), 24),
    flex_olmo=("flex_olmo", dict(SIZES, num_experts=6, num_experts_per_tok=2, pad_token_id=1), 24),
    flex_olmo_padding=("flex_olmo", dict(SIZES, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True,
                       attention_bias=True, pad_token_id=3), 24),
    gemma3_tower=(
        "gemma3",
        dict(text_config=dict(MODELS["gemma3_text"][1], model_type="gemma3_text"), vision_config=dict(
            model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, image_size=16, patch_size=8), mm_tokens_per_image=4, tie_word_embeddings=True),
        24,
    ),
    llama4_tower=(
        "llama4",
        dict(text_config=dict(SIZES, model_type="llama4_text", head_dim=12, intermediate_size=24, intermediate_size_mlp=40,
                              num_local_experts=2, moe_layers=[1], no_rope_layers=[1, 0], attention_chunk_size=8),
             vision_config=dict(model_type="llama4_vision_model", hidden_size=16, intermediate_size=64, num_hidden_layers=1,
                                num_attention_heads=2, image_size=16, patch_size=4, vision_output_dim=16,
                                projector_input_dim=16, projector_output_dim=16, pixel_shuffle_ratio=0.5)),
        24,
    ),
    granite_swa=("granite_swa", dict(WINDOWED, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7,
                 logits_scaling=2.0, layer_rope_theta=[0, 10000.0, 500000.0, 10000.0]), 24),
    granite_swa_padding=("granite_swa", dict(SIZES, sliding_window=7, layer_types=["sliding_attention", "full_attention"],
                         attention_bias=True, mlp_bias=True, tie_word_embeddings=False, pad_token_id=3), 24),
    granitemoe_swa=("granitemoe_swa", dict(WINDOWED, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2,
                    shared_intermediate_size=40, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7,
                    logits_scaling=2.0, layer_rope_theta=[0, 10000.0, 500000.0, 10000.0]), 24),
    granitemoe_swa_padding=("granitemoe_swa", dict(SIZES, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2,
                            sliding_window=7, layer_types=["sliding_attention", "full_attention"], attention_bias=True,
                            tie_word_embeddings=True, pad_token_id=3), 24),
    mellum=("mellum", dict(MOE, head_dim=12, num_experts=6, sliding_window=6, layer_types=["full_attention",
            "sliding_attention", "sliding_attention"], mlp_layer_types=["sparse", "dense", "sparse"]), 24),
    mellum_padding=("mellum", dict(MOE, head_dim=16, num_experts=5, norm_topk_prob=False, attention_bias=True,
                    sliding_window=9, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_parameters=dict(full_attention=dict(rope_type="yarn", rope_theta=20000.0, factor=4.0,
                    original_max_position_embeddings=16), sliding_attention=dict(rope_type="default", rope_theta=300.0)),
                    pad_token_id=3), 24),
    youtu=("youtu", dict(SIZES, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=20, qk_nope_head_dim=12,
           qk_rope_head_dim=8, v_head_dim=16), 24),
    # No pad token: transformers makes its row zero after loading, whatever the file holds.
    youtu_halves=("youtu", dict(SIZES, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8,
                  qk_rope_head_dim=8, v_head_dim=12, rope_interleave=False, tie_word_embeddings=False,
                  attention_bias=True), 24),
    apertus=("apertus", dict(SIZES), 24),
    apertus_padding=("apertus", dict(SIZES, num_hidden_layers=3, attention_bias=True, tie_word_embeddings=True,
                     rope_parameters=dict(rope_type="default", rope_theta=10000.0), pad_token_id=3), 24),
    llama4=("llama4_text", dict(SIZES, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            intermediate_size=24, intermediate_size_mlp=40, num_local_experts=4, interleave_moe_layer_step=2,
            attention_chunk_size=7, floor_scale=4, attn_scale=0.3), 24),
    llama4_padding=("llama4_text", dict(SIZES, num_hidden_layers=3, head_dim=16, intermediate_size=24,
                    intermediate_size_mlp=40, num_local_experts=4, num_experts_per_tok=2, attention_chunk_size=13,
                    no_rope_layers=[1, 1, 1], use_qk_norm=False, attention_bias=True, attn_temperature_tuning=False,
                    rope_parameters=dict(rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0, original_max_position_embeddings=16), pad_token_id=3), 24),
    cohere2_moe=("cohere2_moe", dict(SIZES, logit_scale=0.5, num_hidden_layers=4, head_dim=12, intermediate_size=24,
                 num_experts=5, sliding_window=7, sliding_window_pattern=3, num_shared_experts=2, first_k_dense_replace=1,
                 prefix_dense_intermediate_size=40), 24),
    cohere2_moe_padding=("cohere2_moe", dict(SIZES, logit_scale=0.8, num_hidden_layers=3, head_dim=16, intermediate_size=40,
                         num_experts=4, sliding_window=9, expert_selection_fn="sigmoid", num_shared_experts=1,
                         rms_norm_eps=1e-5, shared_expert_combination_strategy="sum", attention_bias=True,
                         tie_word_embeddings=False, mlp_layer_types=["dense", "sparse", "sparse"],
                         prefix_dense_intermediate_size=40, pad_token_id=3,
                         layer_types=["full_attention", "sliding_attention", "sliding_attention"]), 24),
    nanochat=("nanochat", dict(SIZES), 24),
    nanochat_padding=("nanochat", dict(SIZES, attention_bias=True, final_logit_softcapping=4.0, tie_word_embeddings=True,
                      pad_token_id=3), 24),
    afmoe=("afmoe", dict(MOE, global_attn_every_n_layers=3, head_dim=12, num_experts=6, num_shared_experts=2,
           route_scale=1.7, sliding_window=6, mup_enabled=True), 24),
    afmoe_padding=("afmoe", dict(MOE, num_experts=5, head_dim=16, num_shared_experts=1, num_dense_layers=2, sliding_window=9,
                   layer_types=["full_attention", "sliding_attention", "full_attention"], tie_word_embeddings=True,
                   pad_token_id=3), 24),
    gpt_neo=("gpt_neo", dict(vocab_size=128, hidden_size=32, num_layers=4, num_heads=4, max_position_embeddings=64,
             attention_types=[[["global", "local"], 2]], window_size=7, bos_token_id=1, eos_token_id=2), 24),
    gpt_neo_padding=("gpt_neo", dict(vocab_size=128, hidden_size=32, num_layers=3, num_heads=2, intermediate_size=56,
                     max_position_embeddings=64, attention_types=[[["local"], 1], [["global"], 2]], window_size=9,
                     activation_function="relu", tie_word_embeddings=False, pad_token_id=3, bos_token_id=1, eos_token_id=2), 24),
    gptj=("gptj", dict(GPT, rotary_dim=4), 24),
    gptj_padding=("gptj", dict(GPT, n_inner=56, rotary_dim=8, activation_function="gelu", pad_token_id=3), 24),
    gpt_bigcode=("gpt_bigcode", GPT, 24),
    gpt_bigcode_padding=("gpt_bigcode", dict(GPT, n_inner=56, multi_query=False, scale_attn_weights=False,
                         tie_word_embeddings=False, pad_token_id=3), 24),
    falcon=("falcon", dict(NEOX, intermediate_size=None), 24),
    falcon_new=("falcon", dict(NEOX, intermediate_size=None, num_hidden_layers=3, new_decoder_architecture=True,
                num_kv_heads=2, bias=True, ffn_hidden_size=56, tie_word_embeddings=False), 24),
    falcon_one_norm_padding=("falcon", dict(NEOX, intermediate_size=None, new_decoder_architecture=True, num_kv_heads=2,
                             num_ln_in_parallel_attn=1, activation="gelu_new", pad_token_id=3), 24),
    falcon_serial=("falcon", dict(NEOX, intermediate_size=None, multi_query=False, parallel_attn=False, bias=True), 24),
    opt=("opt", dict(vocab_size=128, hidden_size=32, ffn_dim=56, num_hidden_layers=3, num_attention_heads=4,
         max_position_embeddings=64, pad_token_id=3, bos_token_id=1, eos_token_id=2), 24),
    opt_padding=("opt", dict(vocab_size=128, hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=2,
                 max_position_embeddings=64, enable_bias=False, layer_norm_elementwise_affine=False,
                 activation_function="gelu", tie_word_embeddings=False, pad_token_id=3, bos_token_id=1, eos_token_id=2), 24),
    bamba=("bamba", dict(BAMBA, attn_layer_indices=[1], mamba_n_groups=2, mamba_d_conv=3, mamba_conv_bias=False,
           time_step_limit=[0.1, 2.0]), 75),
    bamba_padding=("bamba", dict(BAMBA, attn_layer_indices=[0, 2], mamba_d_head=8, mamba_proj_bias=True, attention_bias=True,
                   mlp_bias=True, tie_word_embeddings=True, pad_token_id=3), 24),
    granitemoehybrid=("granitemoehybrid", dict(GRANITE4, num_local_experts=6), 75),
    granitemoehybrid_dense_padding=("granitemoehybrid", dict(GRANITE4, num_local_experts=0, position_embedding_type="rope",
                                    mamba_n_groups=2, attention_bias=True, tie_word_embeddings=True, pad_token_id=3), 24),
    minicpm3=("minicpm3", dict(SIZES, num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=10,
              qk_rope_head_dim=8, v_head_dim=14, dim_model_base=48), 24),
    minicpm3_padding=("minicpm3", dict(SIZES, num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8,
                      qk_rope_head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, scale_emb=3,
                      pad_token_id=3, rope_parameters=dict(longrope(1.0), factor=4.0, original_max_position_embeddings=16)), 24),
    lfm2=("lfm2", dict(SIZES, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], block_multiple_of=8,
          pad_token_id=3), 24),
    lfm2_biases_padding=("lfm2", dict(SIZES, num_hidden_layers=3, full_attn_idxs=[1], conv_L_cache=4, conv_bias=True,
                         block_auto_adjust_ff_dim=False, tie_word_embeddings=False, pad_token_id=3), 24),
    lfm2_moe=("lfm2_moe", dict(MOE, layer_types=["conv", "full_attention", "conv"], num_experts=8, num_dense_layers=1,
              routed_scaling_factor=1.5, pad_token_id=3), 24),
    lfm2_moe_padding=("lfm2_moe", dict(MOE, layer_types=["full_attention", "conv", "conv"], num_experts=5,
                      num_dense_layers=0, use_expert_bias=False, norm_topk_prob=False, pad_token_id=3), 24),
    bloom=("bloom", dict(vocab_size=128, hidden_size=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2), 24),
    bloom_padding=("bloom", dict(vocab_size=128, hidden_size=48, n_layer=2, n_head=6, tie_word_embeddings=False,
                   layer_norm_epsilon=1e-4, pad_token_id=3, bos_token_id=1, eos_token_id=2), 24),
    mpt=("mpt", dict(vocab_size=128, d_model=32, n_layers=3, n_heads=4, max_seq_len=64, bos_token_id=1, eos_token_id=2,
         attn_config=dict(clip_qkv=0.8)), 24),
    mpt_padding=("mpt", dict(vocab_size=128, d_model=48, n_layers=2, n_heads=6, max_seq_len=64,
                 tie_word_embeddings=False, pad_token_id=3, bos_token_id=1, eos_token_id=2,
                 attn_config=dict(softmax_scale=0.3)), 24),
    deepseek=("deepseek", dict(MOE, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=1), 24),
    deepseek_padding=("deepseek", dict(MOE, n_routed_experts=5, norm_topk_prob=True, attention_bias=True, pad_token_id=3), 24),
)

# Families whose own code comes with the released files.
EXAONE = {k: v for k, v in SIZES.items() if k != "num_hidden_layers"}
RENAMED = dict(
    aquila=dict(SIZES, model_type="aquila", architectures=["AquilaForCausalLM"]),
    exaone=dict(EXAONE, model_type="exaone", architectures=["ExaoneForCausalLM"], num_layers=2, layer_norm_epsilon=1e-5,
                activation_function="silu", rope_theta=1000000, rope_scaling=LLAMA3, tie_word_embeddings=True),
    chatglm=dict(
        model_type="chatglm", architectures=["ChatGLMModel"], padded_vocab_size=128, hidden_size=32, num_layers=2,
        num_attention_heads=4, ffn_hidden_size=56, kv_channels=16, seq_length=64, layernorm_epsilon=1e-5, rmsnorm=True,
        add_bias_linear=False, add_qkv_bias=True, multi_query_attention=True, multi_query_group_num=2, rope_ratio=50,
        original_rope=True, post_layer_norm=True, apply_residual_connection_post_layernorm=False, hidden_dropout=0.0,
        attention_dropout=0.0, tie_word_embeddings=False, eos_token_id=2,
    ),
    internlm2=dict(SIZES, model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=False, pad_token_id=2),
    internlm2_bias_padding=dict(SIZES, model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=True,
                                num_attention_heads=8, pad_token_id=3),
    internlm3=dict(SIZES, model_type="internlm3", architectures=["InternLM3ForCausalLM"], bias=True, qkv_bias=True, head_dim=12),
    minicpm=dict(SIZES, model_type="minicpm", architectures=["MiniCPMForCausalLM"], scale_emb=12, scale_depth=1.4,
                 dim_model_base=48, tie_word_embeddings=True),
    orion=dict(SIZES, model_type="orion", architectures=["OrionForCausalLM"], rms_norm_eps=1e-5),
)
for name, own in RENAMED.items():
    peer = {k: v for k, v in peer_config(own).items() if k != "architectures"}
    MODELS[name] = (peer.pop("model_type"), peer, 24)


def fill(model):
    """Random weights large enough for every part to matter."""
    generator = torch.Generator().manual_seed(1234)
    is_gemma4 = type(model).__name__.startswith("Gemma4")
    plus_one = type(model).__name__.startswith("Gemma") and not is_gemma4
    delta = type(model).__name__.startswith(("Qwen3Next", "Qwen3_5"))
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or ".ln_" in name:
            is_zero = plus_one or name.endswith("bias") or (delta and not name.endswith("linear_attn.norm.weight"))
            if type(model).__name__.startswith("MuseGlimmer"):
                is_zero = ".language_model.layers." in name
            center = 0.0 if is_zero else 1.0
            if is_gemma4 and name.endswith(("q_norm.weight", "k_norm.weight")):
                center = 0.5  # its scores have no scale
            parameter.data = center + 0.2 * noise
        elif name.endswith(("attn_hc.scale", "ffn_hc.scale", "hc_scale", "router.scale", "per_expert_scale")):
            parameter.data = 1.0 + 0.2 * noise
        elif type(model).__name__.startswith("Laguna") and name.endswith("e_score_correction_bias"):
            parameter.data = 0.5 * noise
        elif name.endswith("bias") or name.endswith("sinks"):
            parameter.data = 0.1 * noise
        elif name.endswith(("conv1d.weight", "A_log", ".D")):
            parameter.data = 0.5 * noise
        else:
            parameter.data = 0.15 * noise
    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.data = 0.3 * torch.randn(buffer.shape, generator=generator)
        if name.endswith("layer_scalar"):
            buffer.data = 1.0 + 0.2 * torch.randn(buffer.shape, generator=generator)
        if name.endswith("tid2eid"):  # different experts of each token
            draws = torch.rand(buffer.shape[0], model.config.n_routed_experts, generator=generator)
            buffer.data = draws.argsort(-1)[:, : buffer.shape[1]].contiguous()


# DeepSeek V4's releases have names of their own, which transformers reads; what it saves mixes both. In order.
V4_NAMES = (
    ("model.", ""), ("lm_head.", "head."), ("embed_tokens.", "embed."), ("hc_head.hc_", "hc_head_"),
    (".attn_hc.", ".hc_attn_"), (".ffn_hc.", ".hc_ffn_"), (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".ffn_norm."), (".self_attn.", ".attn."), (".mlp.", ".ffn."),
    (".attn.kv_norm.", ".attn.KEPT."), (".attn.q_a_norm.", ".attn.q_norm."), (".sinks", ".attn_sink"),
    (".compressor.indexer.scorer.weights_proj.", ".indexer.weights_proj."),
    (".compressor.indexer.q_b_proj.", ".indexer.wq_b."), (".compressor.indexer.", ".indexer.compressor."),
    (".kv_norm.", ".norm."), (".attn.KEPT.", ".attn.kv_norm."), (".position_bias", ".ape"),
    (".compressor.gate_proj.", ".compressor.wgate."), (".kv_proj.", ".wkv."), (".q_a_proj.", ".wq_a."),
    (".q_b_proj.", ".wq_b."), (".o_a_proj.", ".wo_a."), (".o_b_proj.", ".wo_b."),
    (".gate.e_score_correction_bias", ".gate.bias"), (".shared_experts.gate_proj.", ".shared_experts.w1."),
    (".shared_experts.down_proj.", ".shared_experts.w2."), (".shared_experts.up_proj.", ".shared_experts.w3."),
)


def v4_name(name):
    for ours, theirs in V4_NAMES:
        name = theirs + name[len(ours):] if ours[0] != "." and name.startswith(ours) else name
        name = name.replace(ours, theirs) if ours[0] == "." else name
    return name


def checkpoint_tensors(config, name, tensor):
    """A tensor of all experts as those of the checkpoint: one for each expert's projection."""
    if config.get_text_config().model_type == "mistral4" and config.model_type == "mistral3":
        name = name.replace("model.language_model.", "language_model.model.").replace("lm_head.", "language_model.lm_head.")
    if config.get_text_config().model_type in ("gpt_oss", "mistral4", "gemma4_text", "granitemoe_swa", "llama4_text"):  # stored as they are
        yield name, tensor
        return
    names = dict(gate="gate_proj", up="up_proj", down="down_proj")
    if config.model_type in ("mistral3", "gemma3"):
        name = name.replace("model.language_model.", "language_model.model.").replace("lm_head.", "language_model.lm_head.")
    if config.model_type == "hy_v3":
        name = name.replace("mlp.gate.", "mlp.router.gate.").replace("mlp.shared_experts.", "mlp.shared_mlp.")
    if config.model_type == "laguna":
        name = name.replace(".shared_experts.", ".shared_expert.").replace("gate.e_score_corr", "experts.e_score_corr")
    if config.model_type == "mimo_v2_flash":
        name = name.replace(".sinks", ".attention_sink_bias")
    if config.model_type in ("granitemoe", "granitemoeshared", "granitemoehybrid"):  # stored as they are
        for part, theirs in (("experts.gate_up_proj", "input_linear.weight"), ("experts.down_proj", "output_linear.weight"),
                             ("block_sparse_moe.router.", "block_sparse_moe.router.layer.")):
            name = name.replace(part, theirs)
        yield name, tensor
        return
    if config.model_type == "lfm2_moe":
        names = dict(gate="w1", up="w3", down="w2")
    if config.model_type == "exaone_moe":
        name = name.replace("gate.e_score_corr", "e_score_corr")
    if config.model_type == "gpt_neox":
        name = name.replace("lm_head.", "embed_out.")
    if config.model_type == "nemotron_h" and name.startswith("model."):
        name = name.replace("model.", "backbone.", 1)
    if config.model_type == "deepseek_v4":
        names = dict(gate="w1", up="w3", down="w2")
        name = v4_name(name)
    if config.model_type in ("mixtral", "minimax_m2"):
        names = dict(gate="w1", up="w3", down="w2")
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if config.model_type == "kimi_linear":
        names = dict(gate="w1", up="w3", down="w2")
        name = name.replace(".forget_gate.", ".")
        for part in ("gate.", "experts.", "shared_experts."):
            name = name.replace(f".mlp.{part}", f".block_sparse_moe.{part}")
        if name.endswith(".conv1d.weight"):
            for part, rows in zip("qkv", tensor.chunk(3)):
                yield name.replace(".conv1d.", f".{part}_conv1d."), rows
            return
    if name.endswith("experts.gate_up_proj"):
        for e, both in enumerate(tensor):
            gate, up = both.chunk(2)
            yield name.replace("gate_up_proj", f"{e}.{names['gate']}.weight"), gate
            yield name.replace("gate_up_proj", f"{e}.{names['up']}.weight"), up
    elif name.endswith("experts.down_proj"):
        for e, down in enumerate(tensor):
            yield name.replace("down_proj", f"{e}.{names['down']}.weight"), down
    elif name.endswith("experts.up_proj"):  # without a gate
        for e, up in enumerate(tensor):
            yield name.replace("up_proj", f"{e}.{names['up']}.weight"), up
    else:
        yield name, tensor


def loss_of(model, batch):
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask") if key in batch}
    inputs.update(seeing_all(model, batch["input_ids"]))
    logits = model(**inputs, use_cache=False).logits
    labels = batch["labels"]
    total = torch.nn.functional.cross_entropy(
        logits.float().view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100, reduction="sum"
    )
    return logits, total / (labels != -100).sum()


def make_batch(config, length, is_padded):
    generator = torch.Generator().manual_seed(99)
    config = config.get_text_config()
    tokens = torch.randint(4, config.vocab_size, (2, length + 1), generator=generator)
    pad = getattr(config, "pad_token_id", None)
    if pad is not None:
        tokens[:, 3] = pad  # the padding row of the embedding gets no gradient from the lookup
    batch = dict(input_ids=tokens[:, :-1].contiguous(), labels=tokens[:, 1:].contiguous())
    batch["labels"][0, :5] = -100
    batch["labels"][1, 9:12] = -100
    if is_padded:
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        batch["attention_mask"][1, -7:] = 0
        batch["input_ids"][1, -7:] = pad
        batch["labels"][1, -7:] = -100
    return batch


def model_class_of(name):
    if MODELS[name][0] == "mistral4":  # no Auto class knows it
        return transformers.Mistral4ForCausalLM
    return AutoModelForImageTextToText if "vision_config" in MODELS[name][1] else AutoModelForCausalLM


NONE_IS_SAID = ("sliding_window", "q_lora_rank", "attention_value_scale")  # not the default


def new_folder(name, config):
    """Makes a golden's folder anew, with its config.json."""
    folder = os.path.join(ROOT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    return folder


def make_folder_of(name, model, config):
    """Makes the folder of a model whose parameters are named as its tensors, on padded rows if it is named so."""
    folder = new_folder(name, config)
    tensors = {key: value.detach().clone().contiguous() for key, value in model.named_parameters()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata=dict(format="pt"))
    batch = make_batch(model.config, 24, name.endswith("padding"))
    logits, loss = loss_of(model, batch)
    loss.backward()
    out = dict(batch, logits=logits.detach().contiguous(), loss=loss.detach())
    out.update({"grad." + key: value.grad.clone() for key, value in model.named_parameters()})
    write_reference(name, model, batch, out)


def write_reference(name, model, batch, out):
    """Trains three steps on the batch, and writes their losses beside `out`: the batch, logits, loss and gradients."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        _, step_loss = loss_of(model, batch)
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.detach())
    out["losses"] = torch.stack(losses)
    save_file(out, os.path.join(ROOT, name, "reference.safetensors"))
    print(f"{name:28s} loss {out['loss'].item():.6f} losses {[round(x.item(), 6) for x in losses]}")


def make_model(name):
    model_type, options, length = MODELS[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{k: v for k, v in options.items()
                                               if v is not None or k in NONE_IS_SAID or name in RENAMED})
    config._attn_implementation = "eager"
    model_class = model_class_of(name)
    make = getattr(model_class, "from_config", None) or model_class._from_config
    model = make(config, attn_implementation="eager").float().eval()
    fill(model)
    folder = os.path.join(ROOT, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)

    if name in LINGS:
        make_ling_folder(folder, LINGS[name])
    if name in RENAMED:
        make_own_folder(folder, RENAMED[name])
    if model_type == "kimi_linear":
        path = os.path.join(folder, "model.safetensors")
        save_file(released_names(load_file(path)), path, metadata={"format": "pt"})
    if model_type == "deepseek_v4":
        released = {}
        for key, value in model.state_dict().items():
            released.update(checkpoint_tensors(config, key, value))
        save_file({key: value.clone().contiguous() for key, value in released.items()},
                  os.path.join(folder, "model.safetensors"), metadata=dict(format="pt"))

    if model_type == "mimo_v2_flash":  # AutoModel's sinks are buffers
        for layer in model.model.layers:
            if layer.self_attn.sinks is not None:
                layer.self_attn.sinks.requires_grad_(False)
    batch = make_batch(config, length, name.endswith("padding"))
    logits, loss = loss_of(model, batch)
    loss.backward()
    out = dict(batch, logits=logits.detach().contiguous(), loss=loss.detach())
    gradients = {}
    for key, parameter in model.named_parameters():
        if parameter.grad is None:  # a tower that no text goes through
            continue
        if is_gradient_rounding(config, key):
            continue
        gradients.update(checkpoint_tensors(config, key, parameter.grad.detach()))
    if name in LINGS:
        gradients = ling_tensors(gradients)
    if name in RENAMED:
        gradients = own_tensors(gradients, RENAMED[name])
    for key, gradient in gradients.items():
        out["grad." + key] = gradient.clone().contiguous()
    write_reference(name, model, batch, out)


def is_gradient_rounding(config, name):
    """Whether a parameter adds one number to all scores of a query, which gives no gradient but rounding."""
    return config.model_type == "opt" and name.endswith(".k_proj.bias")


def passes(model, batch):
    """What bfloat16.json compares, in float64."""
    logits, loss = loss_of(model, batch)
    loss.backward()
    labels = batch["labels"].view(-1)
    rows = logits.detach().double().view(-1, logits.shape[-1])
    losses = torch.nn.functional.cross_entropy(rows, labels, ignore_index=-100, reduction="none")
    gradients = {name: p.grad.double() for name, p in model.named_parameters()
                 if p.grad is not None and not is_gradient_rounding(model.config, name)}
    return rows, losses[labels != -100], gradients


def distance(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def make_rounded(name, dtype, attention):
    """The model of a folder, its weights rounded to bfloat16."""
    folder = os.path.join(ROOT, name)
    with tempfile.TemporaryDirectory() as scratch:
        if name in LINGS:
            write_glm_folder(folder, scratch)
            folder = scratch
        if name in RENAMED:
            write_peer_folder(folder, scratch)
            folder = scratch
        if MODELS[name][0] == "deepseek_v4":
            return make_rounded_v4(folder, dtype, attention)
        model = model_class_of(name).from_pretrained(folder, dtype=torch.bfloat16, attn_implementation=attention)
    return (model.float() if dtype == torch.float32 else model).eval()  # to() would round tables of angles


def make_rounded_v4(folder, dtype, attention):
    """As from_pretrained() in bfloat16 makes it, whose products do not take the norms that it keeps in float32:
    these are rounded too, as the releases have them."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    for name, parameter in model.named_parameters():
        if not any(part in name for part in ("attn_hc", "ffn_hc", "hc_head", "sinks", "position_bias")):
            parameter.data = parameter.data.to(torch.bfloat16).to(dtype)
    return model.eval()


def bfloat16_errors(name):
    """The worst of each figure over transformers' two ways of attention, where it has both: which activations
    and experts' choices turn, and so a figure of such models, differs between equivalent roundings."""
    batch = load_file(os.path.join(ROOT, name, "reference.safetensors"))
    kept = ("input_ids", "labels", "attention_mask")
    batch = {key: value for key, value in batch.items() if key in kept}
    wanted = passes(make_rounded(name, torch.float32, "eager"), batch)
    worst = {}
    for attention in ("eager", "sdpa"):
        try:
            same = passes(make_rounded(name, torch.float32, attention), batch)
            if distance(same[0], wanted[0]) > 1e-5:
                continue  # it leaves something out
        except ValueError:
            continue  # there is no such way for this family
        found = passes(make_rounded(name, torch.bfloat16, attention), batch)
        joined = [torch.cat([g.flatten() for _, g in sorted(p[2].items())]) for p in (found, wanted)]
        errors = dict(
            logits=distance(found[0], wanted[0]),
            token_loss=(found[1] - wanted[1]).pow(2).mean().sqrt().item(),
            gradient=distance(*joined),
            worst_gradient=max(distance(found[2][key], g) for key, g in wanted[2].items() if g.norm() > 0),
        )
        worst = {key: max(value, worst.get(key, 0)) for key, value in errors.items()}
    return worst


def make_bfloat16(names):
    path = os.path.join(ROOT, "bfloat16.json")
    made_with = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, one thread of a CPU"
    made = dict(made_with=made_with, errors={})
    if names:
        with open(path) as old:
            made = json.load(old)
    for name in names or MODELS:
        errors = {key: float(f"{value:.4g}") for key, value in bfloat16_errors(name).items()}
        made["errors"][name] = dict(errors, made_with=made_with) if names else errors
        print(f"{name:28s}", errors)
    with open(path, "w") as out:
        json.dump(made, out, indent=1)
        out.write("\n")


ROPES = [
    dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
    dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
    dict(LLAMA3, original_max_position_embeddings=8192),
    dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768),
    dict(
        rope_type="yarn",
        rope_theta=10000.0,
        factor=16.0,
        original_max_position_embeddings=2048,
        beta_fast=20.0,
        beta_slow=2.0,
        truncate=False,
    ),
    dict(
        rope_type="yarn",
        rope_theta=10000.0,
        factor=40.0,
        original_max_position_embeddings=4096,
        mscale=1.0,
        mscale_all_dim=0.8,
    ),
    dict(
        rope_type="yarn",
        rope_theta=10000.0,
        factor=4.0,
        original_max_position_embeddings=4096,
        attention_factor=1.5,
        partial_rotary_factor=0.5,
    ),
    dict(rope_type="proportional", rope_theta=1000000.0, partial_rotary_factor=0.25),
    dict(rope_type="proportional", rope_theta=10000.0, partial_rotary_factor=0.5, factor=2.0),
]


def make_ropes():
    cases = []
    head_dim = 64
    ropes = list(ROPES)
    for attention_factor in (None, 1.25):
        rope = dict(
            rope_type="longrope",
            rope_theta=10000.0,
            short_factor=[1.0 + 0.01 * i for i in range(head_dim // 2)],
            long_factor=[1.5 + 0.5 * i for i in range(head_dim // 2)],
            original_max_position_embeddings=4096,
        )
        if attention_factor:
            rope["attention_factor"] = attention_factor
        ropes.append(rope)
    for rope in ropes:
        lengths = [None]
        if rope["rope_type"] in ("dynamic", "longrope"):
            lengths = [None, 131072]
        for length in lengths:
            config = AutoConfig.for_model(
                "llama",
                hidden_size=256,
                num_attention_heads=4,
                head_dim=head_dim,
                max_position_embeddings=65536,
                rope_parameters=dict(rope),
            )
            inv_freq, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=length)
            cases.append(
                dict(
                    rope_parameters=rope,
                    head_dim=head_dim,
                    max_position_embeddings=65536,
                    length=length or 0,
                    inv_freq=[float(x) for x in inv_freq],
                    attention_factor=float(factor),
                )
            )
    with open(os.path.join(ROOT, "rope_frequencies.json"), "w") as out:
        json.dump(cases, out, indent=1)


def main():
    os.makedirs(ROOT, exist_ok=True)
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--bfloat16"]:
        make_bfloat16(sys.argv[2:])
        return
    for name in sys.argv[1:] or MODELS:
        make_model(name)
    if len(sys.argv) > 1:
        return
    make_ropes()
    write_source()


def write_source():
    """Says where the folders come from; what other makers have added of theirs stays."""
    path = os.path.join(ROOT, "SOURCE.md")
    others = []
    if os.path.exists(path):
        with open(path) as file:
            others = file.read().rstrip("\n").split("\n\n")[2:]
    own = (
        "Made by `scripts/goldens/make_goldens.py`, which says what each tensor is, with torch "
        f"{torch.__version__.split('+')[0]}, transformers {transformers.__version__} and "
        f"safetensors {safetensors.__version__}; float32 on a CPU, one thread, eager attention. "
        "The weights are random numbers."
    )
    with open(path, "w") as out:
        out.write("\n\n".join(["# Where these files come from", own, *others]) + "\n")


if __name__ == "__main__":
    main()
