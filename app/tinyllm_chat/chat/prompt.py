"""From messages to the token ids of a prompt, with the ids of earlier answers kept as they were generated.

About one answer in eight does not tokenize back to its own ids. Its text alone would change the prompt before its end:
the cache could not be reused, and the model would not see what it had written.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of a prompt's tokens that belongs to one message; the template's words around it count too."""

    message_id: str
    role: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: list[int]
    segments: list[Segment]
    notes: list[str]  # what had to be changed about the messages
    splitter: Any = None  # of the engine: tells reasoning from the answer; None where there is none

    def tokens_of(self, messages: Sequence[PromptMessage]) -> list[int]:
        """How many tokens each message takes."""
        counts = dict.fromkeys((message.id for message in messages), 0)
        for segment in self.segments:
            counts[segment.message_id] += segment.tokens
        return list(counts.values())


class PromptBuilder:
    """Builds the prompts of one model. `template` None: completion mode, the messages follow each other as text."""

    def __init__(self, tokenizer: Any, template: Any, fingerprint: str) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._fingerprint = fingerprint
        self._told: set[str] = set()
        self._measured: tuple[Any, Prompt] | None = None  # what it was built of, and itself

    def measure(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, think: bool | None = None
    ) -> list[int]:
        """Tokens of each message. The prompt is kept for the `build` that may follow, on whatever thread."""
        prompt = self._build(messages, continue_last, think)
        self._measured = ((list(messages), continue_last, think), prompt)
        return prompt.tokens_of(messages)

    def trims(self) -> bool:
        """Whether the template leaves white space around what a user says away. Raises the engine's TemplateError."""
        if self._template is None:
            return False
        lengths = set()
        for content in ("a", " a\n"):
            rendered = self._template.prompt([{"role": "user", "content": content}])
            lengths.add(sum(len(part.ids) for part in rendered.segments))
        return len(lengths) == 1

    def untold(self, notes: Sequence[str]) -> list[str]:
        """Those that were not asked for before."""
        fresh = [note for note in notes if note not in self._told]
        self._told.update(fresh)
        return fresh

    @property
    def shown_ids(self) -> frozenset[int]:
        """Hidden tokens that a splitter has to see."""
        marks = self._template.marks if self._template is not None else None
        return marks.shown if marks is not None else frozenset()

    def build(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, think: bool | None = None
    ) -> Prompt:
        """The whole prompt; with `continue_last` it ends inside the last message, an answer to write on.

        Raises the engine's TemplateError and TokenizerError.
        """
        measured, self._measured = self._measured, None  # its splitter is good for one answer
        if measured is not None and measured[0] == (list(messages), continue_last, think):
            return measured[1]
        return self._build(messages, continue_last, think)

    def beginning(self, messages: Sequence[PromptMessage], *, think: bool | None = None) -> list[int]:
        """What the prompt begins with, whatever a user says after these messages. Raises as `build`."""
        first, second = (self._build([*messages, PromptMessage("", "user", text)], False, think) for text in ("a", "1"))
        same = takewhile(lambda pair: pair[0] == pair[1], zip(first.ids, second.ids, strict=False))
        return [id for id, _ in same]

    def _build(self, messages: Sequence[PromptMessage], continue_last: bool, think: bool | None) -> Prompt:
        if self._template is None:
            return self._completion(messages)
        rendered = self._template.prompt(
            [self._for_template(message) for message in messages], continue_final_message=continue_last, think=think
        )
        ids: list[int] = []
        segments: list[Segment] = []
        index = 0
        for part in rendered.segments:
            ids += part.ids
            # The template's own tokens go with the message before them: so its share stays what it is in later turns.
            index = index if part.message_index is None else part.message_index
            segments.append(Segment(messages[index].id, messages[index].role, len(part.ids)))
        return Prompt(ids, segments, list(rendered.notes), rendered.splitter)

    def _for_template(self, message: PromptMessage) -> dict[str, Any]:
        """The template itself makes sure that the ids say what the content says."""
        fields: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.reasoning:
            fields["reasoning_content"] = message.reasoning
        if message.ids is not None and message.fingerprint == self._fingerprint:
            fields["ids"] = list(message.ids)
        return fields

    def _completion(self, messages: Sequence[PromptMessage]) -> Prompt:
        """One text: an answer continues the message before it, everything else begins a line."""
        ids: list[int] = []
        segments = []
        for index, message in enumerate(messages):
            own = self._recorded_ids(message)
            if own is None:
                begins_line = index > 0 and message.role != "assistant"
                text = ("\n" if begins_line else "") + message.content
                own = self._tokenizer.encode(text, add_bos=None if index == 0 else False)
            ids += own
            segments.append(Segment(message.id, message.role, len(own)))
        return Prompt(ids, segments, [])

    def _recorded_ids(self, message: PromptMessage) -> list[int] | None:
        """The ids of a message if this model wrote them and they say what `content` says, hiding nothing."""
        if message.ids is None or message.fingerprint != self._fingerprint:
            return None
        ids = list(message.ids)
        if not all(0 <= id < self._tokenizer.vocab_size for id in ids):
            return None
        pieces = [self._tokenizer.piece(id) for id in ids]  # of a control token: nothing
        # The last character may be incomplete: shown as U+FFFD, or left out of an answer that goes on there.
        decode = codecs.getincrementaldecoder("utf-8")
        said = (decode("replace").decode(b"".join(pieces), complete) for complete in (True, False))
        return ids if all(pieces) and message.content in said else None
