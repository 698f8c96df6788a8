"""From Enter to the first token of a second answer, in a chat of some thousand tokens, without the screen.

    python benchmarks/second_answer.py MODEL [--tokens 4096] [-r 5] [--pause 1]

Also: the same in a branch that was left, and in a chat whose cache was kept on disk and opened again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, AnswerStarted, ModelFailed, ModelReady, TextDelta
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.settings import SAMPLING_NAMES, SCHEMA

SAMPLING = {name: SCHEMA[name].default for name in SAMPLING_NAMES} | {"seed": 1}
LONG = "The river carries sand from the hills to the plain, and the plain grows. "
QUESTION = "And what follows from that?"
SHORTER = "Say it in one word, if you can."


@dataclass(frozen=True, slots=True)
class Answered:
    """seconds: to the first token"""

    seconds: float
    message: PromptMessage
    prompt: int
    read: int


class Chat:
    """A model that is open, and what a session does with it. `pause`: seconds before each question"""

    def __init__(self, model: Path, file: Path, pause: float) -> None:
        self.file, self._pause = file, pause
        self.backend = LocalBackend(lambda: ModelOptions(kept_cache_bytes=10**10))
        self.backend.open(str(model))
        while True:
            for event in self.backend.drain():
                if isinstance(event, ModelFailed):
                    raise SystemExit(event.message)
                if isinstance(event, ModelReady):
                    self._fingerprint = event.info.fingerprint
                    return
            time.sleep(0.01)

    def ask(self, so_far: Sequence[PromptMessage], question: str) -> Answered:
        if so_far and self._pause:
            self.backend.read_ahead(so_far, cache_file=self.file)
            time.sleep(self._pause)
        messages = [*so_far, PromptMessage(f"u{len(so_far)}", "user", question)]
        ids: tuple[int, ...] = ()
        started, first, text, prompt, reused = time.perf_counter(), 0.0, "", 0, 0
        self.backend.measure(messages)  # as a session does, to know whether it fits
        self.backend.answer("a", messages, sampling=SAMPLING, max_tokens=8, cache_file=self.file)
        while True:
            for event in self.backend.drain():
                if isinstance(event, AnswerFailed):
                    raise SystemExit(event.message)
                if isinstance(event, AnswerStarted):
                    prompt, reused = event.prompt_tokens, event.reused_tokens
                if isinstance(event, TextDelta):
                    first, text, ids = first or time.perf_counter() - started, text + event.text, (*ids, *event.ids)
                if isinstance(event, AnswerFinished):
                    said = PromptMessage(f"a{len(so_far)}", "assistant", text, ids, self._fingerprint)
                    return Answered(first, said, prompt, prompt - reused)
            time.sleep(0.0005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds in which a question is written; 0: none")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments.model, Path(folder) / "chat.kv", arguments.tokens, arguments.r, arguments.pause)


def measure(model: Path, file: Path, tokens: int, rounds: int, pause: float) -> None:
    file.with_suffix(".jsonl").touch()
    chat = Chat(model, file, pause)
    long = LONG * (tokens * 10 // 9 // 18)
    first = chat.ask([], long)
    print(f"first answer: {first.prompt} tokens read in {first.seconds:.2f} s")
    begun = [PromptMessage("u0", "user", long), first.message]

    one, other = list(begun), list(begun)
    answers = []
    for _ in range(rounds):
        answers.append(chat.ask(one, QUESTION))
        one += [PromptMessage(f"u{len(one)}", "user", QUESTION), answers[-1].message]
    report("next answers", answers)

    answers = []
    for _ in range(rounds):
        answers.append(chat.ask(other, SHORTER))
        other += [PromptMessage(f"u{len(other)}", "user", SHORTER), answers[-1].message]
        one, other = other, one
    report("each in the branch that was left", answers)

    answers = []
    for number in range(rounds):
        chat.backend.leave(file)
        chat.backend.close()
        chat = Chat(model, file, pause)
        answers.append(chat.ask(one, f"{number} times {number}?"))  # each is another branch
    report(f"opened again, {file.stat().st_size / 1e6:.0f} MB", answers)
    chat.backend.close()


def report(what: str, answers: Sequence[Answered]) -> None:
    milliseconds = sorted(1e3 * answer.seconds for answer in answers)
    last = answers[-1]
    print(
        f"{what}: {last.prompt} tokens, {last.read} read: {median(milliseconds):.0f} ms"
        f" ({milliseconds[0]:.0f} to {milliseconds[-1]:.0f})"
    )


if __name__ == "__main__":
    main()
