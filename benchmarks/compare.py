"""This engine beside llama.cpp and ik_llama.cpp: the same files, the same threads, taking turns.

    python benchmarks/compare.py MODEL... [--python PATH] [-t N] [-p 512] [-n 128] [-r 5] [--context 8192]

Each engine runs in a process of its own. In every round each of them does each test once, one after the other, so that
whatever else happens on the machine happens to all; the first round is thrown away. Printed, as Markdown, are the
medians, their ratio to the better of the other two, and what the machine itself can do in the same rounds.

`--python` names the interpreter that has llama-cpp-python and ik-llama-cpp-python (`pip install '.[bench]'` puts them
into this one). An engine that is absent is said to be absent.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
OURS, OTHERS = "tinyllm-chat", ("llama.cpp", "ik_llama.cpp")
ENGINES = (OURS, *OTHERS)
MACHINE = ("read", "fma", "sgemm")
REST = 0.1  # seconds between two measurements: threads that wait for work spin for a while


@dataclass(frozen=True)
class Test:
    """`orders`: what a worker is told, the timed one last."""

    name: str
    tokens: int
    orders: tuple[str, ...]


@dataclass
class Result:
    """An engine with one model. `runs`: tokens per second of each round, by test."""

    facts: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, list[float]] = field(default_factory=dict)
    trouble: str = ""  # why figures are missing

    def rate(self, test: str) -> float | None:
        runs = self.runs.get(test)
        return median(runs) if runs else None


@dataclass
class Report:
    command: str
    threads: int
    context: int  # 0: no long one
    tests: list[Test]
    machine: Result  # GB/s and GFLOP/s
    models: dict[str, dict[str, Result]] = field(default_factory=dict)  # file name -> engine -> result


class Worker:
    """A worker process and what it answers. Once it is in trouble it is left alone."""

    def __init__(self, python: str, *arguments: object, environment: dict[str, str] | None = None) -> None:
        self.result = Result()
        self._command = [python, str(HERE / "worker.py"), *map(str, arguments)]
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Worker:
        self._log = self._open.enter_context(tempfile.TemporaryFile())
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=self._environment,
            )
        except OSError as error:
            self.result.trouble = f"absent: {self._command[0]}: {error.strerror}"
            return self
        self._open.enter_context(self._process)  # closes its pipes, which ends it, and waits
        self.result.facts = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(self, order: str) -> float | None:
        """The value it answers with; None when there is trouble."""
        if self.result.trouble or self._process is None:
            return None
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: so will its answer say
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        return self._answer().get("value")

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        for kind, trouble in (("absent", "absent"), ("error", "failed")):
            if kind in answer:
                self.result.trouble = f"{trouble}: {answer[kind]}"
        return answer

    def _last_words(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"exit code {code}, {last[:200]}"


def tests_of(prompt: int, predict: int, context: int) -> list[Test]:
    tests = [
        Test(f"prefill {prompt}", prompt, (f"prefill {prompt}",)),
        Test(f"decode {predict}", predict, ("clear", f"decode {predict}")),
    ]
    if context:
        tests += [
            Test(f"prefill {context}", context, (f"prefill {context}",)),
            Test(f"decode {predict} at {context}", predict, (f"decode {predict}",)),  # right behind it
        ]
    return tests


def measure(models: Iterable[Path], report: Report, python: str, rounds: int, say: Callable[[str], None]) -> None:
    """Fills the report."""
    environment = plain_environment(report.threads)
    with Worker(sys.executable, "machine", report.threads, environment=environment) as machine:
        report.machine = machine.result
        for model in models:
            measure_model(model, machine, report, python, rounds, say)


def measure_model(
    model: Path, machine: Worker, report: Report, python: str, rounds: int, say: Callable[[str], None]
) -> None:
    """Round 0 warms up and is thrown away."""
    most = max(test.tokens for test in report.tests)
    room = -(-2 * most // 256) * 256  # for the longest test, and one behind it
    with ExitStack() as opened:
        workers = {}
        for name in ENGINES:
            say(f"{model.name}: opening with {name}")
            interpreter = sys.executable if name == OURS else python
            workers[name] = opened.enter_context(Worker(interpreter, name, model, report.threads, room))
        report.models[model.name] = {name: worker.result for name, worker in workers.items()}
        for number in range(rounds + 1):
            say(f"{model.name}: round {number} of {rounds}")
            for what in MACHINE:
                note(machine, what, machine.ask(what), number)
            for test in report.tests:
                for name in turn(ENGINES, number):
                    note(workers[name], test.name, rate(workers[name], test), number)


def turn(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Another one begins in every round."""
    first = number % len(names)
    return names[first:] + names[:first]


def rate(worker: Worker, test: Test) -> float | None:
    """Tokens per second of the test's last order."""
    time.sleep(REST)
    seconds = [worker.ask(order) for order in test.orders][-1]
    return None if not seconds else test.tokens / seconds


def note(worker: Worker, name: str, value: float | None, number: int) -> None:
    if value is not None and number > 0:
        worker.result.runs.setdefault(name, []).append(value)


def plain_environment(threads: int) -> dict[str, str]:
    """The environment without what steers OpenBLAS, but for its threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "OMP_"))}
    return kept | {"OPENBLAS_NUM_THREADS": str(threads)}


# Markdown


def markdown(report: Report) -> str:
    machine = report.machine
    facts = machine.facts
    lines = [
        f"{facts.get('cpu', 'unknown processor')}, {facts.get('cores', '?')} cores, {facts.get('simd', '?')}, "
        f"{report.threads} threads. {machine_line(machine)}",
        "",
        f"    {report.command}",
        "",
        f"{', '.join(versions(report))}; {facts.get('version', '')}. Tokens per second, medians.",
        "",
        f"| model | test | {' | '.join(ENGINES)} | to the better | |",
        f"|---|---|{'---:|' * len(ENGINES)}---:|---|",
    ]
    for model, results in report.models.items():
        for number, test in enumerate(report.tests):
            cells = [model.removesuffix(".gguf") if number == 0 else "", test.name]
            cells += [shown(results[name], test.name) for name in ENGINES]
            cells += [to_the_better(results, test.name), remark(report, results, test)]
            lines.append(f"| {' | '.join(cells)} |")
    troubles = [
        f"* {name}, {model}: {result.trouble}"
        for model, results in report.models.items()
        for name, result in results.items()
        if result.trouble
    ]
    return "\n".join([*lines, *([""] if troubles else []), *troubles]) + "\n"


def machine_line(machine: Result) -> str:
    """What it can do, in a sentence."""
    if machine.trouble:
        return f"What the machine can do is not known ({machine.trouble})."
    read, fma, sgemm = (machine.rate(what) or 0.0 for what in MACHINE)
    return (
        f"Plain read {read:.1f} GB/s, float32 FMA peak {fma:.0f} GFLOP/s, "
        f"NumPy sgemm {sgemm:.0f} GFLOP/s ({machine.facts['blas']} kernel)."
    )


def versions(report: Report) -> list[str]:
    """Name and version of every engine, or that it is absent."""
    found: dict[str, str] = {}
    for results in report.models.values():
        for name, result in results.items():
            if "version" in result.facts:
                found[name] = str(result.facts["version"])
            elif result.trouble.startswith("absent"):
                found.setdefault(name, "absent")
    return [f"{name} {found[name]}" for name in ENGINES if name in found]


def shown(result: Result, test: str) -> str:
    value = result.rate(test)
    if value is None:
        return result.trouble.partition(":")[0] or "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def to_the_better(results: dict[str, Result], test: str) -> str:
    ours = results[OURS].rate(test)
    others = [value for name in OTHERS if (value := results[name].rate(test)) is not None]
    return f"{ours / max(others):.2f}x" if ours is not None and others else ""


def remark(report: Report, results: dict[str, Result], test: Test) -> str:
    """What our own figure means beside what the machine can do."""
    result, machine = results[OURS], report.machine
    value, read, peak = result.rate(test.name), machine.rate("read"), machine.rate("fma")
    if value is None or read is None or peak is None:
        return ""
    facts = result.facts
    if test.name.startswith("prefill"):
        rate = 2 * facts["block_weights"] * value / 1e9
        of_peak = f", {100 * rate / peak:.0f} % of the FMA peak" if facts["file_type"] in ("F32", "F16", "BF16") else ""
        return f"{rate:.0f} GOP/s in the matrices{of_peak}"
    if report.context and test.name.endswith(f"at {report.context}"):
        return context_remark(report, result, value, read)
    rate = facts["weight_bytes_per_token"] * value / 1e9
    return f"{rate:.1f} GB/s of weights, {100 * rate / read:.0f} % of the plain read"


def context_remark(report: Report, result: Result, value: float, read: float) -> str:
    """What a long context adds to a token, beside the time that reading its keys and values must take."""
    short = next(test for test in report.tests if test.name.startswith("decode"))
    alone = result.rate(short.name)
    if alone is None:
        return ""
    added = 1e3 / value - 1e3 / alone  # milliseconds
    must = result.facts["kv_bytes_per_token"] * report.context / 1e6 / read
    return f"adds {added:.2f} ms, reading K and V takes {must:.2f} ms: {added / must:.2f}x"


# The command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the interpreter of the other engines")
    parser.add_argument("-t", "--threads", type=int, metavar="N", help="default: what the engine chooses here")
    parser.add_argument("-p", "--n-prompt", type=int, default=512, metavar="N")
    parser.add_argument("-n", "--n-gen", type=int, default=128, metavar="N")
    parser.add_argument("-r", "--rounds", type=int, default=5, metavar="N", help="after a first one that warms up")
    parser.add_argument(
        "--context", type=int, default=0, metavar="N", help="also reads N tokens, and writes behind them"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="keeps every run as JSON")
    arguments = parser.parse_args()
    missing = next((model for model in arguments.models if not model.is_file()), None)
    if missing is not None:
        parser.error(f"{missing}: there is no such file")
    tests = tests_of(arguments.n_prompt, arguments.n_gen, arguments.context)
    threads = arguments.threads or default_threads()
    report = Report(command_line(sys.argv[1:]), threads, arguments.context, tests, Result())
    measure(arguments.models, report, arguments.python, arguments.rounds, lambda line: print(line, file=sys.stderr))
    if arguments.save is not None:
        arguments.save.write_text(json.dumps(asdict(report), indent=1))
    print(markdown(report))


def default_threads() -> int:
    sys.path[:0] = [str(HERE.parent / "engine")]
    from tinyllm_engine.processors import default_threads

    return default_threads()


def command_line(arguments: list[str]) -> str:
    """The command as anybody could type it: files by their names."""
    return shlex.join(["python", "benchmarks/compare.py", *(Path(word).name for word in arguments)])


if __name__ == "__main__":
    main()
