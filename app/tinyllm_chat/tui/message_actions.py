"""What can be done with single messages and with the branches of the conversation.

An action is about the selected message; without one, about the last message that it fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.tui.registry import MESSAGES, action
from tinyllm_chat.tui.text import count

if TYPE_CHECKING:
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.app import TinyLLMChatApp


class MessageActions:
    """Handlers, to be mixed into all actions."""

    _app: TinyLLMChatApp
    _session: Session
    _next_block = 0  # of the selected message: which code block is copied next
    _blocks_of: str | None = None

    # Selection

    @action(
        "Select the message before, from the input the last one",
        keys="shift+tab",
        slash="select",
        on_message="up k",
        group=MESSAGES,
        hint="messages",
        rank=8,
        message_hint="move",
    )
    def select_previous(self) -> None:
        if not self._app.pane.move_selection(-1):
            raise SessionError("there is no message to select yet")
        self._app.pane.focus()

    @action(
        "Select the message after; behind the last one is the input",
        slash="select_next",
        on_message="down j tab",
        group=MESSAGES,
    )
    def select_next(self) -> None:
        if self._app.pane.selected is None or not self._app.pane.move_selection(1):
            self.leave_messages()
        else:
            self._app.pane.focus()

    @action("Select the first message", slash="select_first", on_message="home g", group=MESSAGES)
    def select_first(self) -> None:
        path = self._session.conversation.path()
        if path:
            self._app.pane.select(path[0].id)
            self._app.pane.focus()

    @action("Select the last message", slash="select_last", on_message="end G", group=MESSAGES)
    def select_last(self) -> None:
        path = self._session.conversation.path()
        if path:
            self._app.pane.select(path[-1].id)
            self._app.pane.focus()

    @action("Go back to the input", slash="input", on_message="escape enter i", group=MESSAGES, message_hint="back")
    def leave_messages(self) -> None:
        self._app.pane.select(None)
        self._app.prompt.focus()

    @action("Unfold the system prompt or what the model thought", slash="unfold", on_message="o space", group=MESSAGES)
    def unfold(self) -> None:
        message = self._wanted("assistant", "system")
        self._app.pane.turn_fold(message.id)

    # Taking

    @action(
        "Copy the message as it was written, else the last answer",
        keys="ctrl+y",
        slash="copy",
        on_message="c y",
        group=MESSAGES,
        message_hint="copy",
    )
    def copy(self) -> None:
        if self._app.pane.selected is None and not any(answer.content for answer in self._path("assistant")):
            raise SessionError("there is no answer to copy yet")
        message = self._wanted("assistant")
        self._app.copy(
            message.content, {"user": "Your message", "system": "The system prompt"}.get(message.role, "The answer")
        )

    @action(
        "Copy a code block of the message: the next one, or the one with that number (keys 1 to 9)",
        keys="alt+c",
        slash="code",
        argument="[N]",
        on_message="b",
        group=MESSAGES,
        message_hint="code",
    )
    def copy_code(self, argument: str) -> None:
        from tinyllm_chat.tui.widgets.markdown import code_blocks

        message = self._wanted("assistant")
        blocks = code_blocks(message.content)
        if not blocks:
            raise SessionError("there is no code block in that message")
        if argument:
            if not argument.isascii() or not argument.isdigit() or not 1 <= int(argument) <= len(blocks):
                raise SessionError(f"there are {count(len(blocks), 'code block')}, no number {argument}")
            index = int(argument) - 1
        else:
            index = self._next_block % len(blocks) if self._blocks_of == message.id else 0
        self._blocks_of, self._next_block = message.id, index + 1
        self._app.copy(blocks[index], f"Code block {index + 1} of {len(blocks)}" if len(blocks) > 1 else "The code")

    @action(
        "Quote the message in the input",
        keys="alt+q",
        slash="quote",
        on_message="q",
        group=MESSAGES,
        message_hint="quote",
    )
    def quote(self) -> None:
        message = self._wanted("assistant")
        quoted = "\n".join(f"> {line}".rstrip() for line in message.content.strip().split("\n"))
        prompt = self._app.prompt
        before = f"{prompt.text.rstrip()}\n\n" if prompt.text.strip() else ""
        prompt.set_text(f"{before}{quoted}\n\n")
        self.leave_messages()

    # Changing

    @action(
        "Edit the message, without one your last: sending puts it beside the old one",
        keys="alt+e",
        slash="edit",
        on_message="e",
        group=MESSAGES,
        message_hint="edit",
    )
    def edit(self) -> None:
        message = self._wanted("user")
        if message.role == "system":
            self._app.edit_system_prompt()
            return
        self._app.writing.begin_edit(message)
        self.leave_messages()

    @action(
        "Answer again, beside the present answer",
        keys="ctrl+r",
        slash="regen regenerate retry",
        on_message="r",
        group=MESSAGES,
        message_hint="again",
    )
    def regenerate(self) -> None:
        self._session.regenerate(self._app.pane.selected)
        self._app.pane.select(None)
        self._app.prompt.focus()
        self._app.pane.follow()

    @action(
        "Delete the message, without one the last, and all that follows it",
        slash="delete",
        on_message="d delete",
        group=MESSAGES,
        message_hint="delete",
    )
    def delete(self) -> None:
        message = self._wanted("user", "assistant")
        if message.role == "system":
            self._session.set_system_prompt("")
            self._app.say("The system prompt is gone; /system sets one")
            return
        path = [other.id for other in self._session.conversation.path()]
        above = path[max(0, path.index(message.id) - 1)]
        deleted = self._session.delete(message.id)
        self._app.wake()
        if self._app.pane.selected is None and self._app.pane.has_focus:
            if above in self._session.conversation:
                self._app.pane.select(above)
            else:
                self.leave_messages()
        self._app.say(f"Deleted {count(deleted, 'message')} · /undo brings back")

    @action("Undo what was last sent, edited, deleted or switched to", keys="alt+z", slash="undo", on_message="u")
    def undo(self) -> None:
        step = self._session.undo()
        if step.draft.text and step.removed is not None:
            self._app.prompt.give_back(step.draft)
        self._app.say(f"Undone: {step.what} · /redo does it again")

    @action("Do again what was undone", keys="alt+y", slash="redo", on_message="U")
    def redo(self) -> None:
        step = self._session.redo()
        if step.draft.text and self._app.prompt.draft == step.draft:
            self._app.prompt.take()
        self._app.say(f"Done again: {step.what}")

    # Branches

    @action(
        "Show the branch before this one, where there are several",
        keys="alt+comma alt+p",
        slash="previous",
        on_message="left h",
        group=MESSAGES,
    )
    def previous_answer(self) -> None:
        self._other_branch(-1)

    @action(
        "Show the branch after this one",
        keys="alt+full_stop alt+n f9",
        slash="next",
        on_message="right l",
        group=MESSAGES,
    )
    def next_answer(self) -> None:
        self._other_branch(1)

    @action("See the whole conversation and its branches", keys="alt+t", slash="tree", on_message="t", group=MESSAGES)
    def tree(self) -> None:
        if self._session.conversation.leaf is None:
            raise SessionError("there is no message yet")
        from tinyllm_chat.tui.tree import TreeScreen

        conversation = self._session.conversation
        cursor = self._app.pane.selected or conversation.head
        self._app.push_screen(TreeScreen(conversation, cursor), self._open_branch)

    # Inside

    def _open_branch(self, message_id: str | None) -> None:
        if message_id is None or message_id not in self._session.conversation:
            return
        self._app.attempt(lambda: self._session.select(message_id))
        if any(message.id == message_id for message in self._path()):
            self._app.pane.select(message_id)
            self._app.pane.focus()

    def _other_branch(self, step: int) -> None:
        conversation, pane = self._session.conversation, self._app.pane
        candidates = [self._wanted()] if pane.selected is not None else [*self._path("user", "assistant")][::-1]
        message = next((each for each in candidates if self._branches(each) > 1), None)
        if message is None:
            raise SessionError("there is one branch only; /regen makes another answer, editing another question")
        siblings = conversation.siblings(message.id)
        target = siblings[(siblings.index(message.id) + step) % len(siblings)]
        self._session.select(target)
        if pane.selected is not None:
            self._app.wake()
            pane.select(target)

    def _branches(self, message: Message) -> int:
        return len(self._session.conversation.siblings(message.id)) if message.role != "system" else 1

    def _path(self, *roles: str) -> Iterator[Message]:
        return (message for message in self._session.conversation.path() if not roles or message.role in roles)

    def _wanted(self, *roles: str) -> Message:
        """The selected message, else the last one of these roles. Raises SessionError."""
        selected = self._app.pane.selected
        messages = [message for message in self._path() if message.id == selected] or [*self._path(*roles)]
        if not messages:
            raise SessionError("there is no message for that yet")
        return messages[-1]
