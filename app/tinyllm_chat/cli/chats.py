"""`tinyllm-chat chats`: lists and searches the chats that are kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from tinyllm_chat.chat.safe_text import printable
from tinyllm_chat.cli.failure import UsageFailure
from tinyllm_chat.cli.text import one_line, print_json
from tinyllm_chat.tui.text import size

if TYPE_CHECKING:
    from tinyllm_chat.chat.finding import Snippet
    from tinyllm_chat.chat.history import ChatSummary, Hit
    from tinyllm_chat.chat.library import ChatLibrary

TITLE_WIDTH = 44


@click.command("chats")
@click.argument("query", nargs=-1)
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="Most chats that are shown."
)
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")
@click.option("--rename", nargs=2, metavar="CHAT TITLE", help="Gives a chat a title; an empty one: its first message.")
@click.option("--pin", metavar="CHAT", help="Puts a chat at the top of the list.")
@click.option("--unpin", metavar="CHAT", help="Takes it from there.")
@click.option("--delete", metavar="CHAT", help="Moves a chat to the trash, where it stays for 30 days.")
@click.option("--deleted", is_flag=True, help="Lists what is in the trash.")
@click.option("--restore", metavar="ID", help="Brings a chat back from there.")
def command(
    query: tuple[str, ...],
    limit: int,
    as_json: bool,
    rename: tuple[str, str] | None,
    pin: str | None,
    unpin: str | None,
    delete: str | None,
    deleted: bool,
    restore: str | None,
) -> None:
    """Lists the chats, the latest first, or those that have all words of QUERY.

    A chat is named by its id, the beginning of it, or words of its title; tinyllm-chat --resume CHAT opens it.
    """
    library = chat_library()
    changes: list[tuple[str | None, Callable[[str], None], str]] = [
        (rename[0] if rename else None, lambda chat: library.rename(chat, rename[1] if rename else ""), "renamed"),
        (pin, lambda chat: library.pin(chat, True), "pinned"),
        (unpin, lambda chat: library.pin(chat, False), "no longer pinned"),
        (delete, library.delete, "deleted; tinyllm-chat chats --restore brings it back"),
    ]
    asked = [change for change in changes if change[0] is not None]
    if len(asked) + deleted + (restore is not None) + bool(query) > 1:
        raise UsageFailure("chats does one thing at a time")
    if asked:
        name, change, done = asked[0]
        assert name is not None
        chat = chat_named(library, name)
        change(chat)
        click.echo(f"{chat} {done}")
    elif restore is not None:
        library.restore(restore)
        click.echo(f"{restore} is back")
    elif deleted:
        for gone in library.deleted():
            click.echo(f"{gone.id}  deleted {_time(gone.deleted)}  {one_line(gone.title)}")
    else:
        _list(library, " ".join(query), limit, as_json)


def chat_library() -> ChatLibrary:
    from tinyllm_chat.chat.library import ChatLibrary
    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.chat.transcript import TranscriptStore

    places = Paths.default()
    return ChatLibrary(TranscriptStore(places.transcripts, places.exports), places.state)


def chat_named(library: ChatLibrary, name: str) -> str:
    """The id of the one chat that is meant. Raises TranscriptError."""
    with _reading_chats() as progress:
        return library.resolve(name, progress)


@contextlib.contextmanager
def _reading_chats() -> Iterator[Callable[[int, int], None]]:
    """Shows how many of the chats that are new or changed have been read."""
    from tinyllm_chat.cli.progress import ProgressBar

    with ProgressBar() as bar:
        yield lambda done, total: bar.update("reading chats", done, total) if total else None


def _list(library: ChatLibrary, query: str, limit: int, as_json: bool) -> None:
    from tinyllm_chat.chat.finding import Snippet
    from tinyllm_chat.chat.history import Hit

    with _reading_chats() as progress:
        library.update(progress)
    if query:
        hits = library.search(query, limit)
    else:
        hits = [Hit(chat, Snippet("")) for chat in library.chats(limit)]
    if as_json:
        print_json({"chats": [_json(hit) for hit in hits]})
        return
    for hit in hits:
        click.echo(_line(hit.chat))
        if hit.chat.problem is not None:
            click.echo(f"    {one_line(hit.chat.problem)}")
        if hit.snippet.text:
            click.echo(f"    {_marked(hit.snippet)}")
    if not hits:
        click.echo("no chat has all of these words" if query else "there are no chats yet", err=True)


def _line(chat: ChatSummary) -> str:
    title = one_line(chat.title)
    if len(title) > TITLE_WIDTH:
        title = title[: TITLE_WIDTH - 1] + "…"
    pin = "*" if chat.pinned else " "
    facts = f"{chat.messages:4} messages {size(chat.size):>8}  {one_line(chat.model or '')}"
    return f"{chat.id}  {_time(chat.modified)} {pin} {title:{TITLE_WIDTH}} {facts}".rstrip()


def _marked(snippet: Snippet) -> str:
    """The snippet, its matches bold where the output is a terminal."""
    parts, at = [], 0
    for start, stop in snippet.marks:
        parts += [printable(snippet.text[at:start]), click.style(printable(snippet.text[start:stop]), bold=True)]
        at = stop
    return "".join([*parts, printable(snippet.text[at:])])


def _json(hit: Hit) -> dict[str, object]:
    chat = hit.chat
    found: dict[str, object] = {name: getattr(chat, name) for name in chat.__slots__}
    if hit.snippet.text:
        found["snippet"] = hit.snippet.text
    return found


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
