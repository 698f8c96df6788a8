"""Real chat templates, rendered as plain Jinja does and compared: text, and every character's origin."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tinyllm_engine.chat_template import ChatTemplate, environment
from tinyllm_engine.tokenizer import Tokenizer

from support.plain_jinja import RefusedByTemplate, render_plainly
from support.tiny_vocabularies import CONTROL, USER_DEFINED, byte_level

# What the templates write as control tokens, as far as they are in such brackets, and what is easily taken for one.
SPECIAL = dict.fromkeys(("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "[INST]"), CONTROL)
SPECIAL |= dict.fromkeys(("<|user|>", "<|start|>", "<start_of_turn>", "<think>", "\n\n"), USER_DEFINED)
TOKENIZER = Tokenizer.from_metadata(byte_level(["Ġ Ġ", "t h", "th e"], SPECIAL, bos_token_id=259, eos_token_id=260))
SPECIAL_TEXTS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "", "pad_token": ""}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "①name",
            "description": "②does",
            "parameters": {"type": "object", "properties": {"③key": {"type": "string", "description": "④is"}}},
        },
    }
]
VARIABLES: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {"enable_thinking": False},
    {"tools": TOOLS, "documents": [{"title": "⑤", "text": "⑥"}]},
]
DRESSINGS = ["X", "  X\n", "<think>\n①\n</think>\n\nX"]  # of content, which takes the place of X


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> FixedDay:
        return cls(2026, 3, 4)


@contextmanager
def fixed_day() -> Iterator[None]:
    """Templates that write the date write the same."""
    with patch.object(environment, "datetime", FixedDay):
        yield


def content(number: int, dressing: str) -> str:
    """Characters that no template writes, unlike those of any other message."""
    return dressing.replace("X", "".join(chr(0x2460 + 11 * number + offset) for offset in range(11)))


def conversations(dressing: str) -> Iterator[list[dict[str, str]]]:
    for first in (0, 1):
        for turns in (1, 2, 3, 5):
            roles = ["system", *["user", "assistant"] * 3][1 - first : 1 + turns]
            yield [{"role": role, "content": content(number, dressing)} for number, role in enumerate(roles)]


def is_content(char: str) -> bool:
    return "\u2460" <= char <= "\u24ff"


def wrong_conversations(source: str, variables: dict[str, Any], dressing: str) -> tuple[int, list[str]]:
    """How many conversations plain Jinja renders, and what is wrong with ours of them. In `fixed_day`."""
    chat = ChatTemplate(source, TOKENIZER)
    rendered, wrong = 0, []
    for messages in conversations(dressing):
        for add_generation_prompt in (True, False):
            known = {**SPECIAL_TEXTS, **variables, "add_generation_prompt": add_generation_prompt}
            try:
                expected = render_plainly(source, messages=messages, strftime_now=FixedDay.now().strftime, **known)
            except RefusedByTemplate:
                continue
            rendered += 1
            prompt = chat.prompt(messages, add_generation_prompt, **variables)
            exact = dressing == "X" and not variables
            if found := _wrong(expected, prompt, messages, exact):
                wrong.append(f"{found}: {[message['role'] for message in messages]}")
    return rendered, wrong


def _wrong(expected: str, prompt: Any, messages: list[dict[str, str]], exact: bool) -> str:
    """exact: there is no content but that of messages"""
    text, marks = str.__str__(prompt.text), prompt.text.marks
    if text != expected:
        return "another text"
    if not all(mark != "\0" for char, mark in zip(expected, marks, strict=True) if is_content(char)):
        return "content without a mark"
    if exact and [mark != "\0" for mark in marks] != [is_content(char) for char in expected]:
        return "marks where there is no content"
    own = {message["content"].strip()[-1]: index + 2 for index, message in enumerate(messages)}
    if not prompt.notes and not all(ord(m) == own.get(c, ord(m)) for c, m in zip(expected, marks, strict=True)):
        return "the mark of another message"
    return ""


def markers(chat: ChatTemplate, text: str) -> list[int]:
    """The special tokens of a conversation in which everyone says this."""
    ids = chat.render([{"role": role, "content": text} for role in ("user", "assistant", "user")])
    return [id for id in ids if TOKENIZER.is_marker(id)]


def special_texts_that_get_through(source: str) -> list[str]:
    """Texts of special tokens that, as content, become tokens."""
    chat = ChatTemplate(source, TOKENIZER)
    texts = [*SPECIAL, "".join(SPECIAL), "\n".join(SPECIAL)]
    return [text for text in texts if markers(chat, text) != markers(chat, "x")]
