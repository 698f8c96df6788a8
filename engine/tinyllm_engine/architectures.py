"""The architectures that are known, each by its facts; what a family does not know is not looked at.

A fact belongs to the family, whatever keys a file carries. Most were settled by what the reference engine computes for
files of the family, and all are tested against its logits or its formulas.
"""

from __future__ import annotations

from dataclasses import replace

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.expert_families import EXPERT_FAMILIES
from tinyllm_engine.facts import (
    AFTER,
    FALCON,
    SANDWICH,
    SHARED,
    Architecture,
    Norms,
    Window,
    alibi_key,
    all_but_every_fourth,
    always,
    attention_scale_key,
    baichuan_alibi,
    baichuan_rotates,
    but_every_fourth,
    constant,
    embedding_root,
    exaone4_rotates,
    gemma3n_layer_inputs,
    gemma3n_shared_keys,
    gemma3n_sparsity,
    gemma_attention,
    if_finetuned,
    jais_attention,
    key_length_root,
    key_scale,
    layer_inputs_key,
    minicpm_logits,
    minicpm_residual,
    one,
    one_over,
    rope_pattern_key,
    shared_keys_key,
    windowed_only,
    without_heads,
    without_heads_and_network,
)
from tinyllm_engine.mixture import GEMMA4, GRANITE_MOE, JAMBA, LFM2_MOE, MIXTRAL, NEMOTRON_MOE, QWEN3_NEXT

GPT = Architecture("gpt2", rope="none", norm="layer", activation="gelu", gate="none", positions=True)
LLAMA = Architecture(
    "llama", rope_factors="by_scaling", ffn_scales=True, experts=MIXTRAL
)  # Llama 1-3, Mistral, TinyLlama, SmolLM 1-2
NEOX = Architecture("gptneox", rope="neox", norm="layer", activation="gelu", gate="none")
QWEN2 = Architecture("qwen2", rope="neox")
QWEN3 = replace(QWEN2, name="qwen3", qk_norm="head", ffn_scales=True)
GEMMA = Architecture("gemma", rope="neox", activation="gelu", embedding_scale=embedding_root)
GRANITE = Architecture(
    "granite",
    rope_factors="by_scaling",
    rotates=if_finetuned,
    attention_scale=attention_scale_key,
    embedding_scale=key_scale("embedding_scale"),
    residual_scale=key_scale("residual_scale"),
    logit_scale=one_over(key_scale("logit_scale")),
    experts=GRANITE_MOE,
)
COMMAND_R = Architecture(
    "command-r", norm="layer", norms=SHARED, parallel="always", logit_scale=key_scale("logit_scale")
)

HUNYUAN = replace(
    QWEN2,
    name="hunyuan-dense",
    rope_sections="mrope",
    rope_alpha=True,
    qk_norm="head",
    qk_norm_after_rope=True,
)

LFM2 = Architecture(
    "lfm2",
    rope="neox",
    qk_norm="head",
    window=Window(0, rope_key=False),
    output_norm="token_embd_norm",
    recurrent="short_convolution",
    recurs=without_heads,
)
QWEN35 = Architecture(
    "qwen35",
    rope="neox",
    rope_sections="imrope",
    norms=Norms(ffn_before="post_attention_norm"),
    qk_norm="head",
    ffn_scales=True,
    attention_gate="behind",
    recurrent="delta_net",
    recurs=but_every_fourth,
    tiled_keys=True,
)

NEMOTRON_H = Architecture(
    "nemotron_h",
    rope="none",
    norms=Norms(ffn_before="attn_norm"),
    activation="relu2",
    gate="none",
    ffn_scales=True,
    recurrent="mamba2",
    recurs=without_heads_and_network,
)

ARCHITECTURES = {
    facts.name: facts
    for facts in (
        *EXPERT_FAMILIES,
        LLAMA,
        replace(LLAMA, name="mistral3", yarn_keys=True, temperature=True),
        replace(LLAMA, name="deci", ffn_scales=False, experts=None),
        Architecture("baichuan", rotates=baichuan_rotates, alibi=baichuan_alibi),
        Architecture("xverse"),
        Architecture("internlm2"),
        Architecture("ernie4_5", unused=("attn_output.bias",)),
        Architecture("arcee", rope_factors="freqs", activation="relu2", gate="none"),
        Architecture("smollm3", rotates=all_but_every_fourth),
        Architecture("maincoder", qk_norm="head", qk_norm_after_rope=True),
        Architecture("chatglm", gate="fused"),
        Architecture("glm4", rope_sections="mrope", norms=SANDWICH, gate="fused"),
        Architecture("olmo", norm="layer", norm_weights=False, clamp_qkv=True),
        Architecture(
            "refact",
            rope="none",
            alibi=constant(8.0),
            unused=("attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"),
        ),
        GRANITE,
        replace(GRANITE, name="granitemoe", rotates=always),
        replace(
            GRANITE,
            name="minicpm",
            rotates=always,
            attention_scale=key_length_root,
            embedding_scale=key_scale("embedding_scale", 12.0),
            residual_scale=minicpm_residual,
            logit_scale=minicpm_logits,
        ),
        replace(GRANITE, name="granite_swa", rotates=rope_pattern_key, window=Window(None, rope_key=False), sinks=True),
        replace(COMMAND_R, qk_norm="head", qk_norm_optional=True),
        replace(
            COMMAND_R,
            name="cohere2",
            ffn_scales=True,
            rotates=windowed_only,
            window=Window(4, rope_key=False),
        ),
        QWEN2,
        QWEN3,
        replace(QWEN2, name="qwen", ffn_half=True),
        replace(QWEN2, name="qwen2vl", rope_sections="mrope", unused=("output.bias",)),
        replace(QWEN3, name="qwen3vl", rope_sections="imrope", ffn_scales=False),
        replace(QWEN2, name="pangu-embedded"),
        Architecture("paddleocr", rope="neox", rope_sections="mrope"),
        replace(QWEN2, name="seed_oss", norms=Norms(ffn_before="post_attention_norm")),
        replace(QWEN2, name="exaone", rope_factors="freqs"),
        replace(
            QWEN2,
            name="exaone4",
            rope_factors="freqs",
            rotates=exaone4_rotates,
            norms=AFTER,
            qk_norm="head",
            window=Window(4, size=4096, blocks=64, rope_key=False),
        ),
        replace(
            QWEN2,
            name="olmo2",
            norms=AFTER,
            qk_norm="row",
            window=Window(4, rope_key=False, rope_scaling="none"),
        ),
        HUNYUAN,
        replace(HUNYUAN, name="hunyuan_vl"),
        replace(QWEN2, name="openelm", qk_norm="head"),
        replace(QWEN2, name="plamo", rope_whole_head=True, norms=SHARED, parallel="always"),
        replace(
            QWEN2,
            name="plamo3",
            norms=SANDWICH,
            qk_norm="head",
            gate="fused",
            window=Window(8, rope_base=10000.0, rope_scaling="magnitude"),
        ),
        replace(QWEN2, name="bitnet", sub_norms=True, ffn_scales=True, unused=("output.scale",)),
        replace(QWEN2, name="apertus", rope_factors="by_scaling", qk_norm="head", activation="xielu", gate="none"),
        replace(QWEN2, name="phi3", rope_factors="long_short", gate="fused"),
        GEMMA,
        replace(
            GEMMA,
            name="gemma2",
            norms=SANDWICH,
            attention_scale=gemma_attention(46),
            attn_softcap=50.0,
            final_softcap=30.0,
            window=Window(2, size=4096),
        ),
        replace(
            GEMMA,
            name="gemma3",
            norms=SANDWICH,
            qk_norm="head",
            attention_scale=gemma_attention(62),
            final_softcap=0.0,
            window=Window(6, rope_base=10000.0, rope_scaling="magnitude"),
        ),
        replace(
            GEMMA,
            name="gemma3n",
            norms=SANDWICH,
            qk_norm="head",
            v_norm=True,
            shared_keys=gemma3n_shared_keys,
            layer_inputs=gemma3n_layer_inputs,
            streams=True,
            sparsity=gemma3n_sparsity,
            attention_scale=one,
            final_softcap=30.0,
            window=Window(5, rope_base=10000.0, rope_scaling="magnitude"),
        ),
        replace(
            GEMMA,
            name="gemma4",
            rope_factors="freqs",
            norms=SANDWICH,
            qk_norm="head",
            v_norm=True,
            shared_keys=shared_keys_key,
            keys_as_values=True,
            layer_inputs=layer_inputs_key,
            output_scales=True,
            attention_scale=one,
            final_softcap=30.0,
            window=Window(None, rope_base=10000.0, rope_scaling="magnitude", rope_factors=False, own_heads=True),
            ffn_scales=True,
            experts=GEMMA4,
        ),
        replace(NEOX, parallel="use_parallel_residual"),
        replace(NEOX, name="phi2", norms=SHARED, parallel="always"),
        replace(NEOX, name="falcon", norms=FALCON, parallel="always"),
        replace(NEOX, name="starcoder2"),
        replace(NEOX, name="codeshell"),
        replace(NEOX, name="nemotron", activation="relu2"),
        replace(NEOX, name="jais2", activation="relu2"),
        replace(NEOX, name="orion", activation="silu", gate="split"),
        replace(
            NEOX,
            name="stablelm",
            activation="silu",
            gate="split",
            parallel="without_ffn_norm",
            qk_norm="head",
            qk_norm_optional=True,
        ),
        Architecture("mamba", rope="none", recurrent="mamba", feed_forward=False),
        Architecture("mamba2", rope="none", recurrent="mamba2", feed_forward=False),
        Architecture(
            "falcon-h1",
            rope="neox",
            unused=("attn_output.bias",),
            recurrent="mamba2",
            beside_attention=True,
        ),
        replace(GRANITE, name="granitehybrid", recurrent="mamba2", recurs=without_heads),
        LFM2,
        replace(LFM2, name="lfm2moe", window=None, experts=LFM2_MOE),
        QWEN35,
        replace(QWEN35, name="qwen35moe", experts=QWEN3_NEXT),
        replace(
            QWEN35,
            name="qwen3next",
            rope_sections="",
            ffn_scales=False,
            tiled_keys=False,
            recurrent_scales=False,
            experts=QWEN3_NEXT,
        ),
        Architecture(
            "plamo2",
            rope="neox",
            norms=SANDWICH,
            qk_norm="head",
            gate="fused",
            recurrent="plamo2",
            recurs=without_heads,
            recurrent_scales=False,
        ),
        Architecture("jamba", rope="none", recurrent="mamba", recurs=without_heads, experts=JAMBA),
        NEMOTRON_H,
        replace(NEMOTRON_H, name="nemotron_h_moe", experts=NEMOTRON_MOE),
        GPT,
        replace(GPT, name="starcoder"),
        replace(
            GPT, name="mpt", alibi=alibi_key, clamp_qkv=True, qk_norm="row", qk_norm_optional=True, act_scales=True
        ),
        replace(GPT, name="bloom", positions=False, alibi=constant(8.0), embedding_norm=True),
        replace(
            GPT,
            name="jais",
            positions=False,
            alibi=alibi_key,
            attention_scale=jais_attention,
            activation="silu",
            gate="split",
        ),
    )
}


def architecture_of(config: ModelConfig) -> Architecture:
    """The facts for a file. UnsupportedModelError names what this engine does not have."""
    facts = ARCHITECTURES.get(config.architecture)
    if facts is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{config.keys.where}general.architecture: expected one of {known}; found {config.architecture!r}"
        )
    return facts
