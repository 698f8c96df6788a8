"""One thing that is measured, in a process of its own, told on standard input what to do.

    python benchmarks/worker.py tinyllm-chat|llama.cpp|ik_llama.cpp MODEL THREADS CONTEXT
    python benchmarks/worker.py machine THREADS

It answers in JSON, a line for each line. First comes what it is: {"version": ...}, or {"absent": why}. An engine then
answers with the seconds that an order took: {"value": 0.25}.

    prefill N    N tokens into an empty cache
    decode N     N tokens one by one, behind what is in the cache
    clear        an empty cache

The machine answers with GB/s to `read`, and with GFLOP/s to `fma` and `sgemm`. An order that fails is answered with
{"error": why}. This file runs in any interpreter that has the engine: it needs nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent
PHYSICAL_BATCH = 512  # rows that are evaluated at once
LOGICAL_BATCH = 2048  # llama.cpp's default: tokens of a call


class Engine(Protocol):
    facts: dict[str, Any]
    vocabulary: int

    def clear(self) -> None: ...

    def evaluate(self, ids: list[int]) -> None:
        """Appends tokens and computes the logits after the last one."""


class TinyLLM:
    def __init__(self, path: str, threads: int, context: int) -> None:
        sys.path[:0] = [str(ROOT / "engine"), str(ROOT / "app")]
        import tinyllm_chat
        from tinyllm_engine import Model, Runner
        from tinyllm_engine.measure import weight_bytes_per_token

        model = Model.open(path)
        self._sequence = Runner(model, context_length=context, threads=threads).sequence()
        self.vocabulary = self._sequence.runner.vocab_size
        blocks = [tensor for name, tensor in model.tensors.items() if name.startswith("blk.") and len(tensor.dims) == 2]
        self.facts = {
            "version": tinyllm_chat.__version__,
            "file_type": model.file_type,
            "weight_bytes_per_token": weight_bytes_per_token(model),
            "kv_bytes_per_token": self._sequence.runner.kv_bytes_per_token,
            "block_weights": sum(tensor.dims[0] * tensor.dims[1] for tensor in blocks),
        }

    def clear(self) -> None:
        self._sequence.truncate(0)

    def evaluate(self, ids: list[int]) -> None:
        self._sequence.forward(ids)


class _Llama:
    """A model and a context of llama.cpp or its fork, by the functions that both have, with their own defaults."""

    def __init__(self, api: Any, path: str, threads: int, context: int) -> None:
        self._api = api
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"it cannot open {path}")
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, LOGICAL_BATCH, PHYSICAL_BATCH
        params.n_threads = params.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("it makes no context")
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))


class LlamaCpp(_Llama):
    """The low-level functions of llama-cpp-python."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        import llama_cpp as api

        super().__init__(api, path, threads, context)
        self.facts = {"version": version("llama-cpp-python")}

    def clear(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def evaluate(self, ids: list[int]) -> None:
        for start in range(0, len(ids), LOGICAL_BATCH):
            tokens = ids[start : start + LOGICAL_BATCH]
            array = (self._api.llama_token * len(tokens))(*tokens)
            result = self._api.llama_decode(self._context, self._api.llama_batch_get_one(array, len(tokens)))
            if result != 0:
                raise RuntimeError(f"llama_decode returned {result}")
        self._api.llama_synchronize(self._context)


class IkLlamaCpp(_Llama):
    """The ctypes layer of ik-llama-cpp-python."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        from ik_llama_cpp import _ctypes_api as api

        super().__init__(api, path, threads, context)
        self.facts = {"version": version("ik-llama-cpp-python")}
        self._position = 0
        self._batch = api.llama_batch_init(LOGICAL_BATCH, 0, 1)

    def clear(self) -> None:
        self._api.llama_kv_cache_clear(self._context)
        self._position = 0

    def evaluate(self, ids: list[int]) -> None:
        for start in range(0, len(ids), LOGICAL_BATCH):
            self._fill(ids[start : start + LOGICAL_BATCH])
            result = self._api.llama_decode(self._context, self._batch)
            if result != 0:
                raise RuntimeError(f"llama_decode returned {result}")
            self._position += self._batch.n_tokens
        self._api.llama_get_logits_ith(self._context, -1)  # returns when they are there

    def _fill(self, ids: list[int]) -> None:
        batch = self._batch
        batch.n_tokens = len(ids)
        for i, id in enumerate(ids):
            batch.token[i], batch.pos[i] = id, self._position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i == len(ids) - 1


ENGINES: dict[str, Callable[[str, int, int], Engine]] = {
    "tinyllm-chat": TinyLLM,
    "llama.cpp": LlamaCpp,
    "ik_llama.cpp": IkLlamaCpp,
}


def engine_orders(engine: Engine) -> dict[str, Callable[..., float]]:
    def ids(count: int) -> list[int]:
        return [i * 7919 % engine.vocabulary for i in range(count)]

    def prefill(count: int) -> float:
        engine.clear()
        prompt = ids(count)
        started = time.perf_counter()
        engine.evaluate(prompt)
        return time.perf_counter() - started

    def decode(count: int) -> float:
        answer = ids(count)
        started = time.perf_counter()
        for id in answer:
            engine.evaluate([id])
        return time.perf_counter() - started

    def clear() -> float:
        engine.clear()
        return 0.0

    return {"prefill": prefill, "decode": decode, "clear": clear}


def serve(answer: Callable[[dict[str, Any]], None], kind: str, arguments: list[str]) -> None:
    """Answers one order after the other until there are no more."""
    orders: dict[str, Callable[..., float]]
    try:
        if kind == "machine":
            from machine import Machine

            machine = Machine(int(arguments[0]))
            facts, orders = machine.facts, machine.orders
        else:
            path, threads, context = arguments
            engine = ENGINES[kind](path, int(threads), int(context))
            facts, orders = engine.facts, engine_orders(engine)
    except (ImportError, PackageNotFoundError) as error:
        answer({"absent": str(error)})
        return
    except Exception as error:
        answer({"error": _line(error)})
        return
    answer(facts)
    for line in sys.stdin:
        name, *numbers = line.split()
        try:
            answer({"value": orders[name](*map(int, numbers))})
        except Exception as error:
            answer({"error": _line(error)})


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def main() -> None:
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    serve(answer, sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
