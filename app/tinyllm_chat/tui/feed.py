"""Carries what the chat layer reports to the widgets: events as they come, the picture of the cache with them, and
figures a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from tinyllm_chat.chat import conversation
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    AnswerStats,
    CacheState,
    Condensed,
    Condensing,
    ContextShifted,
    Event,
    MessageRefused,
    ModelFailed,
    ModelInfo,
    ModelLoading,
    ModelReady,
    Notice,
    PathChanged,
    ReadingPrompt,
    TextDelta,
)
from tinyllm_chat.tui.text import size
from tinyllm_chat.tui.widgets.bars import Titles
from tinyllm_chat.tui.widgets.pane import ChatPane
from tinyllm_chat.tui.widgets.panels import Speed
from tinyllm_chat.tui.widgets.progress import Progress

if TYPE_CHECKING:
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.app import TinyLLMChatApp

FIGURES_INTERVAL = 0.25  # seconds between two readings of the other figures: faster ones cannot be read
SAMPLE_INTERVAL = 0.5  # seconds between two points of the speed curve


class Feed:
    """One per app; runs on its thread. `clock` returns seconds."""

    def __init__(self, app: TinyLLMChatApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._speed = Speed()
        self.reading: ReadingPrompt | None = None  # while a prompt is read
        self._next_figures = 0.0
        self._next_sample = 0.0
        self._model_path = ""

    @property
    def _session(self) -> Session:
        return self._app.session

    @property
    def _pane(self) -> ChatPane:
        return self._app.pane

    @property
    def idle(self) -> bool:
        """Nothing is expected before the user does something."""
        session = self._session
        return not session.busy and session.loading is None and not (session.queued and session.model is not None)

    def opening(self, path: str) -> None:
        """A model is being opened."""
        self._model_path = path
        self.show_progress(Progress.of_stage("opening", 0, 0))
        self.show_titles()

    def tick(self) -> None:
        """Applies what has happened since the last tick."""
        events = self._session.drain()
        for event in events:
            try:
                self._apply(event)
            except Exception as error:  # what comes behind it counts all the same
                self._app.mishap(error)
        if self.idle and any(isinstance(event, AnswerFinished | PathChanged | ModelReady) for event in events):
            self._session.read_ahead()
        if any(isinstance(event, CacheState) for event in events):
            self._app.figures.follow_cache()
        last = self._pane.views[-1:]
        if any(view.paint() for view in last) or not all(isinstance(event, TextDelta | CacheState) for event in events):
            self._pane.update()
        self._app.figures.show_note(self._note())
        now = self._clock()
        if now >= self._next_figures:
            self._next_figures = now + FIGURES_INTERVAL
            self.show_figures(sample=self._session.busy and now >= self._next_sample and self._speed.decode > 0)

    def _note(self) -> str:
        """What the line above the input reminds of."""
        if self._app.writing.editing is not None:
            return "editing a message · Esc leaves it as it is"
        above = self._session.busy and not self._pane.following
        return f"↓ more below · {self._app.keymap.key('scroll_bottom')}" if above else ""

    def _apply(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._text(event)
            case ReadingPrompt():
                self._reading(event)
            case AnswerStarted():
                self._answer_started(event)
            case AnswerFinished() | AnswerFailed():
                self._answer_ended(event)
            case PathChanged():
                self.show_path()
            case ModelLoading():
                self.show_progress(Progress.of_stage(event.stage, event.done, event.total))
            case ModelReady():
                self._model_ready(event.info)
            case ModelFailed():
                self.show_progress(None)
                self._pane.add_note(f"{event.message} · /model opens another one", "error")
                self.show_titles()
            case Notice():
                self._app.report(event.message, event.severity, event.offers)
            case MessageRefused():
                self._app.writing.return_to_prompt([event.draft])
                self._app.report(event.message, "warning", event.offers)
            case Condensing():
                self.show_progress(Progress.of_summary(event))
            case Condensed():
                self.show_progress(None)
            case CacheState() | ContextShifted():
                pass  # the session keeps what they say; shown as a picture, or by a changed path

    # Answers

    def _answer_started(self, event: AnswerStarted) -> None:
        self._app.figures.begin_curve()
        if view := self._pane.view_of(event.message_id):
            view.show_progress(Progress.of_prompt(event.reused_tokens, event.prompt_tokens, 0.0))

    def _reading(self, event: ReadingPrompt) -> None:
        self.reading = event
        self._speed = Speed(self._speed.decode, event.tokens_per_second, self._speed.first_token)
        if view := self._pane.view_of(event.message_id):
            view.show_progress(Progress.of_prompt(event.done, event.total, event.tokens_per_second))

    def _text(self, event: TextDelta) -> None:
        self.reading = None
        self._speed = Speed(event.tokens_per_second, self._speed.prefill, self._speed.first_token)
        if view := self._pane.view_of(event.message_id):
            view.take_text()
            if event.sampling is not None:
                view.show_state()
                self._pane.update()

    def _answer_ended(self, event: AnswerFinished | AnswerFailed) -> None:
        self.reading = None
        if isinstance(event, AnswerFinished):
            self._take_stats(event.stats)
        if view := self._pane.view_of(event.message_id):
            view.finish()
        self._pane.prune()
        self.show_titles()
        self.show_figures(sample=self._speed.decode > 0)

    def _take_stats(self, stats: AnswerStats) -> None:
        old = self._speed
        self._speed = Speed(
            stats.decode_tokens_per_second or old.decode,
            stats.prefill_tokens_per_second or old.prefill,
            stats.first_token_seconds or old.first_token,
        )

    # Model

    def show_progress(self, progress: Progress | None) -> None:
        self._pane.show_progress(progress)

    def _model_ready(self, info: ModelInfo) -> None:
        self.show_progress(None)
        self._pane.show_welcome(
            info.name,
            (
                f"{_parameters(info.parameters)} parameters · {info.file_type} · {size(info.file_bytes)}",
                f"{info.context_length} tokens of context · {info.threads} threads",
                *(f"LoRA {adapter}" for adapter in info.adapters),
            ),
        )
        self._app.models.opened(info.path)
        for note in info.notes:
            self._pane.add_note(note, "information")
        self.show_titles()
        self.show_figures()
        self._app.writing.count()

    # Everything else that is seen

    def show_path(self) -> None:
        conversation = self._session.conversation
        self._pane.show_path(conversation.path(), conversation.cut)
        self._pane.show_queued(self._session.queued)
        self.show_titles()

    def show_titles(self) -> None:
        session = self._session
        path = session.conversation.path()
        turns = sum(message.role == "user" for message in path)
        model = session.model
        name = model.name if model is not None else PurePath(self._model_path).stem
        if session.read_only:
            keeping = "read-only"
        else:
            keeping = "saved" if session.transcript_path is not None else "not saved" if turns else ""
        file_type = "" if model is None else model.file_type + (" + LoRA" if model.adapters else "")
        self._app.header.show(Titles(name, file_type, session.title, turns, keeping, session.conversation.pinned))

    def show_figures(self, *, sample: bool = False) -> None:
        """Brings panels and status up to date; `sample` adds a point to the speed curve."""
        if sample:
            self._next_sample = self._clock() + SAMPLE_INTERVAL
        self._app.figures.show(self._speed, self._speed.decode if sample else None)


def variant_of(chat: conversation.Conversation, message: conversation.Message) -> str:
    """Which of several branches a message begins, as "2/3"; empty for an only one."""
    if message.role == "system" or message.id not in chat:
        return ""
    siblings = chat.siblings(message.id)
    return f"{siblings.index(message.id) + 1}/{len(siblings)}" if len(siblings) > 1 else ""


def _parameters(number: int) -> str:
    if number >= 999_500_000:
        return f"{number / 1e9:.1f} B"
    return f"{number / 1e6:.0f} M"
