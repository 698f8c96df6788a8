"""All chats at a glance: a list and a full-text search over transcripts.

The index is derived: an SQLite file that can be deleted at any time and is built again from the transcripts. It is
brought up to date by `update`, which reads only what changed. Several instances may do so at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tinyllm_chat.chat.conversation import title_of
from tinyllm_chat.chat.errors import HistoryError, reason_of
from tinyllm_chat.chat.files import make_private_folder, open_private
from tinyllm_chat.chat.finding import Query, Snippet, folded, indexed, shown
from tinyllm_chat.chat.transcript import CHAT_ID
from tinyllm_chat.chat.transcript_reader import read_conversation

APPLICATION_ID = 0x744C4D68
VERSION = 1  # of the tables; another one is thrown away
LARGEST = 1 << 28  # bytes of a transcript that is read for the index
BATCH = 32  # chats that are written in one go
BUSY_SECONDS = 10.0
_COLUMNS = "id, title, created, modified, model, messages, size, pinned, problem"
_ORDER = "pinned DESC, modified DESC, id DESC"
_CHATS = """CREATE TABLE chats (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, mtime INTEGER NOT NULL, size INTEGER NOT NULL,
    inode INTEGER NOT NULL, title TEXT NOT NULL, created REAL NOT NULL, modified REAL NOT NULL, model TEXT,
    messages INTEGER NOT NULL, pinned INTEGER NOT NULL, problem TEXT)"""
# Words, not trigrams: those take half as much space again and three times as long, and find no word of two signs.
# Beginnings of two and three characters have an index of their own: they are typed on the way to every word.
_TEXTS = """CREATE VIRTUAL TABLE texts USING fts5(
    title, body, tokenize = "unicode61 remove_diacritics 2", prefix = "2 3")"""
_PLAIN_TEXTS = "CREATE TABLE texts (title TEXT NOT NULL, body TEXT NOT NULL, folded TEXT NOT NULL)"

log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """What the list says of a chat."""

    id: str
    title: str
    created: float  # seconds since 1970
    modified: float  # when the last message was made
    model: str | None  # that wrote the last answer
    messages: int  # that are visible
    size: int  # bytes of the transcript
    pinned: bool
    problem: str | None = None  # what is wrong with the transcript, in one line


@dataclass(frozen=True, slots=True)
class Hit:
    """A chat that has all words of a query."""

    chat: ChatSummary
    snippet: Snippet


class _Stamp(NamedTuple):
    """What tells one state of a file from another."""

    mtime: int  # nanoseconds
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Read:
    summary: ChatSummary
    stamp: _Stamp
    body: str


class HistoryIndex:
    """The index of a folder of transcripts. Methods may be called on any thread; all raise HistoryError."""

    def __init__(self, transcripts: Path, folder: Path, *, fts5: bool | None = None) -> None:
        """`folder`: what the index is put in, under a name for each `transcripts`. `fts5`: None: if SQLite has it."""
        name = hashlib.blake2b(str(transcripts.absolute()).encode("utf-8", "surrogateescape"), digest_size=6)
        self.transcripts = transcripts
        self.file = folder / f"history-{name.hexdigest()}.sqlite3"
        self._fts5 = fts5
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._made = 0  # times that the index was made anew

    def update(
        self,
        progress: Callable[[int, int], None] = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Reads transcripts that are new or changed, the latest first; `progress` counts them."""
        made = self._made
        self._update(progress, cancelled)
        if self._made != made and not cancelled():  # anew on the way: what was up to date before is missing
            self._update(progress, cancelled)

    def _update(self, progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None:
        stamps = self._stamps()
        known = self._run(_known_stamps)
        if gone := known.keys() - stamps.keys():
            self._run(lambda db: _delete(db, gone), writing=True)
        stale = [chat for chat, stamp in stamps.items() if known.get(chat) != stamp]
        stale.sort(key=lambda chat: (stamps[chat].mtime, chat), reverse=True)
        for start in range(0, len(stale), BATCH):
            if cancelled():
                return
            progress(start, len(stale))
            batch = [self._read(chat, stamps[chat]) for chat in stale[start : start + BATCH]]
            self._run(partial(self._write, batch), writing=True)
        progress(len(stale), len(stale))

    def count(self) -> int:
        return int(self._run(lambda db: db.execute("SELECT count(*) FROM chats").fetchone()[0]))

    def chats(self, limit: int = -1, offset: int = 0) -> list[ChatSummary]:
        """Pinned chats first, then the latest."""
        query = f"SELECT {_COLUMNS} FROM chats ORDER BY {_ORDER} LIMIT ? OFFSET ?"
        return self._run(lambda db: [_summary(row) for row in db.execute(query, (limit, offset))])

    def search(self, text: str, limit: int = 50) -> list[Hit]:
        """Chats that have all the words, in the order of the list."""
        query = Query(text)
        return self._run(lambda db: self._search(db, query, limit)) if query else []

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # Reading transcripts

    def _stamps(self) -> dict[str, _Stamp]:
        stamps = {}
        with contextlib.suppress(OSError), os.scandir(self.transcripts) as entries:
            for entry in entries:
                chat, dot, kind = entry.name.rpartition(".")
                if (dot, kind) == (".", "jsonl") and CHAT_ID.fullmatch(chat):
                    with contextlib.suppress(OSError):
                        # On Windows, what the folder says of its files lacks the inode.
                        stat = os.stat(entry.path) if os.name == "nt" else entry.stat()
                        # SQLite's integers have a sign.
                        stamps[chat] = _Stamp(stat.st_mtime_ns, stat.st_size, stat.st_ino & (1 << 62) - 1)
        return stamps

    def _read(self, chat: str, stamp: _Stamp) -> _Read:
        path = self.transcripts / f"{chat}.jsonl"
        when = stamp.mtime / 1e9
        try:
            if stamp.size > LARGEST:
                raise ValueError(f"it has {stamp.size / 1e6:.0f} MB, more than {LARGEST / 1e6:.0f} are not read here")
            conversation, warnings = read_conversation(path)
        except (OSError, ValueError) as error:
            problem = f"{path.name}: {reason_of(error)}"
            return _Read(ChatSummary(chat, chat, when, when, None, 0, stamp.size, False, problem), stamp, "")
        answers = [message.model for message in conversation if message.model is not None]
        dates = [message.created for message in conversation if 0 < message.created <= time.time() + 86400]
        summary = ChatSummary(
            chat,
            conversation.title,
            min(dates, default=when),
            max(dates, default=when),
            title_of(answers[-1]) if answers else None,
            sum(message.role != "system" for message in conversation.path()),
            stamp.size,
            conversation.pinned,
            warnings[0] if warnings else None,
        )
        return _Read(summary, stamp, indexed("\n".join(message.whole_text for message in conversation)))

    # The tables

    def _write(self, batch: list[_Read], db: sqlite3.Connection) -> None:
        _delete(db, {read.summary.id for read in batch})
        for read in batch:
            chat, stamp = read.summary, read.stamp
            row = db.execute(
                "INSERT INTO chats (id, mtime, size, inode, title, created, modified, model, messages, pinned, problem)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(chat.id, stamp.mtime, stamp.size, stamp.inode, chat.title, chat.created, chat.modified),
                    *(chat.model, chat.messages, chat.pinned, chat.problem),
                ),
            )
            texts: dict[str, Any] = {"rowid": row.lastrowid, "title": indexed(chat.title), "body": read.body}
            if not self._fts5:
                texts["folded"] = folded(shown(f"{chat.title}\n{read.body}"))
            names = ", ".join(texts)
            places = ", ".join("?" * len(texts))
            db.execute(f"INSERT INTO texts ({names}) VALUES ({places})", tuple(texts.values()))

    def _search(self, db: sqlite3.Connection, query: Query, limit: int) -> list[Hit]:
        if self._fts5:
            found, values = "SELECT rowid FROM texts WHERE texts MATCH ?", [query.match]
        else:
            parts = query.parts
            found = "SELECT rowid FROM texts WHERE " + " AND ".join(["instr(folded, ?)"] * len(parts))
            values = parts
        rows = db.execute(
            f"SELECT {_COLUMNS}, number FROM chats WHERE number IN ({found}) ORDER BY {_ORDER} LIMIT ?",
            (*values, limit),
        ).fetchall()
        hits = []
        for *columns, number in rows:
            body = db.execute("SELECT body FROM texts WHERE rowid = ?", (number,)).fetchone()
            hits.append(Hit(_summary(columns), query.snippet(shown(str(body[0]) if body else ""))))
        return hits

    # The file

    def _run(self, work: Callable[[sqlite3.Connection], Result], *, writing: bool = False) -> Result:
        """Does something in one transaction. An index that is damaged is made anew, in memory if nothing else helps."""
        with self._lock:
            for attempt in range(3):
                try:
                    if self._connection is None:
                        self._connection = self._open(in_memory=attempt == 2)
                    with _transaction(self._connection, writing) as db:
                        return work(db)
                except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                    self.close()
                    if _is_busy(error):
                        raise HistoryError(f"{self.file}: another instance is writing it: try again") from error
                    if attempt == 2:
                        raise HistoryError(f"{self.file}: the index of chats cannot be made: {error}") from error
                    if attempt == 0:  # the second time for the same reason
                        log.warning("%s: the index of chats is made anew: %s", self.file, error)
                    self._made += 1
                    self._remove()
            raise AssertionError

    def _open(self, *, in_memory: bool) -> sqlite3.Connection:
        """The index, empty if it is new or not as this program makes it. Raises sqlite3.Error, OSError."""
        if in_memory:
            return self._set_up(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None))
        make_private_folder(self.file.parent)
        # SQLite gives the files that it puts beside this one the same permissions.
        os.close(open_private(self.file, os.O_RDWR | os.O_CREAT))
        connection = sqlite3.connect(self.file, BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        try:
            return self._set_up(connection)
        except BaseException:
            connection.close()
            raise

    def _set_up(self, db: sqlite3.Connection) -> sqlite3.Connection:
        if self._fts5 is None:
            self._fts5 = _has_fts5(db)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA synchronous = OFF")  # it can be built again
        marks = (APPLICATION_ID, 2 * VERSION + bool(self._fts5))
        tables = {_CHATS, _TEXTS if self._fts5 else _PLAIN_TEXTS}
        with _transaction(db, writing=True):
            found = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            there = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE name IN ('chats', 'texts')")}
            if found == (0, 0) and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for table in sorted(tables):
                    db.execute(table)
                db.execute("CREATE INDEX latest ON chats (pinned DESC, modified DESC, id DESC)")
                db.execute(f"PRAGMA application_id = {marks[0]}")
                db.execute(f"PRAGMA user_version = {marks[1]}")
            elif found != marks or there != tables:
                raise ValueError(f"it is not of this version: {found[0]:#x} {found[1]}")
        db.execute("PRAGMA journal_mode = WAL")  # which is written into the file: by now it is known to be ours
        return db

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.file}{end}")


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, writing: bool) -> Iterator[sqlite3.Connection]:
    db.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield db
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _known_stamps(db: sqlite3.Connection) -> dict[str, _Stamp]:
    return {row[0]: _Stamp(*row[1:]) for row in db.execute("SELECT id, mtime, size, inode FROM chats")}


def _delete(db: sqlite3.Connection, chats: set[str]) -> None:
    for chat in chats:
        row = db.execute("SELECT number FROM chats WHERE id = ?", (chat,)).fetchone()
        if row is not None:
            db.execute("DELETE FROM texts WHERE rowid = ?", row)
            db.execute("DELETE FROM chats WHERE number = ?", row)


def _summary(row: Any) -> ChatSummary:
    """One row of the table, whose types SQLite does not promise. Raises ValueError, TypeError."""
    chat, title, created, modified, model, messages, size, pinned, problem = row
    return ChatSummary(
        *(str(chat), str(title), float(created), float(modified)),
        None if model is None else str(model),
        *(int(messages), int(size), bool(pinned)),
        None if problem is None else str(problem),
    )


def _has_fts5(db: sqlite3.Connection) -> bool:
    try:
        db.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(text)")
        db.execute("DROP TABLE temp.probe")
    except sqlite3.Error as error:
        log.info("this Python's SQLite has no full-text search, chats are searched word by word: %s", error)
        return False
    return True


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
