"""What the tokens of a finished answer were chosen from, found out when somebody wants to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tinyllm_chat.chat.answering import seen
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.choices import SHOWN, TokenChoice
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.events import Event, Notice, TokensSeen
from tinyllm_chat.chat.opening import OpenModel
from tinyllm_chat.chat.prompt import PromptBuilder

PIECE = 64  # tokens in one event


class Look:
    """A look at an answer that was asked for, the last of some messages. One thread runs it, another may cancel it."""

    def __init__(self, messages: Sequence[PromptMessage], think: bool | None = None) -> None:
        self._messages = messages
        self._think = think
        self._lock = threading.Lock()
        self._cancelled = False
        self._cancel: Any = None  # the engine's, while it runs

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._cancel is not None:
                self._cancel.set()

    def run(self, engine: EngineApi, opened: OpenModel, prompts: PromptBuilder, emit: Callable[[Event], None]) -> None:
        """Reports what there was to choose, piece by piece. Raises EngineError, unless that is of being cancelled."""
        with self._lock:
            if self._cancelled:
                return
            self._cancel = engine.Cancel()
        answer = self._messages[-1]
        own = list(answer.ids or ())
        ids = prompts.build(self._messages, continue_last=True, think=self._think).ids
        start = len(ids) - len(own)
        if not own or start < 1 or ids[start:] != own:
            emit(Notice("this answer has no tokens of the present model: there is nothing to look at"))
            return
        choices: list[TokenChoice] = []
        told = 0
        try:
            for token in engine.look_back(opened.branches.select(ids), ids, start, SHOWN, cancel=self._cancel):
                choices.append(seen(token))
                if len(choices) - told == PIECE:
                    emit(TokensSeen(answer.id, told, tuple(choices[told:])))
                    told = len(choices)
        except engine.EngineError:
            if not self._cancelled:
                raise
        if told < len(choices):
            emit(TokensSeen(answer.id, told, tuple(choices[told:])))
