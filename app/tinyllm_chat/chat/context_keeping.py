"""The part of a session that sees to it that a chat fits into the context, and says what that takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.context_policy import SHIFT
from tinyllm_chat.chat.conversation import Conversation, Message
from tinyllm_chat.chat.cuts import Cut, longer, seen
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.events import Condensed, ContextShifted, Event, MessageRefused, ModelInfo, Notice, PathChanged
from tinyllm_chat.chat.room import OFFERS, Condense, Fits, Refused, Room
from tinyllm_chat.chat.settings import SESSION, Settings
from tinyllm_chat.chat.summary import Summary
from tinyllm_chat.chat.transcript import Transcript

THINK = {"auto": None, "on": True, "off": False}
NOTHING = Draft()
SUMMARY_TEMPERATURE = 0.3  # a summary shall be true rather than new


class ContextKeeping(ABC):
    """A conversation, a model, and what the model is not shown of the conversation."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.settings = settings
        self.conversation = Conversation()
        self.model: ModelInfo | None = None
        self._backend = backend
        self._own_events: list[Event] = []
        self._summary: Summary | None = None  # while it is being written
        self._full: tuple[Message, int] | None = None  # an answer that filled the context, and what it generated

    @property
    @abstractmethod
    def busy(self) -> bool: ...

    @abstractmethod
    def count_tokens(self, text: str) -> int | None: ...

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def _require_idle(self, *, model: bool = True) -> None: ...

    @abstractmethod
    def _own_file(self, title: str) -> None: ...

    @abstractmethod
    def _record(self, write: Callable[[Transcript], None], transcript: Transcript | None = None) -> None: ...

    @abstractmethod
    def _write_on(self, answer: Message, max_tokens: int) -> None: ...

    def set_context_full(self, value: str) -> None:
        """What happens then: one of context_policy.POLICIES. Raises SettingsError."""
        self.settings = self.settings.with_value(SESSION, "context_full", value)

    def drop_oldest(self) -> None:
        """Leaves the oldest turns out, as many as free a quarter of the context. Raises SessionError."""
        self._require_idle()
        path = self.conversation.path()
        cut = self._room().leave_out(path, self.conversation.cut)
        if cut is None:
            raise SessionError("there are no older turns to leave out: the last one stays")
        self._own_file(self.title)
        self._leave_out(cut)

    def summarize(self) -> None:
        """Has the model write a summary that stands for the oldest turns. Raises SessionError."""
        self._require_idle()
        path = self.conversation.path()
        plan = self._room().condense(path, self.conversation.cut)
        if plan is None:
            raise SessionError("there are no older turns to summarize: the last one stays")
        self._own_file(self.title)
        self._summarize(plan, None, Draft())

    def set_summary(self, text: str) -> None:
        """Changes what stands for the turns that the model does not see; empty: nothing does. Raises SessionError."""
        self._require_idle(model=False)
        cut = self.conversation.cut
        if cut is None:
            raise SessionError("the model sees the whole chat: there is nothing that a summary stands for")
        self._own_file(self.title)
        self._leave_out(replace(cut, summary=text.strip()))

    def show_all(self) -> None:
        """Has the model see the whole chat again. Raises SessionError."""
        self._require_idle(model=False)
        if self.conversation.cut is None:
            raise SessionError("the model sees the whole chat")
        self._own_file(self.title)
        while (cut := self.conversation.cut) is not None:
            del self.conversation.cuts[cut.end]
            self._record(partial(Transcript.lift, cut=cut))
        self._own_events.append(PathChanged())

    # Inside

    def _room(self, *, continue_last: bool = False) -> Room:
        assert self.model is not None
        measure = partial(self._backend.measure, continue_last=continue_last, think=THINK[self.settings.value("think")])
        settings = self.settings
        return Room(
            self.model.context_length,
            settings.value("context_full"),
            measure,
            self.count_tokens,
            settings.value("keep"),
        )

    def _make_room(
        self, path: Sequence[Message], again: Callable[[], None], draft: Draft = NOTHING, *, continue_last: bool = False
    ) -> Fits | None:
        """Whether a path can be answered now. Else it is said why not, or `again` follows once there is a summary."""
        plan = self._room(continue_last=continue_last).plan(path, self.conversation.cut_of(path))
        if isinstance(plan, Refused):
            before = seen(path[:-1] if draft.text else path, self.conversation.cut_of(path))
            older = sum(message.role == "user" for message in before) > 1  # the last turn of a chat stays
            self._refuse(draft, plan.message, plan.offers if older else plan.offers[:1])
        elif isinstance(plan, Condense):
            self._summarize(plan, again, draft)
        else:
            return plan
        return None

    def _refuse(self, draft: Draft, message: str, offers: tuple[str, ...] = ()) -> None:
        event = MessageRefused(draft, message, offers) if draft.text else Notice(message, "warning", offers)
        self._own_events.append(event)

    def _leave_out(self, cut: Cut | None) -> None:
        if cut is None:
            return
        self.conversation.cuts[cut.end] = cut
        self._record(lambda transcript: transcript.cut(cut))
        self._tell_cut(cut)

    def _after_full(self) -> None:
        """After an answer that filled the context: writes on if the policy makes room, or says what can be done."""
        if self._full is None or self.busy:
            return
        (answer, generated), self._full = self._full, None
        limit, path = self.settings.value("max_tokens"), self.conversation.path()
        if self.model is None or path[-1] is not answer:
            return
        if generated and self.settings.value("context_full") != SHIFT:  # which has been tried
            plan = self._room(continue_last=True).plan(path, self.conversation.cut)
            if isinstance(plan, Condense) or (isinstance(plan, Fits) and plan.cut is not None):
                self._write_on(answer, limit and limit - generated)
                return
        full, own = self.model.context_length, self.model.model_context_length
        more = f"; -c {own} opens the model with more" if own > full else ""
        older = sum(message.role == "user" for message in path) > 1
        said = f"the context is full, {full:,} of {full:,} tokens{more}"
        self._own_events.append(Notice(said, "warning", OFFERS if older else OFFERS[:1]))

    def _summarize(self, plan: Condense, again: Callable[[], None] | None, draft: Draft) -> None:
        """Asks the model for the summary; `again` is what was wanted before, sending `draft` unless it is empty."""
        self._summary = Summary(plan.cut, again, draft)
        try:
            self._backend.answer(
                self._summary.id,
                plan.messages,
                sampling={**self.settings.sampling(), "temperature": SUMMARY_TEMPERATURE},
                max_tokens=plan.max_tokens,
                think=False,
                free=True,
            )
        except Exception:  # nothing will ever be reported of it
            self._summary = None
            raise
        self._own_events.append(self._summary.progress)

    def _is_of_summary(self, event: Event) -> bool:
        """Takes in what concerns the summary that is being written."""
        summary = self._summary
        if summary is None or getattr(event, "message_id", None) != summary.id:
            return False
        if summary.take(event):
            self._end_summary(summary)
        else:
            self._own_events.append(summary.progress)
        return True

    def _end_summary(self, summary: Summary) -> None:
        self._summary = None
        self._own_events.append(Condensed())
        if summary.failure:
            self._refuse(summary.draft, summary.failure)
            return
        self._leave_out(summary.cut)
        if summary.again is not None:
            summary.again()

    def _take_shift(self, event: ContextShifted, conversation: Conversation, transcript: Transcript | None) -> None:
        """The answer that is being written goes on without the oldest turns."""
        path = conversation.path_to(event.message_id)
        cut = longer(path, conversation.cut_of(path), event.begin, event.end, event.tokens)
        conversation.cuts[cut.end] = cut
        self._record(lambda transcript: transcript.cut(cut), transcript)
        if conversation is self.conversation:
            self._tell_cut(cut)

    def _tell_cut(self, cut: Cut) -> None:
        self._own_events.append(PathChanged())
        said = "a summary stands for" if cut.summary else "the model no longer sees"
        self._own_events.append(Notice(f"{said} {cut.amount}", "information"))
