"""The formats that models were trained on, as templates: `NAME.jinja`. They serve files that have none of their own.

BOS at the start is left out where the tokenizer puts it there; `eos_token` is the file's own.
"""

from __future__ import annotations

from importlib.resources import files

_SUFFIX = ".jinja"


def format_names() -> list[str]:
    """All names, sorted."""
    folder = files(__name__)
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def format_source(name: str) -> str:
    """The template of one of `format_names`."""
    return (files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
