"""What went wrong, in one line for the user; what nobody foresaw goes into the log with its traceback."""

from __future__ import annotations

import logging

LONGEST = 1000  # characters of a line
_OURS = ("tinyllm_engine.", "tinyllm_chat.")

log = logging.getLogger(__name__)


def foreseen(error: BaseException) -> bool:
    """True for what has a line of its own: refusals, and what the system or a full memory says."""
    ours = type(error).__module__.startswith(_OURS)
    return ours or isinstance(error, MemoryError) or (isinstance(error, OSError) and bool(error.strerror))


def describe(error: BaseException, subject: str = "") -> str:
    """One printable line. `subject`: the file that it is about, for errors that do not name one."""
    named = f"{subject}: " if subject else ""
    if not foreseen(error):
        log.error("unexpected error%s", f" with {subject}" if subject else "", exc_info=error)
        text = f"unexpected error (details are in the log file): {type(error).__name__}: {error}"
    elif isinstance(error, MemoryError):
        text = f"{named}not enough memory"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else f"{named}{error.strerror}"
    else:
        text = str(error)  # the messages of our own classes are made for this
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line[:LONGEST]
