"""Text that others wrote, without what could steer a terminal that shows it: of models, files, users and errors."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, the bidirectional controls that reorder what is around them, and lone surrogates
# (undecodable bytes of a file), which no terminal encoding can take.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without those characters; newlines and tabs stay."""
    return UNSAFE.sub("", text)
