"""llama.cpp as an oracle, in a process of its own: by llama-cpp-python, which may belong to another Python.

python llamacpp.py          reads requests as JSON lines, answers likewise
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

WITHOUT_LLAMACPP = (
    "llama-cpp-python is not installed (pip install '.[bench]'), and TINYLLM_LLAMACPP names no Python that has it"
)


def oracle_python() -> str | None:
    """A Python interpreter with llama-cpp-python, if there is one."""
    named = os.environ.get("TINYLLM_LLAMACPP")
    return named or (sys.executable if importlib.util.find_spec("llama_cpp") else None)


class LlamaCpp:
    """Asks the other process; usable as a context manager."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def tokenize(self, vocabulary: Path, texts: list[str], parse_special: bool = False) -> list[list[int]]:
        """Ids of each text, without BOS and EOS."""
        return self._ask({"do": "tokenize", "path": str(vocabulary), "texts": texts, "special": parse_special})

    def format(self, name: str, messages: list[tuple[str, str]], answering: bool = True) -> str | None:
        """A conversation in one of its own chat formats; None for a name that it does not know."""
        return self._ask({"do": "format", "name": name, "messages": messages, "answering": answering})

    def logits(self, model: Path, ids: list[int], adapter: Path, scale: float) -> NDArray[np.float32]:
        """[tokens, vocabulary] after each id, of the model with a LoRA adapter, with a cache in float32."""
        request = {"do": "logits", "path": str(model), "ids": ids, "adapter": str(adapter), "scale": scale}
        return np.array(self._ask(request), np.float32)

    def walks(self, vocabulary: Path, grammar: str, seeds: int, length: int) -> list[list[tuple[list[int], int]]]:
        """Random walks through what a grammar allows: for each step the tokens that may come, and the one taken."""
        request = {"do": "walks", "path": str(vocabulary), "grammar": grammar, "seeds": seeds, "length": length}
        return self._ask(request)

    def _ask(self, request: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp ended at {str(request)[:200]}")
        return json.loads(line)

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _serve() -> None:
    import llama_cpp

    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints
    models: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "tokenize":
            path = request["path"]
            if path not in models:
                models.clear()
                models[path] = llama_cpp.Llama(path, vocab_only=True, verbose=False)
            encode = models[path].tokenize
            answer: Any = [
                encode(text.encode(), add_bos=False, special=request["special"]) for text in request["texts"]
            ]
        elif request["do"] == "walks":
            answer = _walks(llama_cpp, request)
        elif request["do"] == "logits":
            answer = _logits(llama_cpp, request)
        else:
            answer = _format(llama_cpp, request)
        output.write(json.dumps(answer) + "\n")
        output.flush()


def _walks(llama_cpp: Any, request: dict[str, Any]) -> list[list[tuple[list[int], int]]]:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(request["path"].encode(), params)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, request["grammar"].encode(), b"root")
    if not sampler:
        raise RuntimeError(f"llama.cpp cannot read {request['grammar']!r}")
    return [_walk(llama_cpp, vocabulary, sampler, seed, request["length"]) for seed in range(request["seeds"])]


def _walk(llama_cpp: Any, vocabulary: Any, sampler: Any, seed: int, length: int) -> list[tuple[list[int], int]]:
    import ctypes

    random, steps = Random(seed), []
    size = llama_cpp.llama_vocab_n_tokens(vocabulary)
    llama_cpp.llama_sampler_reset(sampler)
    for _ in range(length):
        tokens = (llama_cpp.llama_token_data * size)(*(llama_cpp.llama_token_data(id, 0.0, 0.0) for id in range(size)))
        array = llama_cpp.llama_token_data_array(tokens, size, -1, False)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        allowed = [token.id for token in tokens if token.logit == 0.0]
        taken = random.choice(allowed)
        steps.append((allowed, taken))
        if llama_cpp.llama_vocab_is_eog(vocabulary, taken):
            break
        llama_cpp.llama_sampler_accept(sampler, taken)
    return steps


def _logits(llama_cpp: Any, request: dict[str, Any]) -> list[list[float]]:
    f32 = llama_cpp.GGML_TYPE_F32
    model = llama_cpp.Llama(
        request["path"],
        n_ctx=256,
        logits_all=True,
        type_k=f32,
        type_v=f32,
        lora_path=request["adapter"],
        lora_scale=request["scale"],
        verbose=False,
    )
    model.eval(request["ids"])
    return model.scores[: len(request["ids"])].tolist()


def _format(llama_cpp: Any, request: dict[str, Any]) -> str | None:
    import ctypes

    pairs = [llama_cpp.llama_chat_message(role=r.encode(), content=c.encode()) for r, c in request["messages"]]
    buffer = ctypes.create_string_buffer(1 << 16)
    messages = (llama_cpp.llama_chat_message * len(pairs))(*pairs)
    length = llama_cpp.llama_chat_apply_template(
        request["name"].encode(), messages, len(pairs), request["answering"], buffer, len(buffer)
    )
    return None if length < 0 else buffer.raw[:length].decode()


if __name__ == "__main__":
    _serve()
