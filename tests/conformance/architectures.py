"""Architectures: toy models in float32, fed one by one, in sevens and at once, against llama.cpp's logits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.engines import running
from support.golden import FEEDS, GOLDEN, nmse, recorded_logits, toy_specs, toy_tokens, write_toy_model

from tests.conformance.table import Row, Table, checked, figure

LIMIT = 1e-6
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
                row = f"{collection}/{name}"
                yield checked(row, len(COLUMNS), lambda c=collection, n=name, r=row: _row(c, n, r))


def _row(collection: str, name: str, row: str) -> Row:
    expected = recorded_logits(collection, name)
    tokens = toy_tokens()[: len(expected)]
    figures = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running("native", write_toy_model(Path(folder), name, collection)) as runner,
    ):
        sequence = runner.sequence()
        for feed in FEEDS:
            sequence.truncate(0)
            figures.append(nmse(feed(sequence, tokens), expected))
    fault = "" if all(value <= LIMIT for value in figures) else "too far"
    return Row(row, tuple(map(figure, figures)), fault)
