"""What else an answer could have said: of each of its tokens the probability, and the likeliest others."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

SHOWN = 8  # alternatives that are asked for
MOST = 32  # alternatives of one token in a record
CONTROL, END = "control", "end"
PART = "‹"  # shown in place of a token that is only the beginning of a character
_DIGITS = 4  # of a recorded figure


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have come.

    text: what it adds; bytes that are no whole character stand in it as lone surrogates (PEP 383)
    logprob: natural log of its probability in the model's own distribution, before anything that sampling does
    kind: CONTROL for a token whose text is its name and adds nothing, END for one that ends an answer
    """

    id: int
    text: str
    logprob: float
    kind: str = ""


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token of an answer and what it was drawn from.

    rank: 1 is the likeliest; entropy: of the distribution, in nats; alternatives: the likeliest first, the token
    itself among them where its rank is low enough
    """

    text: str
    logprob: float
    rank: int
    entropy: float
    alternatives: tuple[Alternative, ...] = ()

    def instead(self, place: int) -> TokenChoice:
        """The same place with another of its alternatives chosen."""
        chosen = self.alternatives[place]
        return replace(self, text=chosen.text, logprob=chosen.logprob, rank=place + 1)


def to_record(choice: TokenChoice | None) -> list[Any] | None:
    """A choice as JSON has it: [text, logprob, rank, entropy, [[id, text, logprob, kind?], ...]]."""
    if choice is None:
        return None
    others = [
        [other.id, other.text, round(other.logprob, _DIGITS), *([other.kind] if other.kind else [])]
        for other in choice.alternatives
    ]
    return [choice.text, round(choice.logprob, _DIGITS), choice.rank, round(choice.entropy, _DIGITS), others]


def from_record(record: Any) -> TokenChoice | None:
    """The choice that a record holds. Raises ValueError for anything `to_record` would not have made."""
    if record is None:
        return None
    text, logprob, rank, entropy, others = _fields(record, 5)
    if not isinstance(others, list) or len(others) > MOST or type(rank) is not int or not 1 <= rank < 2**31:
        raise ValueError("not a token's choice")
    return TokenChoice(
        _text(text), _figure(logprob, -1e9, 0), rank, _figure(entropy, 0, 100), tuple(map(_other, others))
    )


def _other(record: Any) -> Alternative:
    id, text, logprob, kind = [*_fields(record, 3, 4), ""][:4]
    if type(id) is not int or not 0 <= id < 2**31 or kind not in ("", CONTROL, END):
        raise ValueError("not an alternative of a token")
    return Alternative(id, _text(text), _figure(logprob, -1e9, 0), kind)


def _fields(record: Any, *counts: int) -> list[Any]:
    if not isinstance(record, list) or len(record) not in counts:
        raise ValueError("not the fields of a token's choice")
    return record


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    value.encode("utf-8", "surrogateescape")  # UnicodeEncodeError, a ValueError, for surrogates that are no bytes
    return value


def _figure(value: Any, lowest: float, highest: float) -> float:
    # A logprob may have been rounded up to just above 0, and an entropy down to just below.
    if type(value) not in (int, float) or not math.isfinite(value) or not lowest - 0.01 <= value <= highest + 0.01:
        raise ValueError("not a figure")
    return float(min(max(value, lowest), highest))


def shown_texts(choices: Sequence[TokenChoice]) -> list[str]:
    """What each token shows. Of a character spread over several the last one shows it, the others a mark each."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = []
    for choice in choices:
        raw = choice.text.encode("utf-8", "surrogateescape")
        texts.append(decoder.decode(raw) or (PART if raw else ""))
    if rest := decoder.decode(b"", final=True):
        texts[-1] = rest
    return texts


def joined(choices: Sequence[TokenChoice]) -> str:
    """What tokens say together, without a character that they leave incomplete."""
    raw = b"".join(choice.text.encode("utf-8", "surrogateescape") for choice in choices)
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw)


def overlap(text: str, said: str) -> str:
    """The longest end of `text` with which `said` begins."""
    return next(text[start:] for start in range(len(text) + 1) if said.startswith(text[start:]))
