"""Toy models of dense decoders, each with some key, tensor or shape that its family reads in a way of its own.

logits.npz has llama.cpp's answer to each (record.py makes it), to which the engine's has to be equal.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.variants import LLAMA, NEOX, QKV, SWIGLU, Toy


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def tokens(count: int = 24, vocabulary: int = 64) -> list[int]:
    return np.random.default_rng(3).integers(0, vocabulary, count).tolist()


TIED = LLAMA.removesuffix(" output")
GEMMA2 = f"attn_norm {QKV} attn_output post_attention_norm ffn_norm {SWIGLU} post_ffw_norm | output_norm"
GEMMA3 = GEMMA2.replace("attn_output", "attn_q_norm attn_k_norm attn_output")
W = {"attention.sliding_window": 5}
QN = LLAMA.replace("attn_output", "attn_q_norm attn_k_norm attn_output")
OLMO2 = (
    f"{QKV} attn_q_norm/row attn_k_norm/row attn_output post_attention_norm {SWIGLU} post_ffw_norm | output_norm output"
)
EXA4 = OLMO2.replace("/row", "")
COH = f"attn_norm {QKV} attn_output {SWIGLU} | output_norm"
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
GLM4 = GEMMA2.replace(SWIGLU, "ffn_up*2 ffn_down") + " output"
PHI3 = "attn_norm attn_qkv attn_output ffn_norm ffn_up*2 ffn_down | output_norm"
BITNET = (
    f"attn_norm {QKV} attn_sub_norm attn_output ffn_norm {SWIGLU} ffn_sub_norm "
    "attn_q.scale attn_output.scale ffn_up.scale ffn_down.scale | output_norm"
)
TOYS = {
    "llama-mqa": Toy("llama", kv_heads=1),
    "llama-mha": Toy("llama", kv_heads=4, value=16),
    "llama-tied-scale": Toy("llama", TIED),
    "llama-linear": Toy("llama", keys={"rope.scaling.type": "linear", "rope.scaling.factor": 3.0}),
    "llama-old-linear": Toy("llama", keys={"rope.scale_linear": 3.0}),
    "llama-none-factor": Toy("llama", keys={"rope.scaling.type": "none", "rope.scaling.factor": 3.0}),
    "llama-attn-factor": Toy("llama", keys=YARN | {"rope.scaling.attn_factor": 1.3}),
    "llama-yarn-keys-ignored": Toy(
        "llama", keys=YARN | {"rope.scaling.yarn_beta_fast": 5.0, "rope.scaling.yarn_log_multiplier": 0.5}
    ),
    "llama-ignored": Toy(
        "llama",
        keys={
            "attention.sliding_window": 3,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 2.0,
            "logit_scale": 3.0,
            "residual_scale": 0.3,
            "embedding_scale": 3.0,
            "attention.scale": 0.9,
            "attention.clamp_kqv": 0.1,
            "attention.max_alibi_bias": 8.0,
            "use_parallel_residual": True,
            "rope.dimension_sections": [2, 2, 2, 2],
            "rope.freq_base_swa": 77.0,
            "rope.scaling.alpha": 3.0,
            "rope.scaling.finetuned": False,
            "attention.temperature_scale": 0.5,
        },
    ),
    "llama-longrope": Toy(
        "llama",
        LLAMA + " rope_factors_long rope_factors_short",
        keys={"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.2},
    ),
    "llama-longrope-long": Toy(
        "llama",
        LLAMA + " rope_factors_long rope_factors_short",
        keys={
            "rope.scaling.type": "longrope",
            "rope.scaling.attn_factor": 1.2,
            "rope.scaling.original_context_length": 64,
        },
    ),
    "llama-qkv-fused": Toy("llama", LLAMA.replace(QKV, "attn_qkv+")),
    "llama-qkv-fused-biases-apart": Toy(
        "llama",
        LLAMA.replace(QKV, "attn_qkv"),
        more=tuple((f"blk.{i}.attn_{n}.bias", [s]) for i in range(3) for n, s in (("q", 64), ("k", 32), ("v", 32))),
    ),
    "llama-head-count-default-kv": Toy(
        "llama",
        kv_heads=4,
        keys={
            "attention.head_count_kv": None,
            "attention.key_length": None,
            "attention.value_length": None,
            "rope.dimension_count": None,
        },
    ),
    "llama-headsize40": Toy("llama", key=40, value=40, heads=4, kv_heads=2),
    "llama-base": Toy("llama", keys={"rope.freq_base": 500000.0, "attention.layer_norm_rms_epsilon": 1e-3}),
    "llama-odd": Toy("llama", embedding=40, heads=5, kv_heads=1, key=8, value=8, width=56, blocks=2),
    "gpt2-odd": Toy(
        "gpt2",
        (NEOX.removesuffix(" output") + " position_embd"),
        embedding=72,
        heads=3,
        kv_heads=3,
        key=24,
        value=24,
        width=104,
        vocabulary=67,
    ),
    "gemma3-odd": Toy(
        "gemma3",
        GEMMA3,
        keys=W | {"final_logit_softcapping": 4.0},
        blocks=2,
        embedding=40,
        heads=6,
        kv_heads=3,
        key=8,
        value=8,
        width=24,
        vocabulary=71,
    ),
    "mistral3-temp": Toy(
        "mistral3",
        keys=YARN
        | {
            "attention.temperature_scale": 0.3,
            "rope.scaling.yarn_beta_fast": 4.0,
            "rope.scaling.yarn_beta_slow": 2.0,
            "rope.scaling.yarn_log_multiplier": 0.7,
        },
    ),
    "mistral3-scales": Toy(
        "mistral3", LLAMA.replace("ffn_down", "ffn_down+ ffn_down.scale ffn_up.scale attn_q.scale attn_output.scale")
    ),
    "qwen2-partial": Toy("qwen3", QN, keys={"rope.dimension_count": 16}),
    "qwen2-tied-bias": Toy("qwen2", TIED, more=(("output.bias", [64]),)),
    "qwen2-scales": Toy(
        "qwen2",
        LLAMA.replace("ffn_down", "ffn_down ffn_down.scale ffn_up.scale attn_q.scale attn_output.scale ffn_gate.scale"),
    ),
    "qwen2-yarn": Toy("qwen2", keys=YARN),
    "qwen3-scales": Toy("qwen3", QN.replace("ffn_down", "ffn_down ffn_down.scale ffn_up.scale attn_k.scale")),
    "qwen3-tied": Toy("qwen3", QN.removesuffix(" output")),
    "qwen2vl": Toy("qwen2vl", keys={"rope.dimension_sections": [2, 3, 3, 0]}),
    "qwen2vl-four": Toy("qwen2vl", keys={"rope.dimension_sections": [1, 2, 1, 2]}),
    "qwen3vl": Toy("qwen3vl", QN, keys={"rope.dimension_sections": [3, 3, 2, 0]}),
    "qwen3vl-b": Toy("qwen3vl", QN, keys={"rope.dimension_sections": [4, 2, 2, 1]}),
    "gemma-mqa": Toy("gemma", TIED, kv_heads=1, key=32, value=32),
    "gemma2-odd": Toy("gemma2", GEMMA2, keys=W, blocks=5),
    "gemma2-defaults": Toy("gemma2", GEMMA2, blocks=3),
    "gemma2-caps": Toy(
        "gemma2",
        GEMMA2,
        keys=W | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0, "rope.freq_base_swa": 100.0},
    ),
    "gemma2-pattern3": Toy("gemma2", GEMMA2, keys=W | {"attention.sliding_window_pattern": 3}, blocks=7),
    "gemma2-array": Toy("gemma2", GEMMA2, keys=W | {"attention.sliding_window_pattern": [False, True, True]}, blocks=3),
    "gemma2-linear": Toy("gemma2", GEMMA2, keys=W | {"rope.scaling.factor": 4.0}),
    "gemma3-7": Toy("gemma3", GEMMA3, keys=W, blocks=7),
    "gemma3-nowindow": Toy("gemma3", GEMMA3, blocks=7),
    "gemma3-linear": Toy(
        "gemma3",
        GEMMA3,
        keys=W
        | {
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "rope.freq_base": 1000000.0,
            "final_logit_softcapping": 4.0,
        },
        blocks=7,
    ),
    "gemma3-yarn": Toy(
        "gemma3", GEMMA3, keys=W | YARN | {"rope.scaling.attn_factor": 1.2, "rope.freq_base_swa": 500.0}, blocks=7
    ),
    "gemma3-output": Toy("gemma3", GEMMA3 + " output", keys=W, blocks=6, key=24, value=24),
    "phi2-gqa": Toy(
        "phi2",
        "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_up+ ffn_down+ | output_norm+ output+",
        keys={"rope.dimension_count": 6},
    ),
    "phi2-fused": Toy("phi2", "attn_norm+ attn_qkv+ attn_output+ ffn_up+ ffn_down+ | output_norm+ output+"),
    "phi3-long": Toy(
        "phi3",
        PHI3 + " output rope_factors_long rope_factors_short",
        keys={
            "rope.scaling.attn_factor": 1.19,
            "rope.scaling.original_context_length": 64,
            "attention.sliding_window": 4,
        },
    ),
    "phi3-nofactors": Toy("phi3", PHI3),
    "smollm3-6": Toy("smollm3", blocks=9),
    "granite-scales": Toy(
        "granite", keys={"logit_scale": 8.0, "residual_scale": 0.22, "embedding_scale": 12.0, "attention.scale": 0.05}
    ),
    "granite-norope": Toy("granite", TIED, keys={"logit_scale": 8.0, "rope.scaling.finetuned": False}),
    "granite-bias": Toy(
        "granite",
        LLAMA.replace("attn_output", "attn_output+").replace("ffn_down", "ffn_down+ ffn_down.scale"),
        keys={"logit_scale": 2.0, "residual_scale": 0.3},
    ),
    "minicpm-defaults": Toy("minicpm", blocks=4),
    "minicpm-keys": Toy(
        "minicpm", keys={"logit_scale": 3.0, "residual_scale": 0.3, "embedding_scale": 2.0, "attention.scale": 0.3}
    ),
    "granite_swa": Toy(
        "granite_swa",
        LLAMA.replace("attn_output", "attn_output attn_sinks"),
        keys={
            "logit_scale": 2.0,
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, False, True],
            "attention.rope_pattern": [1, 0, 1],
        },
    ),
    "olmo2-full": Toy("olmo2", OLMO2),
    "olmo2-window": Toy(
        "olmo2", OLMO2, keys=W | YARN | {"rope.scaling.attn_factor": 1.2, "rope.freq_base_swa": 77.0}, blocks=5
    ),
    "exaone4-64": Toy("exaone4", EXA4, keys=W, blocks=64, embedding=32, heads=2, kv_heads=1, width=32),
    "exaone4-64-default": Toy("exaone4", EXA4, blocks=64, embedding=32, heads=2, kv_heads=1, width=32),
    "exaone4-30": Toy("exaone4", EXA4.removesuffix(" output"), keys=W, blocks=3),
    "command-r": Toy("command-r", COH, keys={"logit_scale": 0.0625}),
    "command-r-nologit": Toy("command-r", COH),
    "command-r-64": Toy(
        "command-r",
        COH.replace("attn_output", "attn_q_norm/heads attn_k_norm/heads attn_output"),
        blocks=64,
        embedding=64,
        heads=4,
        kv_heads=2,
        width=32,
        keys={"logit_scale": 0.5},
    ),
    "cohere2-7": Toy("cohere2", COH, keys=W | {"logit_scale": 0.25, "rope.freq_base_swa": 77.0}, blocks=7),
    "cohere2-scales": Toy(
        "cohere2",
        COH.replace("ffn_down", "ffn_down ffn_up.scale ffn_down.scale"),
        keys=W | {"logit_scale": 0.25},
        blocks=3,
    ),
    "glm4-norm": Toy(
        "glm4",
        GLM4,
        keys={"rope.dimension_count": 8},
    ),
    "glm4-mrope": Toy(
        "glm4",
        GLM4.removesuffix(" output"),
        keys={"rope.dimension_sections": [2, 1, 1, 3]},
    ),
    "glm4-nextn": Toy(
        "glm4",
        GLM4,
        keys={"nextn_predict_layers": 1},
        more=(
            ("blk.2.nextn.eh_proj.weight", [128, 64]),
            ("blk.2.nextn.enorm.weight", [64]),
            ("blk.2.nextn.hnorm.weight", [64]),
        ),
    ),
    "starcoder2": Toy(
        "starcoder2", "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ ffn_up+ ffn_down+ | output_norm+"
    ),
    "stablelm": Toy(
        "stablelm",
        f"attn_norm+ {QKV} attn_output ffn_norm+ {SWIGLU} | output_norm+ output",
        keys={"rope.dimension_count": 4},
    ),
    "stablelm-parallel": Toy(
        "stablelm", f"attn_norm+ {QKV} attn_q_norm/heads attn_k_norm/heads attn_output {SWIGLU} | output_norm+ output"
    ),
    "stablelm-bias": Toy(
        "stablelm", f"attn_norm+ attn_q+ attn_k+ attn_v+ attn_output ffn_norm+ {SWIGLU} | output_norm+ output"
    ),
    "falcon-7b": Toy("falcon", "attn_norm+ attn_qkv attn_output ffn_up ffn_down | output_norm+", kv_heads=1),
    "falcon-40b": Toy("falcon", "attn_norm+ attn_norm_2+ attn_qkv attn_output ffn_up ffn_down | output_norm+ output"),
    "gpt2": Toy("gpt2", (NEOX.removesuffix(" output") + " position_embd"), kv_heads=4),
    "gpt2-gqa": Toy("gpt2", NEOX + " position_embd"),
    "starcoder": Toy("starcoder", (NEOX.removesuffix(" output") + " position_embd"), kv_heads=1),
    "mpt-plain": Toy(
        "mpt",
        "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down | output_norm",
        kv_heads=4,
        keys={"attention.max_alibi_bias": 8.0},
    ),
    "mpt-12heads": Toy(
        "mpt",
        "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down | output_norm",
        embedding=96,
        heads=6,
        kv_heads=6,
        keys={"attention.max_alibi_bias": 4.0, "attention.clamp_kqv": 0.7},
    ),
    "bloom": Toy("bloom", NEOX + " token_embd_norm+", embedding=96, heads=6, kv_heads=6),
    "internlm2": Toy("internlm2", kv_heads=1),
    "nemotron-nobias": Toy(
        "nemotron",
        f"attn_norm+ {QKV} attn_output ffn_norm+ ffn_up ffn_down | output_norm+ output",
        keys={"rope.dimension_count": 8},
    ),
    "seed_oss": Toy(
        "seed_oss",
        f"attn_norm attn_q+ attn_k+ attn_v+ attn_output post_attention_norm {SWIGLU} | output_norm",
        key=32,
        value=32,
    ),
    "hunyuan-dense": Toy(
        "hunyuan-dense", QN, keys={"expert_count": 1, "expert_used_count": 1, "rope.scaling.alpha": 1000.0}
    ),
    "hunyuan_vl": Toy("hunyuan_vl", QN, keys={"rope.dimension_sections": [2, 2, 2, 2]}),
    "baichuan-32": Toy("baichuan", blocks=32, embedding=32, heads=2, kv_heads=2, width=32),
    "baichuan-40": Toy("baichuan", blocks=40, embedding=64, heads=4, kv_heads=4, width=32),
    "xverse": Toy("xverse"),
    "qwen": Toy(
        "qwen",
        f"attn_norm attn_qkv+ attn_output ffn_norm {SWIGLU} | output_norm output",
        kv_heads=4,
        width=96,
        keys={"feed_forward_length": 192},
    ),
    "gptneox-parallel": Toy(
        "gptneox", NEOX, kv_heads=4, keys={"use_parallel_residual": True, "rope.dimension_count": 4}
    ),
    "gptneox-serial": Toy("gptneox", NEOX, kv_heads=4, keys={"use_parallel_residual": False}),
    "codeshell": Toy(
        "codeshell", "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+ | output_norm+ output"
    ),
    "codeshell-once": Toy(
        "codeshell",
        "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+ | output_norm+ output",
        without=("token_embd.weight",),
    ),
    "orion": Toy("orion", f"attn_norm+ {QKV} attn_output ffn_norm+ {SWIGLU} | output_norm+ output"),
    "olmo": Toy("olmo", f"{QKV} attn_output {SWIGLU} | ", keys={"attention.clamp_kqv": 0.8}),
    "olmo-noclamp": Toy("olmo", f"{QKV} attn_output {SWIGLU} | output"),
    "arcee": Toy("arcee", f"attn_norm {QKV} attn_output ffn_norm ffn_up ffn_down | output_norm rope_freqs"),
    "ernie4_5": Toy("ernie4_5", LLAMA.replace("attn_output", "attn_output+")),
    "paddleocr": Toy("paddleocr", keys={"rope.dimension_sections": [2, 3, 3, 0]}),
    "apertus": Toy(
        "apertus",
        f"attn_norm {QKV} attn_q_norm attn_k_norm attn_output ffn_norm ffn_up ffn_down | output_norm output rope_freqs",
        keys={
            "xielu.alpha_n": [0.3, 0.5, 0.9],
            "xielu.alpha_p": [0.5, 0.6, 0.8],
            "xielu.beta": [0.5, 0.4, 0.3],
            "xielu.eps": [-1e-6, -1e-6, -0.1],
        },
    ),
    "exaone": Toy("exaone", TIED + " rope_freqs"),
    "deci": Toy("deci", blocks=4, heads=[4, 4, 0, 4], kv_heads=[2, 0, 0, 4], width=[96, 64, 32, 96]),
    "plamo": Toy("plamo", f"attn_norm {QKV} attn_output {SWIGLU} | output_norm output"),
    "refact": Toy("refact", LLAMA.replace("attn_output", "attn_output+").replace("ffn_down", "ffn_down+"), kv_heads=1),
    "jais": Toy(
        "jais",
        "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_gate+ ffn_up+ ffn_down+ | output_norm+ output",
        kv_heads=4,
        keys={"attention.max_alibi_bias": 8.0},
    ),
    "jais2": Toy("jais2", "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ ffn_up+ ffn_down+ | output_norm+"),
    "chatglm": Toy(
        "chatglm",
        "attn_norm attn_qkv+ attn_output ffn_norm ffn_up*2 ffn_down | output_norm output",
        keys={"rope.dimension_count": 8},
    ),
    "bitnet": Toy("bitnet", BITNET),
    "openelm": Toy(
        "openelm",
        f"attn_norm attn_qkv attn_q_norm attn_k_norm attn_output ffn_norm {SWIGLU} | output_norm",
        heads=[2, 4, 6],
        kv_heads=[1, 2, 3],
        width=[64, 96, 128],
        blocks=3,
    ),
    "maincoder": Toy("maincoder", QN),
    "plamo3": Toy(
        "plamo3",
        "attn_norm attn_qkv attn_q_norm attn_k_norm attn_output ffn_norm ffn_up*2 ffn_down | output_norm",
        keys=W,
        blocks=9,
        more=tuple((f"blk.{i}.{n}", [64]) for i in range(9) for n in ("post_attention_norm", "post_ffw_norm")),
    ),
    "pangu-embedded": Toy(
        "pangu-embedded", LLAMA.replace(QKV, "attn_q+ attn_k+ attn_v+").replace("attn_output", "attn_output+")
    ),
}
