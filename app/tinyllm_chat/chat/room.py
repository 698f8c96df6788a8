"""Making a prompt fit: what has to happen before a chat that may be too long for the context can be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.context_policy import (
    STOP,
    SUMMARIZE,
    comfortable,
    oldest_turns,
    summary_tokens,
    surely_fits,
    turns_to_condense,
)
from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.cuts import Cut, for_model, longer

Measure = Callable[[Sequence[PromptMessage]], Sequence[int] | None]

NEW_CHAT, DROP, SUMMARY = OFFERS = ("new_chat", "drop", "summarize")  # what can be done where a chat is full
COUNTED_AT_LEAST = 1000  # characters of a long text that one call of `count` looks at
ASK_FOR_SUMMARY = (
    "Summarize our conversation so far in a few sentences, so that it can go on from your summary alone. "
    "Keep names, numbers, decisions and open questions. Write only the summary."
)


@dataclass(frozen=True, slots=True)
class Fits:
    """It can be answered, with `cut` in force if that is not None."""

    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class Condense:
    """First the model has to be asked for the summary that `cut` lacks."""

    cut: Cut
    messages: tuple[PromptMessage, ...]  # which ask for it
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot be answered: `message` is one line, `offers` are among OFFERS."""

    message: str
    offers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """A context, the policy for when it is full, and a way to count.

    measure: tokens that each message takes in a prompt; None where that cannot be said
    count: tokens of a text; None where that takes another call
    keep: turns that begin within so many tokens always stay
    """

    context_length: int
    policy: str
    measure: Measure
    count: Callable[[str], int | None]
    keep: int = 0

    def plan(self, path: Sequence[Message], cut: Cut | None) -> Fits | Condense | Refused:
        """What to do with a path, a question or the answer to write on at its end, of which `cut` is not shown."""
        length = self.context_length
        limit = length if self.policy == STOP else comfortable(length)
        prompt = for_model(path, cut)
        if surely_fits(prompt, limit):
            return Fits()
        if (refusal := self._far_too_long(prompt)) is not None:
            return refusal
        tokens = self.measure(prompt)
        if tokens is None or sum(tokens) <= limit:
            return Fits()  # what cannot be measured cannot be answered either, and that says why
        if (refusal := self._too_long(prompt, tokens)) is not None:
            return refusal
        if self.policy == SUMMARIZE:
            plan: Fits | Condense | None = self._condense(prompt, tokens, path, cut)
        else:
            plan = None if self.policy == STOP else self._leave_out(prompt, tokens, path, cut)
        if plan is None and sum(tokens) <= length:
            return Fits()
        return plan or self._full(prompt, tokens)

    def leave_out(self, path: Sequence[Message], cut: Cut | None) -> Cut | None:
        """The cut that leaves out the oldest turns, at least one; None: there is none that can be."""
        prompt = for_model(path, cut)
        tokens = self.measure(prompt)
        plan = None if tokens is None else self._leave_out(prompt, tokens, path, cut)
        return plan.cut if plan is not None else None

    def condense(self, path: Sequence[Message], cut: Cut | None) -> Condense | None:
        """How to have the oldest turns summarized; None: there is none that can be."""
        prompt = for_model(path, cut)
        tokens = self.measure(prompt)
        return None if tokens is None else self._condense(prompt, tokens, path, cut)

    def _leave_out(
        self, prompt: Sequence[PromptMessage], tokens: Sequence[int], path: Sequence[Message], cut: Cut | None
    ) -> Fits | None:
        roles = [message.role for message in prompt]
        chosen = oldest_turns(roles, tokens, self.context_length, self._kept(prompt, tokens, cut))
        return None if chosen is None else Fits(_cut(prompt, tokens, chosen, path, cut))

    def _condense(
        self, prompt: Sequence[PromptMessage], tokens: Sequence[int], path: Sequence[Message], cut: Cut | None
    ) -> Condense | None:
        roles = [message.role for message in prompt]
        chosen = turns_to_condense(roles, tokens, self.context_length, self._kept(prompt, tokens, cut))
        if chosen is None:
            return None
        system = [message for message in prompt[: chosen.start] if message.role == "system"]
        question = PromptMessage("", "user", ASK_FOR_SUMMARY)
        asking = (*system, *prompt[chosen.start : chosen.stop], question)
        return Condense(_cut(prompt, tokens, chosen, path, cut), asking, summary_tokens(self.context_length))

    def _kept(self, prompt: Sequence[PromptMessage], tokens: Sequence[int], cut: Cut | None) -> int:
        """Tokens at the start that stay: a second cut goes on where the first one ends."""
        if cut is None:
            return self.keep
        return sum(tokens[: next(index for index, message in enumerate(prompt) if message.id == cut.end)])

    def _far_too_long(self, prompt: Sequence[PromptMessage]) -> Refused | None:
        """A message for which no prompt need be built to see that it does not fit: a pasted book."""
        last = prompt[-1]
        if last.role != "user" or len(last.content) <= self.context_length:
            return None
        tokens = self._count_all(last.content)
        if tokens is None or tokens <= self.context_length:
            return None
        rest = [*(message for message in prompt if message.role == "system"), replace(last, content="x")]
        frame = self.measure(rest) or [0, 1]
        return self._refusal(tokens + frame[-1] - 1, sum(frame[:-1]))

    def _count_all(self, text: str) -> int | None:
        for _ in range(1 + len(text) // COUNTED_AT_LEAST):
            if (tokens := self.count(text)) is not None:
                return tokens
        return None

    def _refusal(self, tokens: int, system: int) -> Refused:
        share = f", {system:,} of them are the system prompt" if system else ""
        return Refused(f"this message has {tokens:,} tokens; {self.context_length:,} fit{share}")

    def _too_long(self, prompt: Sequence[PromptMessage], tokens: Sequence[int]) -> Refused | None:
        """A message that does not even fit into an empty chat."""
        system = sum(count for message, count in zip(prompt, tokens, strict=True) if message.role == "system")
        if prompt[-1].role != "user" or system + tokens[-1] <= self.context_length:
            return None
        return self._refusal(tokens[-1], system)

    def _full(self, prompt: Sequence[PromptMessage], tokens: Sequence[int]) -> Refused:
        if prompt[-1].role == "user":
            said = f"this message has {tokens[-1]:,} tokens, the chat before it {sum(tokens[:-1]):,}"
        else:
            said = f"this chat has {sum(tokens):,} tokens"
        older = sum(message.role == "user" for message in prompt) > 1
        return Refused(f"{said}; {self.context_length:,} fit", OFFERS if older else OFFERS[:1])


def _cut(
    prompt: Sequence[PromptMessage], tokens: Sequence[int], chosen: range, path: Sequence[Message], cut: Cut | None
) -> Cut:
    """The cut in force made longer by the chosen messages of the prompt."""
    left_out = sum(tokens[chosen.start : chosen.stop])
    return longer(path, cut, prompt[chosen.start].id, prompt[chosen.stop].id, left_out)
