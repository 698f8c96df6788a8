"""What was done to a conversation's tree, so that it can be undone and done again.

Nothing is lost by an undo: what was added is taken out of the tree and kept, and the transcript records both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tinyllm_chat.chat.conversation import Conversation, Removed
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.transcript import Transcript

KEPT = 200  # steps of one chat

Record = Callable[[Callable[[Transcript], None]], None]


@dataclass(slots=True)
class Step:
    """One change. Exactly one of `added` and `removed` is set while it is in force; neither: another branch is seen."""

    what: str  # in words that follow "undone:" and "done again:"
    before: str | None  # the visible leaf before it
    after: str | None = None  # and since
    added: str | None = None  # the message that was put into the tree, with what came below it since
    removed: Removed | None = None
    draft: Draft = field(default_factory=Draft)  # what the user had written for it


class Steps:
    """The steps of one chat, the latest last. `record` writes to its transcript."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._done: list[Step] = []
        self._undone: list[Step] = []

    def take(self, step: Step) -> None:
        """Notes a step that was just made. What was undone before cannot be done again any more."""
        self._undone.clear()
        self._done = [*self._done[1 - KEPT :], step]

    def forget(self) -> None:
        """The chat is another one."""
        self._done, self._undone = [], []

    def undo(self, conversation: Conversation) -> Step:
        """Takes back the latest step. Raises SessionError."""
        if not self._done:
            raise SessionError("there is nothing to undo")
        step = self._done.pop()
        step.after = conversation.head
        self._turn(conversation, step, step.before)
        self._undone.append(step)
        return step

    def redo(self, conversation: Conversation) -> Step:
        """Does again what was undone last. Raises SessionError."""
        if not self._undone:
            raise SessionError("there is nothing to do again")
        step = self._undone.pop()
        self._turn(conversation, step, step.after)
        self._done.append(step)
        return step

    def _turn(self, conversation: Conversation, step: Step, head: str | None) -> None:
        """What is in the tree because of the step goes out, what is out comes back."""
        if step.added is not None:
            self.remove(conversation, step, step.added)
        elif (removed := step.removed) is not None:
            root = removed.messages[0].id
            conversation.restore(removed)
            self._record(lambda transcript: transcript.restore(root))
            step.added, step.removed = root, None
        conversation.head = head
        self._record(lambda transcript: transcript.head(head))

    def remove(self, conversation: Conversation, step: Step, message_id: str) -> None:
        """Takes a message with all below it out of the tree, for the step to keep."""
        step.added, step.removed = None, conversation.remove(message_id)
        self._record(lambda transcript: transcript.delete(message_id))
