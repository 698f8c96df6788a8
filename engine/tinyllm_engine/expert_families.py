"""Families whose layers have experts, or latent attention, and which are nobody else's relatives: their facts."""

from __future__ import annotations

from dataclasses import replace

from tinyllm_engine.agreed import SIGMOID, SOFTMAX_OF_CHOSEN
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import (
    SANDWICH,
    Architecture,
    Norms,
    Window,
    all_but_every_fourth,
    constant,
    embedding_root,
    windowed_only,
)
from tinyllm_engine.latent import Latent, all_or_nothing, always, deepseek_lite, deepseek_scale, deepseek_yarn, never
from tinyllm_engine.mixture import (
    DEEPSEEK,
    Mixture,
    after_leading_interleaved,
    expert_width,
    expert_width_or_share,
    shared_experts,
    shared_key,
    shared_key_or_expert,
    shared_key_or_whole,
    shared_keys,
)


def minicpm3_residual(config: ModelConfig) -> float:
    return 1.4 / config.block_count**0.5


def minicpm3_logits(config: ModelConfig) -> float:
    return 256 / config.embedding_length


DEEPSEEK_LATENT = Latent(deepseek_lite, all_or_nothing)
MISTRAL_LATENT = Latent(deepseek_lite, deepseek_yarn)
DEEPSEEK_V3 = replace(DEEPSEEK, gating_key=True, normalized=None, bias=True)

DEEPSEEK2 = Architecture(
    "deepseek2",
    attention_scale=deepseek_scale(DEEPSEEK_LATENT),
    temperature=True,
    latent=DEEPSEEK_LATENT,
    experts=replace(DEEPSEEK_V3, fused=True),
)
POST_NORM = Norms(ffn_before="post_attention_norm")

EXPERT_FAMILIES = (
    DEEPSEEK2,
    replace(DEEPSEEK2, name="mistral4", attention_scale=deepseek_scale(MISTRAL_LATENT), latent=MISTRAL_LATENT),
    Architecture("plm", activation="relu2", gate="none", latent=Latent(always)),
    Architecture(
        "ernie4_5-moe",
        unused=("attn_output.bias",),
        experts=Mixture(layers=after_leading_interleaved, width=expert_width, bias=True, shared=shared_key),
    ),
    Architecture(
        "qwen2moe",
        rope="neox",
        experts=Mixture(width=expert_width_or_share, normalized=False, shared=shared_key_or_whole, shared_gated=True),
    ),
    Architecture("qwen3moe", rope="neox", qk_norm="head", experts=Mixture(width=expert_width_or_share, scales=True)),
    Architecture("olmoe", rope="neox", qk_norm="row", experts=Mixture(normalized=False)),
    Architecture(
        "gpt-oss",
        rope="neox",
        norms=POST_NORM,
        window=Window(2),
        sinks=True,
        experts=Mixture(
            width=expert_width, gating=SOFTMAX_OF_CHOSEN, normalized=False, biases=True, activation="limited_silu"
        ),
    ),
    Architecture(
        "glm4moe",
        rope="neox",
        rope_sections="mrope",
        norms=POST_NORM,
        qk_norm="head",
        qk_norm_optional=True,
        experts=replace(DEEPSEEK_V3, gating=SIGMOID),
    ),
    Architecture("bailingmoe2", rope="neox", qk_norm="head", experts=replace(DEEPSEEK_V3, shared=shared_keys)),
    Architecture("deepseek", experts=DEEPSEEK),
    Architecture(
        "bailingmoe",
        experts=Mixture(width=expert_width, normalized=None, scale_key=True, shared=shared_experts),
    ),
    Architecture("dots1", rope="neox", qk_norm="head", experts=DEEPSEEK_V3),
    Architecture(
        "dbrx",
        rope="neox",
        norm="layer",
        norms=Norms(ffn_before="attn_output_norm"),
        clamp_qkv=True,
        experts=Mixture(),
    ),
    Architecture(
        "hunyuan-moe",
        rope="neox",
        qk_norm="head",
        qk_norm_after_rope=True,
        experts=Mixture(shared=shared_key_or_whole),
    ),
    Architecture(
        "minimax-m2",
        rope="neox",
        qk_norm="row",
        unused=("attn_output.bias",),
        experts=Mixture(gating=SIGMOID, gating_key=True, bias=True),
    ),
    Architecture(
        "exaone-moe",
        rope="neox",
        rope_factors="freqs",
        rotates=windowed_only,
        qk_norm="head",
        window=Window(4, size=128, rope_key=False),
        experts=replace(DEEPSEEK_V3, shared=shared_key_or_expert),
    ),
    Architecture(
        "qwen3vlmoe",
        rope="neox",
        rope_sections="imrope",
        qk_norm="head",
        experts=Mixture(width=expert_width_or_share),
    ),
    Architecture(
        "mellum",
        rope="neox",
        qk_norm="head",
        window=Window(4, rope_key=False, rope_scaling="none"),
        experts=Mixture(width=expert_width_or_share, scales=True),
    ),
    Architecture(
        "afmoe",
        rope="neox",
        rotates=all_but_every_fourth,
        norms=SANDWICH,
        qk_norm="head",
        embedding_scale=embedding_root,
        window=Window(4),
        attention_gate="matrix",
        experts=replace(DEEPSEEK_V3, gating=SIGMOID),
    ),
    Architecture(
        "minicpm3",
        rope="neox",
        rope_factors="long_short",
        embedding_scale=constant(12.0),
        residual_scale=minicpm3_residual,
        logit_scale=minicpm3_logits,
        latent=Latent(never),
    ),
)
