"""What is left out when a chat outgrows the context, decided from token counts alone."""

from __future__ import annotations

from collections.abc import Sequence

from tinyllm_chat.chat.backend import PromptMessage

STOP, DROP_OLDEST, SHIFT, SUMMARIZE = POLICIES = ("stop", "drop-oldest", "shift", "summarize")

FREED = 4  # leaving turns out frees a quarter of the context, so that not every turn does it again
ANSWER = 16  # a sixteenth of the context is little enough for an answer that something older is left out for it
# No tokenizer makes more tokens of a text than it has bytes; what templates add is bounded by experience only.
TEMPLATE_TOKENS, MESSAGE_TOKENS = 512, 32


def surely_fits(messages: Sequence[PromptMessage], room: int) -> bool:
    """Whether so few bytes cannot be more than `room` tokens, however they are tokenized."""
    most = TEMPLATE_TOKENS
    for message in messages:
        size = len(message.content.encode(errors="replace")) + len(message.reasoning.encode(errors="replace"))
        most += MESSAGE_TOKENS + max(size, len(message.ids or ()))
    return most <= room


def comfortable(context_length: int) -> int:
    """Tokens of a prompt that leave room for an answer."""
    return context_length - context_length // ANSWER


def oldest_turns(roles: Sequence[str], tokens: Sequence[int], context_length: int, keep: int = 0) -> range | None:
    """The messages to leave out, as few of the oldest turns as make a quarter of the context free.

    `roles` and `tokens` are those of a prompt. System messages stay, and so do turns that begin within the first `keep`
    tokens and the last turn, which is being answered. Where a quarter cannot be had, everything older goes, if the
    rest then leaves room for an answer. None: leaving out does not help.
    """
    starts = turn_starts(roles, tokens, keep)
    total, first = sum(tokens), starts[0] if starts else 0
    for start in starts[1:]:
        if total - sum(tokens[first:start]) <= context_length - context_length // FREED:
            return range(first, start)
    if len(starts) > 1 and total - sum(tokens[first : starts[-1]]) <= comfortable(context_length):
        return range(first, starts[-1])
    return None


def turns_to_condense(roles: Sequence[str], tokens: Sequence[int], context_length: int, keep: int = 0) -> range | None:
    """The messages that a summary shall stand for: the older half of the turns by tokens, but no more than the model
    can read at once with room for the summary. The last turn stays. None: there is nothing older.
    """
    starts = turn_starts(roles, tokens, keep)
    if len(starts) < 2:
        return None
    first, system = starts[0], sum(tokens[: starts[0]])
    readable = context_length - 2 * summary_tokens(context_length)
    half = sum(tokens[first:]) // 2
    chosen = None
    for start in starts[1:]:
        size = sum(tokens[first:start])
        if system + size > readable:
            break
        chosen = range(first, start)
        if size >= half:
            break
    return chosen


def summary_tokens(context_length: int) -> int:
    """The longest summary, in tokens. What asks for it takes about as much."""
    return max(32, min(512, context_length // 8))


def turn_starts(roles: Sequence[str], tokens: Sequence[int], keep: int = 0) -> list[int]:
    """Where the turns begin that may be left out: at each question that begins after the first `keep` tokens."""
    starts, before = [], 0
    for index, (role, count) in enumerate(zip(roles, tokens, strict=True)):
        if role == "user" and before >= keep:
            starts.append(index)
        before += count
    return starts
