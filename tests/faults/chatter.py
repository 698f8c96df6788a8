"""A user of a scripted model, who does everything that writes to disk until somebody ends it."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.leftovers import sweep
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore

TOKEN_SECONDS = 0.002
ANSWERS = [
    "word " * 60,
    "Gr\u00fc\u00dfe aus \u5317\u4eac \U0001f40e\n```py\nprint(1)\n```\n" * 8,
    ["\udcf0", "\x00", "\n"] * 20,
]


def places_in(folder: Path) -> Paths:
    return Paths(folder / "config", folder / "data", folder / "state", folder / "cache")


class Program:
    """What the command line puts together, without a screen and with a scripted model."""

    def __init__(self, places: Paths) -> None:
        sweep((places.config, places.transcripts, places.state, places.drafts))
        self.store = TranscriptStore(places.transcripts, places.exports)
        self.library = ChatLibrary(self.store, places.state)
        self.backend = ScriptedBackend(ANSWERS, automatic=False)
        self.session = Session(self.backend, self.store, Settings(), places.config_file)
        self.prompts = PromptHistory(places.prompt_history)
        self.drafts = DraftKeeper(places.drafts)
        self.drafts.open()
        self.session.open_model("toy.gguf")
        self.backend.finish_opening()
        self.session.drain()

    def close(self) -> None:
        self.session.close()
        self.drafts.close()
        self.library.index.close()


class Chatter:
    """`report` is told what the user has seen: the id of a chat and of a message, and how much of its text."""

    def __init__(self, places: Paths, seed: int, report: Callable[[str, str, str], None]) -> None:
        self.random = random.Random(seed)
        self.program = Program(places)
        self._report = report

    def run(self, steps: int | None = None) -> None:
        """So many things; None: for ever."""
        if (latest := self.program.store.latest()) and self.random.random() < 0.7:
            self.program.session.open_chat(latest)
        while steps is None or (steps := steps - 1) >= 0:
            try:
                self._do_something()
            except ChatError:
                continue  # nothing to do it with

    def _do_something(self) -> None:
        session, draw = self.program.session, self.random.random()
        leaf = session.conversation.leaf
        text = f"question {self.random.randrange(1000)} " * self.random.randint(1, 4)
        self.program.prompts.add(text)
        self.program.drafts.save(Draft(text if draw < 0.9 else ""))
        if draw < 0.5 or leaf is None:
            session.send(text)
        elif draw < 0.6:
            session.regenerate()
        elif draw < 0.65:
            session.continue_answer()
        elif draw < 0.7:
            session.rename(text)
            session.pin(not session.conversation.pinned)
        elif draw < 0.75:
            session.undo()
        elif draw < 0.8:
            session.edit_answer(leaf.id, text)
        elif draw < 0.85:
            session.new_chat()
        elif draw < 0.9:
            self.program.library.update()
            session.open_chat(self.random.choice(self.program.store.list()).id)
        elif draw < 0.95:
            session.save_setting("temperature", self.random.choice((0.1, 0.5, 0.9)))
            session.export()
        elif deleted := self.program.library.deleted_here:
            self.program.library.restore(deleted.pop())
        else:
            other = self.random.choice(self.program.store.list()).id
            if other != session.chat_id:
                self.program.library.delete(other)
        self._watch()

    def _watch(self) -> None:
        """The answer as it comes."""
        session = self.program.session
        stop = self.random.random() < 0.1
        while session.busy:
            self.program.backend.step()
            session.drain()
            self._see()
            if stop and self.random.random() < 0.1:
                session.stop()
            time.sleep(TOKEN_SECONDS)
        session.drain()
        self._see()

    def _see(self) -> None:
        leaf, chat = self.program.session.conversation.leaf, self.program.session.chat_id
        if leaf is not None and chat is not None:
            self._report(chat, leaf.id, leaf.content)


class Report:
    """What a chatter and its disk have done, one line each, through a pipe to whoever outlives it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sync = os.fsync
        os.fsync = self._synced

    def seen(self, chat: str, message: str, text: str) -> None:
        self._write({"chat": chat, "message": message, "length": len(text)})

    def _synced(self, descriptor: int) -> None:
        self._sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(".jsonl"):
            self._write({"synced": path, "size": os.fstat(descriptor).st_size})

    def _write(self, record: dict[str, object]) -> None:
        os.write(self._descriptor, json.dumps({"time": time.monotonic(), **record}).encode() + b"\n")
