"""What speed depends on besides the model: a long context, neighbours, hours, a large vocabulary, a first start.

    python benchmarks/conditions.py context    MODEL [-t N] [--length 4096]
    python benchmarks/conditions.py neighbours MODEL [-t N] [--processes 4]
    python benchmarks/conditions.py memory     MODEL [-t N] [--tokens 10000]
    python benchmarks/conditions.py vocabulary       [-t N] [--size 262144]
    python benchmarks/conditions.py start      MODEL

`context`: what so many cached tokens add to the time of one more, against reading their keys and values once from
memory, and how fast a prompt is read behind them. `neighbours`: decode beside processes that spin. `memory`: private
memory while tokens are written, which must stay flat. `vocabulary`: what drawing takes of a token of a small model
with a large vocabulary; a file in the shape of Gemma 3 270M with random weights is made for it. `start`: from
nothing, no kernel compiled yet, to an evaluated token.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "engine"), str(ROOT / "app"), str(ROOT / "benchmarks")]

TOKEN = 5  # any: random and real weights cost the same
START = """
import sys, time
began = time.perf_counter()
from tinyllm_engine import Model, Runner
runner = Runner(Model.open(sys.argv[1]))
runner.forward([1, 2, 3])
print(time.perf_counter() - began)
runner.close()
"""


def median_seconds(do: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        do()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def runner_of(options: argparse.Namespace, path: Path, context: int) -> Any:
    from tinyllm_engine import Model, Runner

    return Runner(Model.open(path), context_length=context, threads=options.threads)


def context(options: argparse.Namespace) -> None:
    from machine import Machine

    runner = runner_of(options, options.model, options.length + 128)
    sequence = runner.sequence()
    ids = [100 + i % 1000 for i in range(options.length)]
    sequence.forward(ids[:512])
    sequence.truncate(0)
    batches = [time.perf_counter()]
    sequence.forward(ids, progress=lambda done, total: batches.append(time.perf_counter()))
    long = median_seconds(lambda: sequence.forward([TOKEN]), 32)
    sequence.truncate(32)
    short = median_seconds(lambda: sequence.forward([TOKEN]), 32)
    machine = Machine(runner.threads)
    read = machine.read()
    megabytes = options.length * runner.kv_bytes_per_token / 1e6
    added = 1000 * (long - short)
    print(f"a token behind {options.length}: {1000 * long:.2f} ms, behind 32: {1000 * short:.2f} ms")
    rate = f"{megabytes / added:.1f} GB/s; plain read {read:.1f} GB/s"
    print(f"added: {added:.2f} ms for {megabytes:.0f} MB of K and V: {rate}")
    times = [after - before for before, after in itertools.pairwise(batches)]
    whole, first, last = options.length / sum(times), 512 / times[0], 512 / times[-1]
    print(f"prompt: {whole:.0f} tokens/s; its first 512 {first:.0f}, its last 512 {last:.0f}")


def neighbours(options: argparse.Namespace) -> None:
    runner = runner_of(options, options.model, 1024)
    sequence = runner.sequence()
    sequence.forward([TOKEN] * 32)
    alone = 1 / median_seconds(lambda: sequence.forward([TOKEN]), 200)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.processes)]
    try:
        time.sleep(1)
        began = time.perf_counter()
        for _ in range(100):
            sequence.forward([TOKEN])
        beside = 100 / (time.perf_counter() - began)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    share = f"{100 * beside / alone:.1f} %"
    print(f"alone {alone:.1f} tokens/s, beside {options.processes} spinning processes {beside:.1f}: {share}")


def memory(options: argparse.Namespace) -> None:
    from tinyllm_engine.measure import private_bytes

    runner = runner_of(options, options.model, 1024)
    sequence = runner.sequence()
    for done in range(options.tokens + 1):
        if sequence.position == runner.context_length:
            sequence.truncate(1)
        if done % (options.tokens // 10) == 0:
            print(f"{done:6d} tokens: {(private_bytes() or 0) / 1e6:.1f} MB private")
        sequence.forward([TOKEN + done % 100])


def vocabulary(options: argparse.Namespace) -> None:
    from make_models import Shape, write_random
    from tinyllm_engine.measure import bench

    shape = Shape(18, 640, 5, 1, 2048, options.size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large-vocabulary.gguf"
        write_random(path, "Q8_0", shape)
        runner = runner_of(options, path, 512)
        sampled = bench(runner, prompt=64, predict=64).sampled
        runner.close()
    share = f"{sampled.tokens_per_second:.1f} tokens/s, of which drawing {sampled.sampling_percent:.1f} %"
    print(f"{options.size} tokens in the vocabulary: {share}")


def start(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TINYLLM_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(sys.path[:2])}
        for name in ("first start", "second start"):
            done = subprocess.run(
                [sys.executable, "-c", START, str(options.model)],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"{name}, to an evaluated token: {float(done.stdout):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="WHAT")
    for do in (context, neighbours, memory, vocabulary, start):
        part = parts.add_parser(do.__name__)
        part.set_defaults(do=do)
        if do is not vocabulary:
            part.add_argument("model", type=Path, metavar="MODEL")
        part.add_argument("-t", "--threads", type=int, metavar="N")
        part.add_argument("--length", type=int, default=4096)
        part.add_argument("--processes", type=int, default=4)
        part.add_argument("--tokens", type=int, default=10_000)
        part.add_argument("--size", type=int, default=262_144)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
