"""The engine of this machine as a backend: one worker thread, events in a queue."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.answering import Answer
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.draft_counter import DraftCounter
from tinyllm_chat.chat.engine_api import EngineApi, load_engine
from tinyllm_chat.chat.events import AnswerFailed, Event, ModelFailed, ModelLoading, ModelReady, Notice
from tinyllm_chat.chat.hindsight import Look
from tinyllm_chat.chat.kept_cache import KeptCaches
from tinyllm_chat.chat.memory import free_memory
from tinyllm_chat.chat.mishaps import describe
from tinyllm_chat.chat.opening import ModelOptions, OpenModel, open_model
from tinyllm_chat.chat.profiling import Profiling
from tinyllm_chat.chat.prompt import PromptBuilder
from tinyllm_chat.chat.reading_ahead import Ahead

KEEP_SECONDS = 60.0  # that the end of the program waits for a cache being written
CLOSE_SECONDS = 5.0  # the worker may be compiling: the program does not wait for that
# A native call per token gives the interpreter back to a busy screen only every so often; see sys.setswitchinterval.
SWITCH_INTERVAL = 0.0005

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    path: str
    options: ModelOptions


@dataclass(frozen=True, slots=True)
class _Leave:
    cache_file: Path


class _Abandoned(Exception):
    """A model that is no longer wanted while it is being opened."""


class LocalBackend:
    """Implements Backend. Nothing is imported from the engine before the first `open`.

    `options` is asked whenever a model is opened.
    """

    def __init__(
        self,
        options: Callable[[], ModelOptions] = ModelOptions,
        *,
        load: Callable[[], EngineApi] = load_engine,
        free: Callable[[], int | None] = free_memory,
    ) -> None:
        self._options = options
        self._load = load
        self._free = free
        # Reports about a model carry the order that they answer: those of an earlier order are out of date.
        self._events: deque[tuple[_Open | None, Event]] = deque()
        self._orders: queue.SimpleQueue[_Open | Answer | _Leave | Look | Ahead | None] = queue.SimpleQueue()
        self._wanted: _Open | None = None  # the latest order to open
        self._answer: Answer | None = None  # the latest answer asked for
        self._look: Look | None = None  # the latest one
        self._ahead: Ahead | None = None  # the latest one
        self._profiling = Profiling()
        self._drafts: DraftCounter | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        # Of the worker alone:
        self._engine: EngineApi | None = None
        self._opened: OpenModel | None = None
        self._prompts: PromptBuilder | None = None
        self._kept: KeptCaches | None = None
        self._keeping = False  # a file is being written

    def open(self, path: str) -> None:
        self.cancel()
        self._drafts = None
        self._wanted = _Open(path, self._options())
        self._order(self._wanted)

    def answer(
        self,
        message_id: str,
        messages: Sequence[PromptMessage],
        *,
        sampling: dict[str, Any],
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        continue_last: bool = False,
        think: bool | None = None,
        shift: int | None = None,
        free: bool = False,
        cache_file: Path | None = None,
        inspect: bool = False,
    ) -> None:
        self._end_extras()
        self._answer = Answer(
            message_id,
            tuple(messages),
            sampling,
            max_tokens,
            continue_last,
            think,
            tuple(stop),
            shift,
            free,
            cache_file,
            inspect,
        )
        self._order(self._answer)

    def look_back(self, messages: Sequence[PromptMessage], *, think: bool | None = None) -> None:
        self._end_extras()
        self._look = Look(tuple(messages), think)
        self._order(self._look)

    def read_ahead(
        self, messages: Sequence[PromptMessage], *, think: bool | None = None, cache_file: Path | None = None
    ) -> None:
        self._end_ahead()
        self._ahead = Ahead(tuple(messages), think, cache_file)
        self._order(self._ahead)

    def set_profiling(self, on: bool) -> None:
        self._profiling.on = on

    def set_sampling(self, **values: Any) -> None:
        if self._answer is not None:
            self._answer.set_sampling(values)

    def cancel(self) -> None:
        self._end_extras()
        if self._answer is not None:
            self._answer.cancel()

    def _end_extras(self) -> None:
        """What nobody waits for makes way."""
        self._end_ahead()
        if self._look is not None:
            self._look.cancel()

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()

    def drain(self) -> list[Event]:
        events: list[Event] = []
        while self._events:
            order, event = self._events.popleft()
            if order is None or order is self._wanted:
                events.append(event)
        return events

    def count_tokens(self, text: str) -> int | None:
        drafts = self._drafts
        return drafts.count(text) if drafts is not None else None

    def measure(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, think: bool | None = None
    ) -> Sequence[int] | None:
        prompts, engine = self._prompts, self._engine
        if prompts is None or engine is None:
            return None
        try:
            return prompts.measure(messages, continue_last=continue_last, think=think)
        except engine.EngineError:
            return None

    def leave(self, cache_file: Path) -> None:
        self._end_ahead()
        if self._thread is not None and not self._closing:
            self._orders.put(_Leave(cache_file))

    def close(self) -> None:
        self._closing = True
        self.cancel()
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join(CLOSE_SECONDS)
            if self._keeping:
                self._thread.join(KEEP_SECONDS)

    def _order(self, order: _Open | Answer | Look | Ahead) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
            self._thread.start()
        self._orders.put(order)

    # The worker thread

    def _work(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        while (order := self._orders.get()) is not None:
            if isinstance(order, _Leave):
                self._keep(order)
            elif self._closing:
                continue
            elif isinstance(order, _Open):
                self._open(order)
            elif isinstance(order, Look):
                self._look_back(order)
            elif isinstance(order, Ahead):
                self._read_ahead(order)
            else:
                self._run(order)
        self._release()

    def _open(self, order: _Open) -> None:
        started = time.monotonic()

        def report(stage: str, done: int, total: int) -> None:
            if self._closing or self._wanted is not order:
                raise _Abandoned
            self._events.append((order, ModelLoading(stage, done, total)))

        try:
            report("starting the engine" if self._engine is None else "opening", 0, 0)
            self._release()
            if self._engine is None:
                self._engine = self._load()
            opened = open_model(self._engine, Path(order.path), order.options, report, self._free)
            self._opened = opened
            self._take(opened, order)
        except _Abandoned:
            return
        except Exception as error:
            self._release()
            self._events.append((order, ModelFailed(describe(error, order.path))))
            return
        log.info("opened %s in %.2f s: %s", order.path, time.monotonic() - started, opened.info)
        self._events.append((order, ModelReady(opened.info, time.monotonic() - started)))

    def _take(self, opened: OpenModel, order: _Open) -> None:
        """Makes what answers from a model need beside it."""
        assert self._engine is not None
        tokenizer, model = opened.model.tokenizer, opened.info.fingerprint
        self._kept = KeptCaches(self._engine, opened.branches, model, order.options.kept_cache_bytes)
        self._prompts = PromptBuilder(tokenizer, opened.template, model)
        if self._wanted is order:
            self._drafts = DraftCounter(lambda text: len(tokenizer.encode(text, add_bos=False)), self._trims())

    def _trims(self) -> bool:
        assert self._engine is not None
        assert self._prompts is not None
        try:
            return self._prompts.trims()
        except self._engine.EngineError:
            return False  # the first answer says what is wrong

    def _run(self, answer: Answer) -> None:
        if self._engine is None or self._opened is None or self._prompts is None or self._kept is None:
            self._emit(AnswerFailed(answer.message_id, "no model is open"))
            return
        try:
            answer.run(self._engine, self._opened, self._prompts, self._kept, self._emit, self._profiling)
        except Exception as error:
            self._emit(AnswerFailed(answer.message_id, describe(error, self._opened.info.path)))

    def _keep(self, order: _Leave) -> None:
        if self._kept is None:
            return
        self._keeping = True
        try:
            said = self._kept.keep(order.cache_file)
        except Exception as error:
            said = describe(error, str(order.cache_file))
        self._keeping = False
        if said is not None:
            self._emit(Notice(said, "information"))

    def _look_back(self, look: Look) -> None:
        if self._engine is None or self._opened is None or self._prompts is None:
            return
        try:
            look.run(self._engine, self._opened, self._prompts, self._emit)
        except Exception as error:
            self._emit(Notice(describe(error, self._opened.info.path)))

    def _read_ahead(self, ahead: Ahead) -> None:
        if self._engine is None or self._opened is None or self._prompts is None or self._kept is None:
            return
        try:
            tokens = ahead.run(self._engine, self._opened, self._prompts, self._kept)
        except Exception as error:  # whatever it is, an answer that has the same trouble says so
            log.info("not read ahead: %s", describe(error, self._opened.info.path))
        else:
            log.info("read ahead: %d tokens", tokens)

    def _emit(self, event: Event) -> None:
        self._events.append((None, event))

    def _release(self) -> None:
        opened, self._opened = self._opened, None
        self._prompts = self._kept = None
        if opened is not None:
            try:
                opened.close()
            except Exception as error:
                self._emit(Notice(describe(error, opened.info.path)))
