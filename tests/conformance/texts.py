"""Tokenizers and chat templates: recorded ids, and plain Jinja's text; with both, nothing of content may control."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from support.real_templates import DRESSINGS, VARIABLES, fixed_day, special_texts_that_get_through, wrong_conversations
from support.vocabularies import recorded_texts, shared_golden
from tinyllm_engine.gguf import open_gguf
from tinyllm_engine.tokenizer import Tokenizer

from tests.conformance.table import Row, Table, checked

COLUMNS = ("equal", "of")


def table(part: str) -> Table:
    vocabularies, templates = shared_golden("vocab"), shared_golden("templates")
    missing = [name for name, folder in (("vocab", vocabularies), ("templates", templates)) if folder is None]
    note = f"not at hand: {', '.join(missing)}; see TINYLLM_SHARED_GOLDEN" if missing else ""
    return Table("Tokenizers and templates", COLUMNS, _rows(part, vocabularies, templates), note)


def _rows(part: str, vocabularies: Path | None, templates: Path | None) -> Iterator[Row]:
    for path in sorted(vocabularies.glob("*.gguf")) if vocabularies else ():
        if part in path.stem:
            yield checked(path.stem, len(COLUMNS), lambda path=path: _vocabulary(path))
    for path in sorted(templates.glob("*.jinja")) if templates else ():
        if part in path.stem:
            yield checked(path.stem, len(COLUMNS), lambda path=path: _template(path))


def _vocabulary(path: Path) -> Row:
    with open_gguf(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    recorded = recorded_texts(path)
    equal = sum(tokenizer.encode(text, add_bos=False) == ids for text, ids in recorded)
    fault = "" if equal == len(recorded) else f"{len(recorded) - equal} texts have other ids"
    return Row(path.stem, (str(equal), str(len(recorded))), fault)


def _template(path: Path) -> Row:
    source = path.read_text(encoding="utf-8")
    rendered, wrong = 0, []
    with fixed_day():
        for variables in VARIABLES:
            for dressing in DRESSINGS:
                count, found = wrong_conversations(source, variables, dressing)
                rendered, wrong = rendered + count, wrong + found
        wrong += [f"{text!r} as content becomes a token" for text in special_texts_that_get_through(source)]
    return Row(path.stem, (str(rendered - len(wrong)), str(rendered)), wrong[0][:120] if wrong else "")
