"""From messages to the token ids of a prompt, with the ids of earlier answers kept as they were generated.

About one answer in eight does not tokenize back to its own ids. Rendering the whole chat anew would then change the
prompt before its end: the cache could not be reused, and the model would not see what it had written. So an answer's
recorded ids take the place of those that its text renders to, if the model is the same and both mean the same text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinyllm_chat.chat.backend import PromptMessage

KEPT_PROMPTS = 256


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of a prompt's tokens that belongs to one message, with the template's words around it."""

    message_id: str
    role: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    ids: list[int]
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class _Rendered:
    plain: list[int]  # as the template renders it
    prompt: Prompt  # with recorded ids in it


class PromptBuilder:
    """Builds the prompts of one model. `template` None: completion mode, the messages follow each other as text."""

    def __init__(
        self, tokenizer: Any, template: Any, fingerprint: str, template_error: type[Exception] = Exception
    ) -> None:
        """`template_error` is what the template raises when it refuses some messages."""
        self._tokenizer = tokenizer
        self._template = template
        self._fingerprint = fingerprint
        self._template_error = template_error
        self._known: dict[tuple[PromptMessage, ...], _Rendered] = {}

    def build(self, messages: Sequence[PromptMessage], *, continue_last: bool = False) -> Prompt:
        """The whole prompt; with `continue_last` it ends inside the last message, an answer to write on.

        Raises the engine's TemplateError and TokenizerError.
        """
        if self._template is None:
            return self._completion(messages)
        if not continue_last:
            return self._rendered(tuple(messages)).prompt
        before = self._rendered(tuple(messages[:-1]))
        answer = messages[-1]
        ids = self.usable_ids(answer) or self._partial_ids(before, messages)
        segments = [*before.prompt.segments, Segment(answer.id, answer.role, len(ids))]
        return Prompt(before.prompt.ids + ids, segments)

    def usable_ids(self, message: PromptMessage) -> list[int] | None:
        """The recorded ids of a message if this model wrote them and they say what `content` says."""
        if message.ids is None or message.fingerprint != self._fingerprint:
            return None
        ids = list(message.ids)
        if not all(0 <= id < self._tokenizer.vocab_size for id in ids):
            return None
        # An answer that was stopped inside a character has more ids than text.
        text = self._tokenizer.decode(ids).rstrip("\ufffd")
        same = text.removeprefix(" ") == message.content.rstrip("\ufffd").removeprefix(" ")
        return ids if same else None

    def _rendered(self, messages: tuple[PromptMessage, ...]) -> _Rendered:
        """Built up from answer to answer: each is the previous prompt, the answer to it and what followed."""
        ends = [index for index, message in enumerate(messages) if message.role == "assistant" and index > 0]
        rendered = None
        for end in [*ends, len(messages)]:
            part = messages[:end]
            known = self._known.pop(part, None)
            if known is None:
                known = self._extend(rendered, part)
            self._known[part] = known  # now the youngest
            rendered = known
        while len(self._known) > KEPT_PROMPTS:
            del self._known[next(iter(self._known))]
        assert rendered is not None
        return rendered

    def _extend(self, before: _Rendered | None, messages: tuple[PromptMessage, ...]) -> _Rendered:
        """`messages` rendered; `before` is the prompt that the last answer among them followed."""
        plain = self._render(messages)
        if before is None:
            return _Rendered(plain, Prompt(plain, self._first_segments(messages, plain)))
        start = len(before.plain)
        if plain[:start] != before.plain:
            # This template shows earlier messages differently once others follow: nothing can be kept.
            return _Rendered(plain, Prompt(plain, self._estimated_segments(messages, len(plain))))
        last = max(index for index, message in enumerate(messages) if message.role == "assistant")
        answer, following = messages[last], messages[last + 1 :]
        rest = plain[start:]
        length = self._length_of(answer.content, rest)
        ids = self.usable_ids(answer) if length is not None else None
        if length is None:
            length = min(len(rest), len(self._encode(answer.content)))
        if ids is None:
            ids = rest[:length]
        segments = [*before.prompt.segments, Segment(answer.id, answer.role, len(ids))]
        segments += self._estimated_segments(following, len(rest) - length)
        return _Rendered(plain, Prompt(before.prompt.ids + ids + rest[length:], segments))

    def _length_of(self, content: str, ids: list[int]) -> int | None:
        """How many of `ids` spell `content`, which templates may trim; None if it does not end between two of them."""
        for text in dict.fromkeys((content, content.strip())):
            wanted = text.encode("utf-8", "surrogatepass")
            spelled = b""
            for count in range(len(ids) + 1):
                # SentencePiece vocabularies put a space before the first word.
                if spelled == wanted or (spelled[:1] == b" " and spelled[1:] == wanted):
                    return count
                if count == len(ids) or len(spelled) > len(wanted) + 1 or self._tokenizer.is_marker(ids[count]):
                    break
                spelled += self._tokenizer.piece(ids[count])
        return None

    def _partial_ids(self, before: _Rendered, messages: Sequence[PromptMessage]) -> list[int]:
        """Ids for the text of an answer to write on that has none of its own."""
        plain = self._render(messages, add_generation_prompt=False)
        start = len(before.plain)
        content = messages[-1].content
        if plain[:start] == before.plain:
            length = self._length_of(content, plain[start:])
            if length is not None:
                return plain[start : start + length]
        return self._encode(content)

    def _first_segments(self, messages: tuple[PromptMessage, ...], ids: list[int]) -> list[Segment]:
        """Exact where the template can be asked: how much is there when the last message is not."""
        if len(messages) > 1:
            head = None
            # Many templates refuse to render a system prompt alone; only the display depends on it.
            with contextlib.suppress(self._template_error):
                head = self._render(messages[:-1], add_generation_prompt=False)
            if head is not None and ids[: len(head)] == head:
                segments = self._estimated_segments(messages[:-1], len(head))
                return [*segments, Segment(messages[-1].id, messages[-1].role, len(ids) - len(head))]
        return self._estimated_segments(messages, len(ids))

    def _estimated_segments(self, messages: Sequence[PromptMessage], tokens: int) -> list[Segment]:
        """`tokens` shared out by the length of the contents; the last message has what is left."""
        segments = []
        for message in messages[:-1]:
            share = min(tokens, len(self._encode(message.content)))
            segments.append(Segment(message.id, message.role, share))
            tokens -= share
        segments += [Segment(message.id, message.role, tokens) for message in messages[-1:]]
        return segments

    def _completion(self, messages: Sequence[PromptMessage]) -> Prompt:
        """One text: an answer continues the message before it, everything else begins a line."""
        ids: list[int] = []
        segments = []
        for index, message in enumerate(messages):
            own = self.usable_ids(message) if message.role == "assistant" else None
            if own is None:
                begins_line = index > 0 and message.role != "assistant"
                text = ("\n" if begins_line else "") + message.content
                own = self._tokenizer.encode(text, add_bos=None if index == 0 else False)
            ids += own
            segments.append(Segment(message.id, message.role, len(own)))
        return Prompt(ids, segments)

    def _render(self, messages: Sequence[PromptMessage], *, add_generation_prompt: bool = True) -> list[int]:
        contents = [{"role": message.role, "content": message.content} for message in messages]
        return list(self._template.render(contents, add_generation_prompt=add_generation_prompt))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_bos=False))
