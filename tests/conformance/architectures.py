"""Architectures: toy models in float32, fed one by one, in sevens and at once, against llama.cpp's logits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from support.engines import running
from support.golden import (
    FEEDS,
    GOLDEN,
    family_toys,
    nmse,
    recorded_logits,
    toy_specs,
    toy_tokens,
    write_family_toy,
    write_toy_model,
)

from tests.conformance.table import Row, Table, checked, figure

LIMIT = 1e-6
FAMILIES = "families"  # those written down by what they are
COLUMNS = tuple(feed.__name__.replace("batches_of_7", "7s").replace("_", " ") for feed in FEEDS)


def table(part: str) -> Table:
    return Table(
        "Architectures: NMSE of the logits, from llama.cpp's", COLUMNS, _rows(part), f"{figure(LIMIT)} at most"
    )


def collections() -> list[str]:
    """Folders of recorded toy models."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/specs.json") if (path.parent / "logits.npz").is_file())


def _rows(part: str) -> Iterator[Row]:
    for collection in collections():
        for name in toy_specs(collection):
            if part in f"{collection}/{name}":
                write = partial(write_toy_model, name=name, collection=collection)
                tokens = toy_tokens()
                yield checked(f"{collection}/{name}", len(COLUMNS), partial(_row, collection, name, write, tokens))
    for name in family_toys().TOYS:
        if part in f"{FAMILIES}/{name}":
            write, tokens = partial(write_family_toy, name=name), family_toys().tokens()
            yield checked(f"{FAMILIES}/{name}", len(COLUMNS), partial(_row, FAMILIES, name, write, tokens))


def _row(collection: str, name: str, write: Callable[[Path], Path], tokens: list[int]) -> Row:
    expected = recorded_logits(collection, name)
    tokens = tokens[: len(expected)]
    figures = []
    with tempfile.TemporaryDirectory() as folder, running("native", write(Path(folder))) as runner:
        sequence = runner.sequence()
        for feed in FEEDS:
            sequence.truncate(0)
            figures.append(nmse(feed(sequence, tokens), expected))
    fault = "" if all(value <= LIMIT for value in figures) else "too far"
    return Row(f"{collection}/{name}", tuple(map(figure, figures)), fault)
