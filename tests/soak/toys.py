"""The toy models of tests/golden/archs with a vocabulary that can chat: 126 bytes and the two marks of a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support import gguf_files
from support.golden import toy_models, toy_specs
from support.tiny_model import CONTROL, END, NORMAL, START, TEMPLATE, byte_tokens

BYTES = 126
CONTEXT = 512


def write(folder: Path, name: str) -> Path:
    """Writes the toy of this name (see specs.json) as one that answers, with other lengths of context."""
    spec = toy_specs()[name]
    metadata: dict[str, Any] = {}
    for key, kinds, value in spec["kv"]:
        if kinds[0] == "ARRAY":
            metadata[key] = gguf_files.Raw(gguf_files.array(getattr(gguf_files, kinds[-1]), value))
        else:
            metadata[key] = gguf_files.Typed(getattr(gguf_files, kinds[0]), value)
    architecture = next(value for key, _, value in spec["kv"] if key == "general.architecture")
    metadata[f"{architecture}.context_length"] = CONTEXT
    metadata |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*byte_tokens()[:BYTES], START, END],
        "tokenizer.ggml.token_type": np.array([NORMAL] * BYTES + [CONTROL] * 2, np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": BYTES,
        "tokenizer.ggml.eos_token_id": BYTES + 1,
        "tokenizer.chat_template": TEMPLATE,
    }
    tensors = []
    for tensor, shape, kind in spec["tensors"]:
        values = toy_models().weights(tensor, tuple(reversed(shape)), spec.get("seed", 1))
        tensors.append(gguf_files.Tensor.of(tensor, values.astype(np.float16 if kind == "F16" else np.float32)))
    path = folder / f"{name}.gguf"
    path.write_bytes(gguf_files.build(metadata, tensors))
    return path
