"""The whole tree of a conversation as lines, one for each message."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_chat.chat.conversation import Conversation, Message


@dataclass(frozen=True, slots=True)
class OutlineRow:
    """One message of the tree."""

    message: Message
    guides: str  # lines that lead to it from the branches above
    variant: str  # "2/3" where a branch begins
    visible: bool  # it is part of the chat that is seen


def outline(conversation: Conversation) -> list[OutlineRow]:
    """Depth first, the oldest branch first. Only branches are indented: a chat without any is a plain list."""
    visible = {message.id for message in conversation.path()}
    rows: list[OutlineRow] = []
    # What is still to be shown, the next last: id, its guides, the guides of what is below it, its variant.
    waiting = _branches(conversation, None, "")
    while waiting:
        message_id, guides, below, variant = waiting.pop()
        rows.append(OutlineRow(conversation[message_id], guides, variant, message_id in visible))
        waiting += _branches(conversation, message_id, below)
    return rows


def _branches(conversation: Conversation, parent: str | None, guides: str) -> list[tuple[str, str, str, str]]:
    children = conversation.children(parent)
    if len(children) == 1:
        return [(children[0], guides, guides, "")]
    last = len(children)
    entries = [
        (
            child,
            guides + ("└ " if number == last else "├ "),
            guides + ("  " if number == last else "│ "),
            f"{number}/{last}",
        )
        for number, child in enumerate(children, 1)
    ]
    return entries[::-1]
