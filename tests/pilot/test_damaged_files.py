"""Files of the program damaged in every way: one line about each at the start, and what was in them is still there."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from support.damages import DAMAGES, LETTER, binary, empty, folder, link_elsewhere, link_to_device, pipe, zeros
from tinyllm_chat.chat.config_file import write_setting
from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.errors import ChatError, SettingsError
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.locks import LockFile
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.places import RecentModels
from tinyllm_chat.chat.presets import load_presets
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.chat.settings import load_settings
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.tui.themes import user_themes

CHAT = "20260101-120000-abcdef"
RECORDS = [
    {"type": "header", "version": 1, "id": CHAT, "title": "Old", "created": 1.0},
    {"type": "message", "id": "a", "parent": None, "role": "user", "content": "What was", "created": 1.0},
]
SOUND = {
    "config.toml": b"[sampling]\ntemperature = 0.5\n[presets.mine]\ntemperature = 0.7\n",
    "themes/mine.toml": b'primary = "#ff0000"\n',
    "state/drafts/draft-0.json": json.dumps({"text": "half a thought", "folded": {}}).encode(),
    "state/prompts.jsonl": b'"one"\n"two"\n',
    "state/recent-models.json": b'["/models/a.gguf"]',
    f"transcripts/{CHAT}.jsonl": b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS),
    f"transcripts/{CHAT}.lock": b'{"pid": 1}',
}
DERIVED = {f"transcripts/{CHAT}.lock"}  # nobody misses what is in it


@pytest.fixture
def places(tmp_path):
    return Paths(tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")


def contents(folder: Path) -> set[bytes]:
    """Of all files, as far as they have contents: their first bytes."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            with open(path, "rb") as file:
                found.add(file.read(1 << 16))
    return found


def within_patience(act):
    """What waits for a pipe would wait for ever."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(act()), daemon=True)
    thread.start()
    thread.join(60)
    assert done, "it waits, or it failed"
    return done[0]


def use_everything(places: Paths) -> list[str]:
    """What a start, a question and an end do with the files; returns what is said."""
    loaded = load_settings({}, {}, places)
    presets = load_presets(loaded.presets, "config.toml", loaded.warnings)
    assert {"precise", "balanced", "creative"} <= set(presets)
    said = [*loaded.warnings, *user_themes(places.config / "themes").warnings]
    with contextlib.suppress(SettingsError):
        write_setting(places.config_file, "top_p", 0.5, None)
    history = PromptHistory(places.prompt_history)
    history.add("a new question")
    drafts = DraftKeeper(places.drafts)
    drafts.open()
    drafts.save(Draft("a new thought"))
    drafts.close()
    recent = RecentModels(places)
    try:
        recent.add(places.data / "new.gguf")
    except OSError as error:
        said.append(str(error))
    assert isinstance(recent.paths(), list)
    store = TranscriptStore(places.transcripts)
    library = ChatLibrary(store, places.state)
    library.update()
    library.search("what")
    for chat in library.chats():
        said += [chat.problem] if chat.problem else []
        for change in (lambda: library.rename(CHAT, "New"), lambda: library.pin(CHAT, True)):
            with contextlib.suppress(ChatError):
                change()
        try:
            opened = store.open(chat.id)
            opened.transcript.title("A new title")
            opened.transcript.close()
            said += opened.warnings
        except ChatError as error:
            said.append(str(error))
    library.index.close()
    return [*said, *history.warnings, *drafts.warnings]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_lost_and_something_is_said(places, tmp_path, name, damage):
    for other, sound in SOUND.items():
        path = tmp_path / other
        path.parent.mkdir(parents=True, exist_ok=True)
        if other != name:
            path.write_bytes(sound)
        else:
            damage(path, sound)
    before = contents(tmp_path)
    said = within_patience(lambda: use_everything(places))
    missing = {each[:60] for each in before if not any(kept.startswith(each) for kept in contents(tmp_path))}
    if name in DERIVED or damage in (empty,):
        missing = set()
    assert not missing - changed(name)
    if damage is link_elsewhere:
        assert (tmp_path / name).with_name("other.txt").read_bytes() == LETTER
    assert all("\n" not in line for line in said)
    if damage in (binary, zeros, folder, pipe, link_to_device) and name not in (*DERIVED, "state/recent-models.json"):
        assert said
    again = within_patience(lambda: use_everything(places))
    assert len(again) <= len(said)  # it does not grow worse


def changed(name: str) -> set[bytes]:
    """What is sound may change."""
    own = ("state", "config")
    return {sound[:60] for other, sound in SOUND.items() if other != name and other.startswith(own)} | {
        SOUND[other][:60] for other in DERIVED
    }


def test_an_index_that_is_another_programs_database_is_left_alone(places, tmp_path):
    """A link to it is taken away, and it stays as it is, down to the byte."""
    store = TranscriptStore(places.transcripts)
    library = ChatLibrary(store, places.state)
    other = tmp_path / "other.sqlite3"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE letters (text TEXT)")
    database.close()
    before = other.read_bytes()
    places.state.mkdir()
    library.index.file.symlink_to(other)
    library.update()
    assert library.chats() == []
    library.index.close()
    assert other.read_bytes() == before
    assert not library.index.file.is_symlink()


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"x" * 9999)])
def test_an_index_that_is_none(places, make):
    library = ChatLibrary(TranscriptStore(places.transcripts), places.state)
    places.state.mkdir()
    make(library.index.file)
    library.update()
    assert library.chats() == []
    library.index.close()


def test_a_last_record_whose_newline_an_editor_took_is_kept(places):
    places.transcripts.mkdir(parents=True)
    path = places.transcripts / f"{CHAT}.jsonl"
    path.write_bytes(SOUND[f"transcripts/{CHAT}.jsonl"].removesuffix(b"\n"))
    store = TranscriptStore(places.transcripts)
    for _ in range(2):
        opened = store.open(CHAT)
        assert [message.content for message in opened.conversation] == ["What was"]
        assert opened.warnings == []
        opened.transcript.close()
    assert path.read_bytes() == SOUND[f"transcripts/{CHAT}.jsonl"]


async def test_the_screen_says_it_in_one_line(open_chat, places):
    shutil.rmtree(places.state, ignore_errors=True)
    places.drafts.mkdir(parents=True)
    (places.drafts / "draft-0.json").write_bytes(b"\0" * 50)
    places.prompt_history.write_bytes(b"\xff\n" * 50)
    history = PromptHistory(places.prompt_history)
    async with open_chat(
        size=(200, 30), drafts=DraftKeeper(places.drafts), history=history, warnings=history.warnings
    ) as chat:
        await chat.sees("draft-0.json.damaged")  # the rest of the line may be broken anywhere
        await chat.sees("prompts.jsonl.damaged")
    assert (places.drafts / "draft-0.json.damaged").read_bytes() == b"\0" * 50


def test_a_lock_that_is_no_lock_is_taken_over(tmp_path):
    for content in (b"", b"\0" * 100, b"x" * 100_000, b"[1]"):
        path = tmp_path / "chat.lock"
        path.write_bytes(content)
        lock = LockFile.acquire(path)
        assert lock is not None
        lock.release()
