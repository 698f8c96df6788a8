"""ChatTemplate: messages to the ids that the model was trained to see; what a message says never controls anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import TemplateSyntaxError

from tinyllm_engine.chat_template.environment import ChatEnvironment, RaisedByTemplate
from tinyllm_engine.chat_template.limits import MAX_SOURCE, LimitError, Limits, uncollected
from tinyllm_engine.chat_template.marked_text import (
    OUTSIDE,
    TEMPLATE,
    MarkedText,
    message_index,
    message_mark,
    plain,
    runs,
)
from tinyllm_engine.chat_template.messages import REASONING, Message, marked, marked_messages, merge_system, merge_turns
from tinyllm_engine.chat_template.recorded import Splice, find_splices, whole_answer
from tinyllm_engine.chat_template.splitter import Splitter, Tags
from tinyllm_engine.chat_template.thinking import Marks, find_marks, switch_variables, tags_around
from tinyllm_engine.errors import TemplateError
from tinyllm_engine.gguf_header import location
from tinyllm_engine.tokenizer import Tokenizer

KEY = "tokenizer.chat_template"
_MESSAGE_LENGTH = 300
_NO_SYSTEM = "the model's template takes no system message: its text was put in front of the first user message"
_ALTERNATING = "the model's template wants turns to alternate: messages of the same role in a row were joined"


class _Stopped(TemplateError):
    """It reached its limits; another try would too."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Ids in a row that belong to one message, by its index, or, with None, to the template."""

    ids: tuple[int, ...]
    message_index: int | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """text: as rendered, each character with its origin

    segments: the same in ids, BOS included; in order, and a message has several where the template repeats it
    notes: what had to be changed about the messages
    splitter: tells reasoning from the answer in what the model writes next; None for a model that does not reason
    """

    text: MarkedText
    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()
    splitter: Splitter | None = None

    @property
    def ids(self) -> list[int]:
        return [id for segment in self.segments for id in segment.ids]


class ChatTemplate:
    """The template of a file, with the tokenizer of the same file.

    Messages are mappings with `role` and `content`, and whatever else the template knows. Control, unknown and
    user-defined tokens come from the template's own text only; white space excepted, nothing that a message or a
    variable says becomes one.

    A message may also have `ids`: those that the model answered with. They stand in the prompt in place of its content,
    provided that they spell just that, hide no control token, and the template leaves the content as it is.

    And it may have `reasoning_content`, what the model thought before its answer. Whether that is told to it again is
    the template's to decide.
    """

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer, path: str = "") -> ChatTemplate | None:
        """None for a file without a template; TemplateError for one that cannot be compiled."""
        source = metadata.get(KEY)
        if source is None:
            return None
        where = location(path)
        if not isinstance(source, str):
            raise TemplateError(f"{where}{KEY}: expected a string, found {type(source).__name__}")
        if not source:
            return None
        return cls(source, tokenizer, where)

    def __init__(self, source: str, tokenizer: Tokenizer, where: str = "", key: str = KEY) -> None:
        """where, key: of the source, for messages"""
        self._where = where
        self._source = source
        self._tokenizer = tokenizer
        self._special_texts = _special_texts(tokenizer)
        self._lock = threading.Lock()  # the limits are those of one rendering
        self._environment = ChatEnvironment()
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"{where}{key}: expected at most {MAX_SOURCE} characters, found {len(source)}")
        try:
            with uncollected:
                self._template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise TemplateError(f"{where}{key}, line {error.lineno}: {_line(error)}") from error
        except Exception as error:  # of Jinja or of Python's compiler, at what Jinja made
            raise TemplateError(f"{where}{key}: {type(error).__name__}: {_line(error)}") from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """The ids of a conversation; see `prompt`."""
        return self.prompt(messages, add_generation_prompt, **variables).ids

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        think: bool | None = None,
        **variables: Any,
    ) -> Prompt:
        """All there is to know about a rendered conversation.

        add_generation_prompt: end where the model is to answer
        continue_final_message: the last message is an unfinished answer; end within it
        think: shall the model reason before it answers? None: as the template has it
        variables: what the template may know besides, e.g. tools

        Where the template refuses a system message or turns that do not alternate, or leaves a system message out of
        what is to be answered, they are merged and a note says so. TemplateError if it fails all the same, with the
        template's own message.
        """
        checked = marked_messages(messages)
        unfinished = checked.pop() if continue_final_message and checked else None
        answering = add_generation_prompt or unfinished is not None
        text, notes = self._rendered(checked, answering, think, variables)
        opening = plain(text[len(text.marks.rstrip(TEMPLATE)) :])
        if answering and think is False and self.marks is not None and not self._switched_off(opening):
            shortcut = self.marks.without(opening)
            text, opening = text + shortcut, opening + shortcut
        splices = find_splices(text, messages[: len(checked)], self.marks, self._tokenizer)
        splitter = self.marks.splitter(opening) if answering and self.marks is not None else None
        if unfinished is not None:
            start = len(text)
            text += self._written(opening, unfinished)
            if splitter is not None:
                splitter.resume(plain(text[start:]))
            mark = message_mark(len(checked))
            ids = whole_answer(messages[len(checked)], opening, self.marks, self._tokenizer)
            splices += [Splice(start, len(text), ids, mark)] if ids else []
        return Prompt(text, self._segments(text, splices), notes, splitter)

    @cached_property
    def marks(self) -> Marks | None:
        """How the model marks its reasoning; None if it does not seem to reason."""
        return find_marks(self._source, self._tokenizer, self._discovered_tags)

    def _rendered(
        self, messages: list[Message], add_generation_prompt: bool, think: bool | None, variables: Mapping[str, Any]
    ) -> tuple[MarkedText, tuple[str, ...]]:
        known = {
            "tools": None,
            "documents": None,
            **self._special_texts,
            **({} if think is None else switch_variables(self._source, think)),
            **marked(variables, OUTSIDE),
            "add_generation_prompt": add_generation_prompt,
        }
        with self._lock:
            return self._render_somehow(messages, known)

    @cached_property
    def _has_switch(self) -> bool:
        """Does the template itself do something about a model that shall not think?"""
        question = marked_messages([{"role": "user", "content": "x"}])
        on, off = (self._rendered(question, True, think, {})[0] for think in (True, False))
        return plain(on) != plain(off)

    def _switched_off(self, opening: str) -> bool:
        """The prompt has not begun reasoning that should not be."""
        assert self.marks is not None
        return self._has_switch and not self.marks.splitter(opening).reasoning

    def _discovered_tags(self) -> Tags | None:
        """What the template puts around the reasoning of a message."""
        reasoning, content = "why", "what"
        question, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": content}
        try:
            text = self._rendered(marked_messages([question, {**answer, REASONING: reasoning}]), False, None, {})[0]
            prompt = self._rendered(marked_messages([question]), True, None, {})[0]
        except TemplateError:
            return None
        mark = message_mark(1)
        start = text.marks.find(mark)
        stop = start + len(reasoning)
        rest = text.marks.find(mark, stop)
        if plain(text[start:stop]) != reasoning or rest < 0 or plain(text[rest : rest + len(content)]) != content:
            return None
        return tags_around(plain(text[:start]), plain(prompt), plain(text[stop:rest]))

    def _written(self, opening: str, answer: Message) -> MarkedText:
        """An unfinished answer, as the model would have written it."""
        content, reasoning = (answer.get(name) or "" for name in ("content", REASONING))
        if not isinstance(content, str) or not isinstance(reasoning, str):
            raise TemplateError(f"only a text can be continued, not a message of type {type(content).__name__}")
        if self.marks is None:
            return MarkedText(content)
        own = {"content": content, "reasoning": reasoning}
        pieces = self.marks.written(opening, reasoning, content)
        return MarkedText().join(own.get(kind or "", text) for text, kind in pieces)

    def _render_somehow(self, messages: list[Message], known: dict[str, Any]) -> tuple[MarkedText, tuple[str, ...]]:
        """The messages as they are or, if the template does not take them so, rearranged; and what was done."""
        first: MarkedText | None = None
        refusal: RaisedByTemplate | None = None
        for arranged, notes in _arrangements(messages):
            try:
                text = self._render(arranged, known)
            except RaisedByTemplate as error:
                refusal = refusal or error
                continue
            if _has_system_text(text, messages) or not _asks(messages):
                return text, notes
            first = text if first is None else first
        if first is None:
            raise TemplateError(f"{self._where}the chat template says: {_line(refusal)}") from refusal
        return first, ()

    def _render(self, messages: list[Message], known: dict[str, Any]) -> MarkedText:
        try:
            return self._run(messages, known)
        except _Stopped:
            raise
        except TemplateError:
            # Some ask whether there are tools by looking for the variable, and stumble over one that says: none.
            return self._run(messages, {name: value for name, value in known.items() if value is not None})

    def _run(self, messages: list[Message], known: dict[str, Any]) -> MarkedText:
        self._environment.limits = Limits()
        try:
            with uncollected:
                return MarkedText(self._template.render(**known, messages=messages))
        except RaisedByTemplate:
            raise
        except LimitError as error:
            raise _Stopped(f"{self._where}the chat template was stopped: {error}") from error
        except Exception as error:  # whatever can go wrong in a program that came with a file
            raise TemplateError(f"{self._where}the chat template failed{_at_line(error)}: {_line(error)}") from error

    def _segments(self, text: MarkedText, splices: list[Splice]) -> tuple[Segment, ...]:
        ids, marks = self._encode(text, splices)
        bos = self._tokenizer.bos_id
        if self._tokenizer.add_bos and bos is not None and ids[:1] != [bos]:  # the template may have written it
            ids, marks = [bos, *ids], TEMPLATE + marks
        marks = marks.replace(OUTSIDE, TEMPLATE)  # neither came with a message
        return tuple(Segment(tuple(ids[start:stop]), message_index(marks[start])) for start, stop in runs(marks))

    def _encode(self, text: MarkedText, splices: list[Splice]) -> tuple[list[int], str]:
        """Ids and the mark of each; recorded answers stand in place of their text."""
        ids: list[int] = []
        marks = ""
        start = 0
        for splice in splices:
            part, part_marks = self._tokenizer.encode_marked(
                plain(text[start : splice.start]), text.marks[start : splice.start], after_special=start == 0
            )
            ids += [*part, *splice.ids]
            marks += part_marks + splice.mark * len(splice.ids)
            start = splice.stop
        part, part_marks = self._tokenizer.encode_marked(plain(text[start:]), text.marks[start:], start == 0)
        return ids + part, marks + part_marks


def _special_texts(tokenizer: Tokenizer) -> dict[str, str]:
    """The variables under which templates write special tokens."""
    ids = {
        "bos_token": tokenizer.bos_id,
        "eos_token": tokenizer.eos_id,
        "unk_token": tokenizer.unk_id,
        "pad_token": tokenizer.pad_id,
        "sep_token": tokenizer.sep_id,
        "mask_token": tokenizer.mask_id,
    }
    return {name: "" if id is None else tokenizer.token_text(id) for name, id in ids.items()}


def _arrangements(messages: list[Message]) -> Iterator[tuple[list[Message], tuple[str, ...]]]:
    """Ways to put the same messages, the next for a template that does not take the one before; with notes."""
    yield messages, ()
    without_system = merge_system(messages)
    if without_system != messages:
        yield without_system, (_NO_SYSTEM,)
    alternating = merge_turns(messages)
    if alternating != messages:
        yield alternating, (_ALTERNATING,)
    both = merge_turns(without_system)
    if both not in (without_system, alternating):
        yield both, (_NO_SYSTEM, _ALTERNATING)


def _asks(messages: list[Message]) -> bool:
    """An answer is due. Some templates show the system text only then."""
    return bool(messages) and messages[-1]["role"] == "user"


def _has_system_text(text: MarkedText, messages: list[Message]) -> bool:
    """No system message was left out."""
    return all(
        message_mark(index) in text.marks
        for index, message in enumerate(messages)
        if message["role"] == "system" and isinstance(message.get("content"), str) and message["content"].strip()
    )


def _line(error: object) -> str:
    """Its message on one line, safe to print."""
    line = " ".join(str(error).split()) or type(error).__name__
    line = line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 3] + "..."
    return line if line.isprintable() else repr(line)


def _at_line(error: BaseException) -> str:
    """The line of the template, as far as known: Jinja makes the traceback speak of it."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" in line {line}"
