"""From Enter to the first token of a second answer, in a chat of some thousand tokens, without the screen.

    python benchmarks/second_answer.py MODEL [--tokens 4096] [-r 5]

Also: the same in a branch that was left, and in a chat whose cache was kept on disk and opened again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, AnswerStarted, ModelFailed, ModelReady, TextDelta
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES} | {"seed": 1}
QUESTION = "And what follows from that?"


def opened(model: Path) -> LocalBackend:
    backend = LocalBackend(lambda: ModelOptions(kept_cache_bytes=10**10))
    backend.open(str(model))
    while True:
        for event in backend.drain():
            if isinstance(event, ModelFailed):
                raise SystemExit(event.message)
            if isinstance(event, ModelReady):
                return backend
        time.sleep(0.01)


def answer(backend: LocalBackend, messages: Sequence[PromptMessage], cache_file: Path) -> tuple[float, str, int, int]:
    """(seconds to the first token, the answer's text, tokens of the prompt, those of them that were reused)"""
    started, first, text, prompt, reused = time.perf_counter(), 0.0, "", 0, 0
    backend.answer("a", messages, sampling=SAMPLING, max_tokens=8, cache_file=cache_file)
    while True:
        for event in backend.drain():
            if isinstance(event, AnswerFailed):
                raise SystemExit(event.message)
            if isinstance(event, AnswerStarted):
                prompt, reused = event.prompt_tokens, event.reused_tokens
            if isinstance(event, TextDelta):
                first, text = first or time.perf_counter() - started, text + event.text
            if isinstance(event, AnswerFinished):
                return first, text, prompt, reused
        time.sleep(0.0005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("-r", type=int, default=5)
    arguments = parser.parse_args()
    backend = opened(arguments.model)
    long = "The river carries sand from the hills to the plain, and the plain grows. "
    asked = PromptMessage("u0", "user", long * (arguments.tokens * 10 // 9 // 18))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chat.kv"
        file.with_suffix(".jsonl").touch()
        first = answer(backend, [asked], file)
        print(f"first answer: {first[2]} tokens read in {first[0]:.2f} s")
        so_far = [asked, PromptMessage("a0", "assistant", first[1])]
        seconds = []
        for number in range(arguments.r):
            so_far.append(PromptMessage(f"u{number + 1}", "user", QUESTION))
            took, text, prompt, reused = answer(backend, so_far, file)
            seconds.append(took)
            so_far.append(PromptMessage(f"a{number + 1}", "assistant", text))
        print(f"next answers: {prompt} tokens, {prompt - reused} read: {1e3 * median(seconds):.0f} ms")
        other = [*so_far[:2], PromptMessage("u", "user", "Say it shorter.")]
        answer(backend, other, file)
        took, _, prompt, reused = answer(backend, [*so_far, PromptMessage("u", "user", QUESTION)], file)
        print(f"back in the other branch: {prompt - reused} read: {1e3 * took:.0f} ms")
        started = time.perf_counter()
        backend.leave(file)
        backend.close()
        print(f"left: {file.stat().st_size / 1e6:.0f} MB written in {time.perf_counter() - started:.2f} s")
        backend = opened(arguments.model)
        took, _, prompt, reused = answer(backend, [*so_far, PromptMessage("u", "user", QUESTION)], file)
        print(f"opened again: {prompt - reused} read: {1e3 * took:.0f} ms")
        backend.close()


if __name__ == "__main__":
    main()
