"""A toy model whose blocks remember: attention and a state space side by side (falcon-h1), its matrices in Q8_0.

Products with quantized matrices are the same bits in any batch, so that whatever is read in whatever pieces can be
compared bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from support import gguf_files, tiny_model
from support.gguf_files import Q8_0, Tensor

EMBEDDING, FEED_FORWARD, HEADS, KV_HEADS, HEAD, BLOCKS = 64, 96, 4, 2, 16, 2
INNER, STATE, STATE_HEADS, GROUPS, TAPS = 96, 16, 6, 2, 4
XBC = INNER + 2 * GROUPS * STATE


def quantized(name: str, values: np.ndarray) -> Tensor:
    """The matrix [outputs, inputs] in Q8_0: blocks of a scale and 32 codes."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / scales.astype(np.float32)).astype(np.int8)
    data = np.concatenate((scales.view(np.uint8), codes.view(np.uint8)), axis=1)
    return Tensor(name, values.shape[::-1], Q8_0, data.tobytes())


def tensors(vocabulary: int, seed: int = 11) -> list[Tensor]:
    random = np.random.default_rng(seed)
    matrices = {"token_embd": (vocabulary, EMBEDDING)}
    vectors: dict[str, np.ndarray] = {"output_norm.weight": np.ones(EMBEDDING, np.float32)}
    for block in range(BLOCKS):
        blk = f"blk.{block}"
        matrices |= {
            f"{blk}.attn_q": (HEADS * HEAD, EMBEDDING),
            f"{blk}.attn_k": (KV_HEADS * HEAD, EMBEDDING),
            f"{blk}.attn_v": (KV_HEADS * HEAD, EMBEDDING),
            f"{blk}.attn_output": (EMBEDDING, HEADS * HEAD),
            f"{blk}.ssm_in": (INNER + XBC + STATE_HEADS, EMBEDDING),
            f"{blk}.ssm_out": (EMBEDDING, INNER),
            f"{blk}.ffn_gate": (FEED_FORWARD, EMBEDDING),
            f"{blk}.ffn_up": (FEED_FORWARD, EMBEDDING),
            f"{blk}.ffn_down": (EMBEDDING, FEED_FORWARD),
        }
        vectors |= {
            f"{blk}.attn_norm.weight": np.ones(EMBEDDING, np.float32),
            f"{blk}.ffn_norm.weight": np.ones(EMBEDDING, np.float32),
            f"{blk}.ssm_norm.weight": np.ones((GROUPS, INNER // GROUPS), np.float32),
            f"{blk}.ssm_conv1d.weight": random.normal(0, 0.5, (XBC, TAPS)).astype(np.float32),
            f"{blk}.ssm_conv1d.bias": random.normal(0, 0.1, XBC).astype(np.float32),
            f"{blk}.ssm_dt.bias": random.normal(-1, 0.5, STATE_HEADS).astype(np.float32),
            f"{blk}.ssm_a": -np.exp(random.normal(-1, 1, (STATE_HEADS, 1))).astype(np.float32),
            f"{blk}.ssm_d": random.normal(0, 0.3, (STATE_HEADS, 1)).astype(np.float32),
        }
    written = [quantized(f"{name}.weight", random.normal(0, 0.3, shape)) for name, shape in matrices.items()]
    return written + [Tensor.of(name, values) for name, values in vectors.items()]


def metadata(**changes: Any) -> dict[str, Any]:
    """The tiny model's, with its tokens, under this architecture's name."""
    sizes = {
        "embedding_length": EMBEDDING,
        "block_count": BLOCKS,
        "feed_forward_length": FEED_FORWARD,
        "attention__head_count": HEADS,
        "attention__head_count_kv": KV_HEADS,
        "ssm__inner_size": INNER,
        "ssm__state_size": STATE,
        "ssm__time_step_rank": STATE_HEADS,
        "ssm__group_count": GROUPS,
        "ssm__conv_kernel": TAPS,
    }
    keys = tiny_model.metadata(**(sizes | changes))
    keys = {key.replace("llama.", "falcon-h1."): value for key, value in keys.items()}
    return keys | {"general.architecture": "falcon-h1"}


def write(path: Path, **changes: Any) -> Path:
    keys = metadata(**changes)
    path.write_bytes(gguf_files.build(keys, tensors(len(keys["tokenizer.ggml.tokens"]))))
    return path
