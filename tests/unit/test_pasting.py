"""What is pasted comes out as Textual's own parser has it, however the terminal cuts it up."""

from __future__ import annotations

import random

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from tinyllm_chat.tui.pasting import PasteParser

START, END = "\x1b[200~", "\x1b[201~"
INPUTS = {
    "keys": "ab\x1b[Ac\r",
    "a paste": f"{START}two\rlines{END}",
    "a paste between keys": f"a{START}pasted{END}b",
    "two pastes": f"{START}one{END}{START}two{END}",
    "an empty paste": f"a{START}{END}b",
    "escapes in a paste": f"{START}\x1b[31mred\x1b[0m{START} and \x1b\x1b[20{END}x",
    "NUL": f"{START}a\0b{END}",
    "emoji": f"{START}🙂 e\u0301 漢字{END}é",
    "an end without a start": f"a{END}b",
    "mouse and focus around it": f"\x1b[I\x1b[<0;3;4M{START}x{END}\x1b[<0;3;4m\x1b[O",
}


def events_of(parser, pieces):
    return [
        (type(event), getattr(event, "key", None), getattr(event, "text", None))
        for piece in pieces
        for event in parser.feed(piece)
    ]


def cuts(text, seed):
    """The text whole, character by character, and in pieces of any length."""
    yield [text]
    yield list(text)
    draw = random.Random(seed)
    for _ in range(20):
        places = sorted(draw.sample(range(1, len(text)), draw.randint(1, min(4, len(text) - 1))))
        yield [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_as_textual_reads_it(text):
    if text == INPUTS["an empty paste"]:
        # Of which Textual says nothing or something, as its buffer has it: it must only not swallow the keys.
        expected = [(events.Key, "a", None), (events.Paste, None, ""), (events.Key, "b", None)]
    elif text == INPUTS["escapes in a paste"]:
        # Some of which Textual takes for its own, and loses the rest of them.
        expected = [(events.Paste, None, text[len(START) : text.index(END)]), (events.Key, "x", None)]
    else:
        expected = events_of(XTermParser(), [text])
    for pieces in cuts(text, text):
        assert events_of(PasteParser(), pieces) == expected, pieces
