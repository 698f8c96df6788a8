"""One answer on standard output, as it is written; everything else goes to standard error.

What the model thinks before it answers is not part of the answer.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import click

from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    MessageRefused,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    TextDelta,
)
from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.chat.session import Session
from tinyllm_chat.cli.failure import Failure
from tinyllm_chat.cli.progress import ProgressBar
from tinyllm_chat.cli.text import one_line

DRAIN_SECONDS = 0.01

# What is said of an answer that did not end by itself.
_ENDINGS = {
    "length": "the answer was cut at the length that -n allows",
    "context_full": "the context is full: the answer ends here (-c sets a longer one)",
}


def answer(session: Session, model: Path, prompt: str) -> None:
    """Opens the model and answers `prompt`. Raises Failure; Ctrl+C stops the answer."""
    write = _Output()
    try:
        with ProgressBar() as progress:
            session.open_model(model)
            session.send(prompt)  # queued until the model is open
            _until_ready(session, progress)
        reason = _until_finished(session, write)
        write.end()
        if reason in _ENDINGS:
            note(_ENDINGS[reason])
        if write.nothing and session.conversation.leaf is not None and session.conversation.leaf.reasoning:
            note("the model was still thinking (--think off has it answer at once)")
    except KeyboardInterrupt:
        session.stop()
        write.end()
        raise


def note(message: str) -> None:
    click.echo(f"tinyllm-chat: {one_line(message)}", err=True)


def _until_ready(session: Session, progress: ProgressBar) -> None:
    ready = False
    while not ready:
        for event in session.drain():
            match event:
                case ModelLoading(stage, done, total):
                    progress.update(stage, done, total)
                case ModelFailed(message):
                    raise Failure(message)
                case ModelReady(info):
                    progress.close()
                    for message in info.notes:
                        note(message)
                    ready = True
                case Notice(message):
                    note(message)
                case MessageRefused(message=message):
                    raise Failure(message)
        time.sleep(DRAIN_SECONDS)


def _until_finished(session: Session, write: _Output) -> str:
    while True:
        for event in session.drain():
            match event:
                case TextDelta(text=text, reasoning=False):
                    write(text)
                case AnswerFinished(reason=reason) if not session.busy:  # else it goes on where the context was full
                    return reason
                case MessageRefused(message=message):
                    raise Failure(message)
                case AnswerFailed(message=message):
                    raise Failure(message)
                case Notice(message):
                    note(message)
        time.sleep(DRAIN_SECONDS)


class _Output:
    """Standard output: to a terminal without control characters, to a pipe or file the text as it is, in UTF-8."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._last = "\n"
        self.nothing = True  # was written
        if isinstance(sys.stdout, io.TextIOWrapper):
            if self._terminal:
                sys.stdout.reconfigure(errors="replace")
            else:
                sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="\n")

    def __call__(self, text: str) -> None:
        text = printable(text) if self._terminal else text
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]
            self.nothing = False

    def end(self) -> None:
        """What a terminal shows next starts on a line of its own."""
        if self._terminal and self._last != "\n":
            self("\n")
