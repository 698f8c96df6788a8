"""What the tokens of a finished answer were chosen from, found out when somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyllm_chat.chat.answering import seen
from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.cancellable import Cancellable
from tinyllm_chat.chat.choices import SHOWN, TokenChoice
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.events import Event, Notice, TokensSeen
from tinyllm_chat.chat.opening import OpenModel
from tinyllm_chat.chat.prompt import PromptBuilder

PIECE = 64  # tokens in one event


class Look(Cancellable):
    """A look at an answer that was asked for, the last of some messages."""

    def __init__(self, messages: Sequence[PromptMessage], think: bool | None = None) -> None:
        super().__init__()
        self._messages = messages
        self._think = think

    def run(self, engine: EngineApi, opened: OpenModel, prompts: PromptBuilder, emit: Callable[[Event], None]) -> None:
        """Reports what there was to choose, piece by piece. Raises EngineError, unless that is of being cancelled."""
        if not self._begin(engine):
            return
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
