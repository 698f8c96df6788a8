"""What else could have been drawn: the likeliest tokens of the model's own distribution, beside the one drawn.

The distribution is softmax(logits) as the model gives them: before biases, penalties, crops and temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 32  # alternatives of a token
CONTROL, END = "control", "end"  # kinds of tokens that are no text


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have come.

    text: what it adds; bytes that are no whole character stand in it as lone surrogates (PEP 383)
    logprob: natural log of its probability
    kind: CONTROL for a token that adds nothing, whose text is its name; END for one that ends an answer
    """

    id: int
    text: str
    logprob: float
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The place that one token was drawn for.

    text: the token's own, as in Alternative
    rank: of the token; 1 is the likeliest, of equal ones the lower id goes first
    entropy: of the distribution, in nats; e^entropy equally likely tokens would be as open a choice
    alternatives: the likeliest first; the token is among them if its rank is low enough
    """

    text: str
    rank: int
    entropy: float
    alternatives: tuple[Alternative, ...]


def top_tokens(
    logits: NDArray[np.float32], token: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], int, float]:
    """(ids [most], their log probabilities [most], rank of `token`, entropy) in plain NumPy: the oracle of the kernel.

    logits: float32 [vocab], finite
    """
    log_p = logits - np.float64(logits.max())
    log_p -= math.log(np.exp(log_p).sum())
    order = np.argsort(-logits, kind="stable")
    rank = int(np.flatnonzero(order == token)[0]) + 1
    p = np.exp(log_p)
    entropy = -float(p @ np.where(p > 0, log_p, 0.0))
    return order[:most], log_p[order[:most]], rank, entropy
