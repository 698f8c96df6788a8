"""The part of a session that looks at the model: what tokens were chosen from, other tokens, where time goes."""

from __future__ import annotations

from abc import abstractmethod

from tinyllm_chat.chat.choices import END
from tinyllm_chat.chat.context_keeping import THINK, ContextKeeping
from tinyllm_chat.chat.conversation import Message, MessageState
from tinyllm_chat.chat.cuts import for_model
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.events import OpProfile, PathChanged
from tinyllm_chat.chat.settings import SESSION
from tinyllm_chat.chat.steps import Step, Steps


class Looking(ContextKeeping):
    """A part of `Session`."""

    profile: OpProfile | None = None  # the latest
    _steps: Steps

    @abstractmethod
    def _message(self, message_id: str) -> Message: ...

    @abstractmethod
    def _record_head(self) -> None: ...

    @abstractmethod
    def _start(self, answer: Message, max_tokens: int, *, continue_last: bool) -> None: ...

    def show_profile(self, on: bool) -> None:
        """Shall the backend tell where the time goes?"""
        self.settings = self.settings.with_value(SESSION, "show_profile", on)
        self.follow_profile()

    def follow_profile(self) -> None:
        """Has the backend do what the settings say of the profile."""
        self._backend.set_profiling(self.settings.value("show_profile"))

    def keep_choices(self, on: bool) -> None:
        """Shall answers keep what their tokens were chosen from, from the next one on?"""
        self.settings = self.settings.with_value(SESSION, "inspect_tokens", on)

    def look_back(self, message_id: str) -> None:
        """Has the model say what the tokens of an answer were chosen from. Raises SessionError."""
        self._require_idle()
        message = self._message(message_id)
        if message.role != "assistant" or not message.ids:
            raise SessionError("only answers have tokens to look at")
        path = self.conversation.path_to(message_id)
        messages = for_model(path, self.conversation.cut_of(path))
        self._backend.look_back(messages, think=THINK[self.settings.value("think")])

    def branch(self, message_id: str, token: int, place: int) -> None:
        """Puts an answer beside `message_id` that is the same up to `token`, has the alternative number `place` there,
        and goes on from it. Raises SessionError.
        """
        self._require_idle()
        assert self.model is not None
        old = self._message(message_id)
        if old.fingerprint != self.model.fingerprint:
            raise SessionError("another model wrote this answer")
        choice = old.choices.get(token)
        if choice is None or not 0 <= place < len(choice.alternatives) or not old.has_seen(token):
            raise SessionError("that token was not looked at")
        self._own_file(self.title)
        before = self.conversation.head
        answer = self.conversation.new_message("assistant", "", old.parent)
        answer.fingerprint, answer.model = self.model.fingerprint, self.model.name
        answer.begin_as(old, token, place)
        ends = choice.alternatives[place].kind == END
        if ends:
            answer.finish("eog", None)
        else:
            answer.state = MessageState.INTERRUPTED  # on disk, until it goes on
        self._record(lambda transcript: transcript.whole_message(answer))
        self._record_head()
        self._steps.take(Step("the branch", before, added=answer.id))
        if ends:
            self._own_events.append(PathChanged())
        else:
            answer.resume(self.model.fingerprint)
            self._start(answer, self.settings.value("max_tokens"), continue_last=True)
