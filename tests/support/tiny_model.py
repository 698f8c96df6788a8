"""A model of a few kilobytes that runs: random float32 weights, one token per byte, a chat template of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from support import gguf_files
from support.gguf_files import Tensor

EMBEDDING, FEED_FORWARD, HEADS, KV_HEADS, BLOCKS = 64, 96, 4, 2, 2
START, END = "<|im_start|>", "<|im_end|>"
NORMAL, CONTROL = 1, 3  # token types
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokens() -> list[str]:
    """The 256 one-byte tokens as byte-level BPE writes them, in byte order."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def metadata(template: str | None = TEMPLATE, **changes: Any) -> dict[str, Any]:
    """Everything the file says but its tensors; `changes` as in `llama_metadata`."""
    tokens = [*byte_tokens(), START, END]
    kinds = np.array([NORMAL] * 256 + [CONTROL] * 2, np.int32)
    keys = gguf_files.llama_metadata(vocab_size=len(tokens), **changes)
    keys |= {
        "general.name": "Tiny",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.bos_token_id": 256,
    }
    return keys if template is None else keys | {"tokenizer.chat_template": template}


def tensors(vocabulary: int = 258, seed: int = 5) -> list[Tensor]:
    """Random weights, the same for the same seed."""
    random = np.random.default_rng(seed)
    heads = EMBEDDING // HEADS
    shapes = {"token_embd": (vocabulary, EMBEDDING)}
    for block in range(BLOCKS):
        shapes |= {
            f"blk.{block}.attn_q": (EMBEDDING, EMBEDDING),
            f"blk.{block}.attn_k": (KV_HEADS * heads, EMBEDDING),
            f"blk.{block}.attn_v": (KV_HEADS * heads, EMBEDDING),
            f"blk.{block}.attn_output": (EMBEDDING, EMBEDDING),
            f"blk.{block}.ffn_gate": (FEED_FORWARD, EMBEDDING),
            f"blk.{block}.ffn_up": (FEED_FORWARD, EMBEDDING),
            f"blk.{block}.ffn_down": (EMBEDDING, FEED_FORWARD),
        }
    norms = ["output_norm", *(f"blk.{block}.{name}_norm" for block in range(BLOCKS) for name in ("attn", "ffn"))]
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {name: np.ones(EMBEDDING, np.float32) for name in norms}
    return [Tensor.of(f"{name}.weight", values) for name, values in weights.items()]


def write(
    path: Path, template: str | None = TEMPLATE, *, without: Collection[str] = (), extra: Any = (), **changes: Any
) -> Path:
    """Writes a model file. `without`: tensors left out. `extra`: more metadata, by whole key."""
    kept = [tensor for tensor in tensors() if tensor.name not in without]
    path.write_bytes(gguf_files.build(metadata(template, **changes) | dict(extra), kept))
    return path
