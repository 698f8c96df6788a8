"""What went wrong, as one line on standard error and an exit code: 2 for usage, 130 for Ctrl+C, 1 for the rest."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from tinyllm_chat.chat.mishaps import describe, foreseen
from tinyllm_chat.cli.text import one_line

# Short flags that mean something else in other chat programs: what to say when their value does not fit.
FLAG_HINTS = {
    "-c": "-c is the context length in tokens; --continue opens the last chat",
    "-n": "-n is the most tokens an answer may have",
    "-t": "-t is the number of threads; --temp is the temperature",
    "-s": "-s is the seed; -sys is the system prompt",
    "-r": "--resume ID opens an earlier chat",
    "-o": "standard output can be redirected; sampling has its own flags, such as --temp",
}


class Failure(click.ClickException):
    """Ends the program with one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tinyllm-chat: {self.message}", file=file or sys.stderr)


class UsageFailure(Failure):
    """The command line asks for something that it cannot ask for."""

    exit_code = 2


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns every exception that can be named in one line into a Failure; a bug goes to the log with its traceback."""
    try:
        yield
    except click.UsageError as error:
        raise usage_failure(error) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # the reader went away: click ends the program quietly
        if not foreseen(error):
            _log_somewhere()
        raise Failure(describe(error)) from error


def usage_failure(error: click.UsageError) -> UsageFailure:
    parts = [error.format_message().rstrip(".")]
    hint = _hint(error)
    parts.append(hint if hint else "see tinyllm-chat --help")
    return UsageFailure("; ".join(parts))


def _hint(error: click.UsageError) -> str | None:
    if isinstance(error, click.BadParameter) and error.param is not None:
        names = list(error.param.opts)
    else:
        names = [getattr(error, "option_name", None) or ""]
    return next((FLAG_HINTS[name] for name in names if name in FLAG_HINTS), None)


def _log_somewhere() -> None:
    """Without a handler, logging prints to standard error."""
    if not logging.getLogger().handlers:
        from tinyllm_chat.chat.logs import start_logging
        from tinyllm_chat.chat.paths import Paths

        start_logging(Paths.default().log_file)
