"""Records logits.npz: what llama.cpp answers to the toy models, in float32 and without flash attention.

    python record.py FOLDER [NAME ...]

writes the models into the folder (needs numpy and gguf) and asks llama-cpp-python, of the interpreter LLAMA_PYTHON or
this one, in a process for each: a model that it refuses may end the process. Names add to what is there already.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import toys

HERE = Path(__file__).resolve().parent
CONTEXT = 256


def write(folder: Path, name: str) -> Path:
    sys.path.append(str(HERE.parent / "archs"))
    import toy_models

    path = folder / f"{name}.gguf"
    toy_models.write(str(path), toys.TOYS[name].spec(), toys.seed_of(name))
    return path


def answer(path: str, out: str) -> None:
    """float32 [tokens, vocabulary]"""
    import llama_cpp as llama

    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx = CONTEXT
    params.type_k = params.type_v = 0  # float32
    params.flash_attn_type = 0
    context = llama.llama_init_from_model(model, params)
    ids, vocabulary = toys.tokens(), llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, id in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = id, i, 1, 1
        batch.seq_id[i][0] = 0
    if llama.llama_decode(context, batch):
        sys.exit(f"{path}: not evaluated")
    rows = [np.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (vocabulary,)) for i in range(len(ids))]
    np.save(out, np.stack(rows))


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer(*sys.argv[2:])
        sys.exit()
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(toys.TOYS)
    recorded = dict(np.load(HERE / "logits.npz")) if (HERE / "logits.npz").exists() else {}
    for name in names:
        out = folder / f"{name}.npy"
        command = [
            os.environ.get("LLAMA_PYTHON", sys.executable),
            __file__,
            "--answer",
            str(write(folder, name)),
            str(out),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(name, done.stderr[-300:])
            continue
        recorded[name] = np.load(out)
    np.savez_compressed(HERE / "logits.npz", **{name: recorded[name] for name in toys.TOYS if name in recorded})
