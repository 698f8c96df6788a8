"""Records what llama.cpp answers to the models of specs.json: logits.npz.

    python record.py        (needs numpy, gguf and llama-cpp-python)

These are other shapes than those of ../archs. Of families whose layers remember: sizes of states and heads, groups,
widths of convolutions, patterns of layers, keys and tensors that a file may have or not. Of families with experts or
latent attention: how many there are and are chosen, in sections, by which gating, what is shared, biased and scaled,
queries and keys in all their forms, YaRN. Each has its own seed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "archs"))
import toy_models  # noqa: E402 - it lies in the other folder

TOKENS = toy_models.tokens(32)


def logits(path: Path) -> np.ndarray:
    """float32 [tokens, vocabulary]: all at once, with K and V in float32 and no flash attention."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 256, 64, 64
    params.type_k = params.type_v = 0
    params.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, token in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError(f"{path}: llama.cpp cannot decode")
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [llama_cpp.llama_get_logits_ith(context, i) for i in range(len(TOKENS))]
    return np.stack([np.ctypeslib.as_array(row, (size,)).copy() for row in rows])


if __name__ == "__main__":
    recorded = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, spec in json.loads((HERE / "specs.json").read_text(encoding="utf-8")).items():
            toy_models.write(f"{folder}/{name}.gguf", spec, spec["seed"])
            recorded[name] = logits(Path(folder, f"{name}.gguf"))
    np.savez_compressed(HERE / "logits.npz", **recorded)
