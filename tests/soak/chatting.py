"""A user who never tires: sends, regenerates, edits, branches, undoes, changes chats and settings, by a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tinyllm_chat.chat.context_policy import POLICIES
from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.events import AnswerFailed, AnswerFinished, AnswerStats, Event, ModelFailed, Notice
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import CONFIG, Settings
from tinyllm_chat.chat.transcript import TranscriptStore

WORDS = (
    "please",
    "tell",
    "me",
    "more",
    "about",
    "the",
    "small",
    "green",
    "house",
    "and",
    "why",
    "it",
    "stands",
    "there",
)
PROBE = "What is the capital of France, and what is it known for?"
CHATS = 8  # between which the user goes back and forth
TURNS_OF_A_CHAT = 40
TURNS_OF_A_POLICY = 25
PAUSE = 0.001  # seconds between two looks at what the engine did


class Chatter:
    """`turn` has one answer written; everything else that happens in between is as the seed has it."""

    def __init__(self, model: Path, folder: Path, *, answer_tokens: int, threads: int = 1, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.turns = 0
        self.failures: list[str] = []  # of answers; refusals of what cannot be done just now do not count
        self.backend = LocalBackend(lambda: ModelOptions(threads=threads, kept_cache_bytes=20_000_000))
        settings = Settings().with_layer(CONFIG, {"max_tokens": answer_tokens, "temperature": 0.9})
        self.session = Session(self.backend, TranscriptStore(folder / "transcripts"), settings)
        self._answer_tokens = answer_tokens
        self._chats: list[str] = []
        self._stats = AnswerStats()
        self.session.open_model(model)
        self._until(lambda: self.session.loading is None)

    @property
    def pages(self) -> tuple[int, int]:
        """(pages of the cache that are in use, that there are)"""
        opened = self.backend._opened
        assert opened is not None
        cache = opened.runner.cache
        return cache.pages_in_use, cache.pages

    def turn(self) -> None:
        """Something that ends with an answer."""
        self._change_something()
        before = len(self.session.conversation)
        try:
            self._ask()
        except ChatError:  # it cannot be done where the chat is now
            self.session.send(self._text())
        stop = self.random.random() < 0.05
        self._until(lambda: not self.session.busy and not self.session.queued, stop=stop)
        if len(self.session.conversation) == before and self.session.conversation.leaf is not None:
            self.session.new_chat()  # full: what was sent is refused under the policy `stop`
            self.session.drain()
        self.turns += 1

    def probe(self, times: int = 3) -> tuple[float, float, float]:
        """The same question in an empty chat, the best of some: seconds to the first token, tokens per second, seconds
        of the engine's thread.
        """
        first, speed, work = [], [], []
        temperature = self.session.sampling["temperature"].value
        self.session.set_sampling("temperature", 0.0)
        for _ in range(times):
            self._new_chat()
            before = self._worked()
            self.session.send(PROBE)
            self._until(lambda: not self.session.busy)
            work.append(self._worked() - before)
            first.append(self._stats.first_token_seconds)
            speed.append(self._stats.decode_tokens_per_second)
        self.session.set_sampling("temperature", temperature)
        return min(first), max(speed), min(work)

    def _worked(self) -> float:
        thread = self.backend._thread
        assert thread is not None
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def close(self) -> None:
        self.session.close()

    # What the user does

    def _change_something(self) -> None:
        if self.turns % TURNS_OF_A_POLICY == 0:
            self.session.set_context_full(POLICIES[self.turns // TURNS_OF_A_POLICY % len(POLICIES)])
        if self.turns % TURNS_OF_A_CHAT == 0:
            self._new_chat()
        elif self._chats and self.random.random() < 0.1:
            self.session.open_chat(self.random.choice(self._chats))
        if self.random.random() < 0.1:
            self.session.nudge("temperature", self.random.choice((-1, 1)))
        for chance, what in ((0.05, self._undo), (0.03, self._delete), (0.03, self._rewrite), (0.05, self._sibling)):
            if self.random.random() < chance:
                try:
                    what()
                except ChatError:
                    continue  # nothing to do it with
        self.session.drain()

    def _ask(self) -> None:
        choice = self.random.random()
        if choice < 0.7:
            self.session.send(self._text())
        elif choice < 0.8:
            self.session.regenerate()
        elif choice < 0.9:
            self.session.resend(self._message("user").id, self._text())
        else:
            self.session.continue_answer()

    def _new_chat(self) -> None:
        if self.session.chat_id is not None and self.session.chat_id not in self._chats:
            self._chats = [*self._chats[1 - CHATS :], self.session.chat_id]
        self.session.new_chat()
        self.session.drain()

    def _undo(self) -> None:
        self.session.undo()
        if self.random.random() < 0.5:
            self.session.redo()

    def _delete(self) -> None:
        self.session.delete(self._message("user").id)

    def _rewrite(self) -> None:
        self.session.edit_answer(self._message("assistant").id, self._text())

    def _sibling(self) -> None:
        self.session.select_sibling(self._message("assistant").id, 1)

    def _message(self, role: str) -> Message:
        found = [message for message in self.session.conversation.path() if message.role == role]
        if not found:
            raise ChatError("there is none")
        return self.random.choice(found[-3:])

    def _text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(2, 8)))

    # What comes back

    def _until(self, done: Callable[[], bool], *, stop: bool = False) -> None:
        """Takes in events until nothing more is expected; `stop`: stops the answer as soon as there is some of it."""
        while True:
            for event in self.session.drain():
                self._take(event)
            if done():
                return
            leaf = self.session.conversation.leaf
            if stop and leaf is not None and leaf.role == "assistant" and len(leaf.ids) > 2:
                self.session.stop()
                stop = False
            time.sleep(PAUSE)

    def _take(self, event: Event) -> None:
        match event:
            case AnswerFinished(stats=stats):
                self._stats = stats
            case AnswerFailed(message=message) | ModelFailed(message) | Notice(message=message, severity="error"):
                self.failures.append(message)
