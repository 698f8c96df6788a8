"""Families whose layers have experts, or latent attention, and which are nobody else's relatives: their facts."""

from __future__ import annotations

from dataclasses import replace

from tinyllm_engine.facts import Architecture, Norms, Window
from tinyllm_engine.kernels.experts import SIGMOID, SOFTMAX_OF_CHOSEN
from tinyllm_engine.latent import Latent, all_or_nothing, always, deepseek_lite, deepseek_scale, deepseek_yarn
from tinyllm_engine.mixture import (
    DEEPSEEK,
    Mixture,
    after_leading_interleaved,
    expert_width,
    expert_width_or_share,
    shared_key,
    shared_key_or_whole,
    shared_keys,
)

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
)
