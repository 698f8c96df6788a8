"""The part of a session that changes the tree of the conversation, or which branch of it is seen."""

from __future__ import annotations

from collections.abc import Callable

from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.conversation import Conversation, Message
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.events import PathChanged
from tinyllm_chat.chat.filing import Filing
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.steps import Step, Steps
from tinyllm_chat.chat.transcript import TranscriptStore


class Branching(Filing):
    """A part of `Session`."""

    def __init__(self, backend: Backend, settings: Settings, store: TranscriptStore | None) -> None:
        super().__init__(backend, settings, store)
        self._steps = Steps(self._record)

    def edit_answer(self, message_id: str, text: str) -> None:
        """Puts another answer beside `message_id` that says `text`. Raises SessionError."""
        self._require_idle(model=False)
        message = self._message(message_id)
        if message.role != "assistant":
            raise SessionError("only answers can be rewritten")
        self._own_file(self.title)
        before = self.conversation.head
        edited = self.conversation.new_message("assistant", "", message.parent)
        edited.model = message.model
        edited.extend(text, ())  # without token ids: the model did not write this
        edited.finish("edited", None)
        self._record(lambda transcript: transcript.whole_message(edited))
        self._changed(Step("the edit", before, added=edited.id))

    def select_sibling(self, message_id: str, step: int) -> None:
        """Shows the alternative `step` places after `message_id`, around the end. Raises SessionError."""
        self._require_idle(model=False)
        self._message(message_id)
        siblings = self.conversation.siblings(message_id)
        self.select(siblings[(siblings.index(message_id) + step) % len(siblings)])

    def select(self, message_id: str) -> None:
        """Shows the branch that a message stands in. Raises SessionError."""
        self._require_idle(model=False)
        if any(message.id == message_id for message in self.conversation.path()):
            return
        before = self.conversation.head
        self.conversation.select(self._message(message_id).id)
        self._steps.take(Step("the other branch", before))
        if not self.read_only:
            self._record_head()
        self._own_events.append(PathChanged())

    def delete(self, message_id: str) -> int:
        """Takes a message and all below it out of the chat; returns how many. Raises SessionError."""
        self._require_idle(model=False)
        self._message(message_id)
        self._own_file(self.title)
        step = Step("the deletion", self.conversation.head)
        self._steps.remove(self.conversation, step, message_id)
        self._changed(step)
        assert step.removed is not None
        return len(step.removed.messages)

    def undo(self) -> Step:
        """Takes back the last thing that was sent, edited, deleted or switched to. Raises SessionError."""
        self._require_idle(model=False)
        return self._again(self._steps.undo)

    def redo(self) -> Step:
        """Does again what was undone last. Raises SessionError."""
        self._require_idle(model=False)
        return self._again(self._steps.redo)

    # Inside

    def _changed(self, step: Step) -> None:
        """The tree or what is visible of it is another one."""
        self._record_head()
        self._steps.take(step)
        self._own_events.append(PathChanged())

    def _again(self, turn: Callable[[Conversation], Step]) -> Step:
        self._own_file(self.title)
        step = turn(self.conversation)
        self._own_events.append(PathChanged())
        return step

    def _message(self, message_id: str) -> Message:
        if message_id not in self.conversation:
            raise SessionError("that message is not part of this chat")
        return self.conversation[message_id]
