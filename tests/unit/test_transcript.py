"""Transcripts: faithful, append-only, robust against crashes and damage, one writer at a time."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tinyllm_chat.chat.conversation import UNTITLED, Conversation, MessageState
from tinyllm_chat.chat.errors import TranscriptError
from tinyllm_chat.chat.events import AnswerStats, TextDelta
from tinyllm_chat.chat.scripted import model_info
from tinyllm_chat.chat.transcript import TranscriptStore

# Two halves of a surrogate pair side by side are one character to JSON; everything else comes back as it was.
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=())).map(
    lambda text: json.loads(json.dumps(text))  # joins such pairs
)


@pytest.fixture
def store(tmp_path: Path) -> TranscriptStore:
    return TranscriptStore(tmp_path / "transcripts")


def sample_chat(text: str = "Why?") -> Conversation:
    conversation = Conversation()
    conversation.set_system("Be brief.")
    user = conversation.new_message("user", text, None)
    answer = conversation.new_message("assistant", "", user.id)
    answer.fingerprint, answer.model = "print", "Tiny"
    answer.extend("Because", (1, 2), {"temperature": 0.5})
    answer.extend(".", (3,), {"temperature": 0.9})
    answer.finish("eog", AnswerStats(10, 5, 3, 0.5, 0.25, 0.125, 2**60 + 1))
    failed = conversation.new_message("assistant", "", user.id)
    failed.fail("no memory")
    conversation.select(answer.id)
    return conversation


def facts(conversation: Conversation) -> Any:
    """Everything that must survive."""
    messages = [conversation.system, *conversation] if conversation.system else [*conversation]
    return conversation.head, [
        (
            m.id,
            m.parent,
            m.role,
            m.content,
            m.reasoning,
            m.thought_tokens,
            m.thought_seconds,
            m.ids,
            m.fingerprint,
            m.state,
            m.reason,
            m.error,
            m.stats,
            m.model,
            m.created,
        )
        for m in messages
    ]


def saved(store: TranscriptStore, conversation: Conversation) -> str:
    transcript = store.create(conversation, conversation.title, model_info("m.gguf"))
    transcript.close()
    return transcript.id


def test_a_chat_comes_back_as_it_was(store: TranscriptStore) -> None:
    conversation = sample_chat()
    loaded = store.open(saved(store, conversation))
    loaded.transcript.close()
    assert loaded.warnings == []
    assert facts(loaded.conversation) == facts(conversation)
    answer = loaded.conversation.path()[-1]
    assert [(span.start, span.values) for span in answer.sampling_spans] == [
        (0, {"temperature": 0.5}),
        (2, {"temperature": 0.9}),
    ]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_is_kept_faithfully(store: TranscriptStore, system: str, question: str, answer_text: str) -> None:
    conversation = Conversation()
    conversation.set_system(system)
    user = conversation.new_message("user", question, None)
    answer = conversation.new_message("assistant", "", user.id)
    answer.extend(answer_text, (1,))
    answer.finish("eog", None)
    loaded = store.open(saved(store, conversation))
    loaded.transcript.close()
    assert loaded.warnings == []
    assert [message.content for message in loaded.conversation.path()] == [system, question, answer_text]


@pytest.mark.parametrize(
    "pieces",
    [
        [("Hm", (1, 2), True), (".", (), True), ("Yes", (3,), False)],
        [("Hm", (1, 2), True)],
        [("", (1,), False), ("Hm", (2,), True), ("Yes", (3,), False)],
    ],
)
def test_reasoning_is_kept_apart(store: TranscriptStore, pieces: list[tuple[str, tuple[int, ...], bool]]) -> None:
    conversation = sample_chat()
    answer = conversation.new_message("assistant", "", None)
    for text, ids, reasoning in pieces:
        answer.extend(text, ids, {"temperature": 0.5}, reasoning=reasoning, seconds=0.25 if reasoning else 0.0)
    answer.finish("eog", None)
    before = facts(conversation)
    loaded = store.open(saved(store, conversation))
    loaded.transcript.close()
    again = loaded.conversation[answer.id]
    assert (again.content, again.reasoning, again.ids) == (answer.content, answer.reasoning, answer.ids)
    assert again.thought_seconds == answer.thought_seconds
    assert again.thought_tokens == answer.thought_tokens
    assert facts(loaded.conversation)[0] == before[0]


def test_reasoning_is_recorded_as_it_comes(store: TranscriptStore) -> None:
    conversation = sample_chat()
    transcript = store.create(conversation, "x", None)
    answer = conversation.new_message("assistant", "", None)
    transcript.message(answer)
    transcript.delta(TextDelta(answer.id, "Hm", (7,), 0.0, None, True, 0.12345))
    transcript.delta(TextDelta(answer.id, "Yes", (8,), 0.0))
    transcript.close()
    again = store.open(transcript.id)
    again.transcript.close()
    message = again.conversation[answer.id]
    assert (message.content, message.reasoning, message.ids) == ("Yes", "Hm", [7, 8])
    assert (message.thought_tokens, message.thought_seconds) == (1, 0.123)


def test_one_record_is_one_line_of_ascii(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat("a\nb\u2028c\x85d\x00\ud800"))
    lines = (store.folder / f"{chat}.jsonl").read_bytes().decode("ascii").splitlines()
    assert [json.loads(line)["type"] for line in lines] == [
        "header", "message", "message", "message", "delta", "delta", "end", "message", "end", "head",
    ]  # fmt: skip


def test_files_are_private(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    if os.name == "posix":
        assert stat.S_IMODE((store.folder / f"{chat}.jsonl").stat().st_mode) == 0o600
        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_an_answer_without_its_end_is_interrupted(store: TranscriptStore) -> None:
    conversation = Conversation()
    user = conversation.new_message("user", "a", None)
    transcript = store.create(conversation, "a", None)
    answer = conversation.new_message("assistant", "", user.id)
    transcript.message(answer)
    transcript.delta(TextDelta(answer.id, "half", (1,), 0.0))
    transcript.close()
    loaded = store.open(transcript.id)
    loaded.transcript.close()
    last = loaded.conversation.path()[-1]
    assert (last.content, last.state) == ("half", MessageState.INTERRUPTED)


def test_a_continued_answer_is_one_message(store: TranscriptStore) -> None:
    conversation = sample_chat()
    transcript = store.create(conversation, "a", None)
    answer = conversation.path()[-1]
    answer.resume("print")
    transcript.resume(answer)
    answer.extend(" So.", (4,))
    transcript.delta(TextDelta(answer.id, " So.", (4,), 0.0))
    answer.finish("eog", None)
    transcript.end(answer)
    transcript.close()
    loaded = store.open(transcript.id)
    loaded.transcript.close()
    assert facts(loaded.conversation) == facts(conversation)


def damaged(store: TranscriptStore, change: Callable[[list[bytes]], list[bytes]]) -> tuple[Conversation, list[str]]:
    """A saved sample chat whose lines were changed, as it is read."""
    chat = saved(store, sample_chat())
    path = store.folder / f"{chat}.jsonl"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    loaded = store.open(chat)
    loaded.transcript.close()
    return loaded.conversation, loaded.warnings


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_a_torn_last_line_is_dropped_silently_and_writing_goes_on(store: TranscriptStore, kept: int) -> None:
    chat = saved(store, sample_chat())
    path = store.folder / f"{chat}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"message","id":"x","parent":null,"role":"user","content":"lost"}'[:kept])
    loaded = store.open(chat)
    assert loaded.warnings == []
    loaded.transcript.head(loaded.conversation.path()[-1].id)
    loaded.transcript.close()
    assert path.read_bytes().startswith(whole)
    again = store.open(chat)
    again.transcript.close()
    assert again.warnings == []
    assert facts(again.conversation) == facts(loaded.conversation)
    assert [message.content for message in again.conversation.path()] == ["Be brief.", "Why?", "Because."]


@pytest.mark.parametrize(
    "line",
    [
        b"\x00" * 50,
        b"\xff\xfe",
        b"[1, 2]",
        b"{",
        b"",
        b"[" * 100_000,
        b"1" * 5000,
        b'{"type":"unknown"}',
        b'{"type":"delta","id":"nobody","text":"","ids":[]}',
        b'{"type":"message","id":"z","parent":null,"role":"tool","content":"x"}',
        b'{"type":"message","id":7,"parent":null,"role":"user","content":"x"}',
        b'{"type":"message","id":"z","parent":[],"role":"user","content":"x"}',
        b'{"type":"head","id":"nobody"}',
        b'{"type":"end","id":{}}',
    ],
)
def test_a_damaged_record_is_skipped_with_a_warning(store: TranscriptStore, line: bytes) -> None:
    conversation, warnings = damaged(store, lambda lines: [*lines[:3], line + b"\n", *lines[3:]])
    assert [message.content for message in conversation.path()] == ["Be brief.", "Why?", "Because."]
    (warning,) = warnings
    assert "1 damaged record skipped, the first in line 4" in warning


@pytest.mark.parametrize("ids", ['"x"', "[true]", "[-1]", "[1.5]", "[99999999999999]", "null"])
def test_ids_that_are_none_are_not_taken(store: TranscriptStore, ids: str) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        return [line.replace(b'"ids":[3]', b'"ids":' + ids.encode()) for line in lines]

    conversation, warnings = damaged(store, change)
    assert conversation.path()[-1].ids == [1, 2]
    assert len(warnings) == 1


def test_a_message_whose_parent_is_lost_stays_in_the_chat(store: TranscriptStore) -> None:
    conversation, warnings = damaged(store, lambda lines: [line for line in lines if b'"role":"user"' not in line])
    assert conversation.path()[-1].content == "Because."
    assert len(warnings) == 1


def test_figures_that_make_no_sense_become_nothing(store: TranscriptStore) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        joined = b"".join(lines).replace(b'"prompt_tokens":10', b'"prompt_tokens":NaN')
        return [joined.replace(b'"prefill_seconds":0.5', b'"prefill_seconds":"x"')]

    conversation, warnings = damaged(store, change)
    stats = conversation.path()[-1].stats
    assert stats == AnswerStats(0, 5, 3, 0.0, 0.25, 0.125, 2**60 + 1)
    assert warnings == []


def test_a_file_of_a_newer_version_is_refused_and_left_alone(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    path = store.folder / f"{chat}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    before = path.read_bytes()
    with pytest.raises(TranscriptError, match="format 2"):
        store.open(chat)
    assert path.read_bytes() == before
    assert not (store.folder / f"{chat}.lock").exists()


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=8), st.floats(0, 1))
def test_no_damage_stops_the_reader(store: TranscriptStore, changes: list[tuple[float, int]], kept: float) -> None:
    chat = saved(store, sample_chat())
    path = store.folder / f"{chat}.jsonl"
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[int(place * len(content))] = value
    path.write_bytes(content[: int(kept * len(content))])
    try:
        loaded = store.open(chat)
    except TranscriptError:
        assert b'"version":1,' not in path.read_bytes()  # the damage made it a newer format
        return
    loaded.transcript.close()
    loaded.conversation.path()
    assert len(loaded.warnings) <= 2
    assert any(listed.id == chat for listed in store.list())


@pytest.mark.parametrize("chat_id", ["", ".", "..", "../x", "a/b", "a\\b", "x" * 200, "a\x00b", "-x"])
def test_an_id_is_no_path(store: TranscriptStore, chat_id: str) -> None:
    with pytest.raises(TranscriptError, match="not the id of a chat"):
        store.open(chat_id)


def test_an_unknown_chat_is_an_error(store: TranscriptStore) -> None:
    with pytest.raises(TranscriptError, match="no such chat"):
        store.open("20250101-000000-abcdef")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TranscriptError, match="cannot be saved"):
        TranscriptStore(tmp_path / "file" / "x").create(Conversation(), "a", None)


# The list


def test_the_list_names_every_chat_the_latest_first(store: TranscriptStore) -> None:
    old, new = saved(store, sample_chat("old\nchat")), saved(store, sample_chat("new"))
    os.utime(store.folder / f"{old}.jsonl", (1000, 1000))
    os.utime(store.folder / f"{new}.jsonl", (2000, 2000))
    (store.folder / "unrelated name.jsonl").write_text("{}\n")
    (store.folder / "damaged.jsonl").write_bytes(b"\x00\xff\n")
    os.utime(store.folder / "damaged.jsonl", (500, 500))
    found = [(chat.id, chat.title, chat.modified, chat.model) for chat in store.list()]
    assert found == [
        (new, "new", 2000, "SmolLM2-135M-Instruct"),
        (old, "old chat", 1000, "SmolLM2-135M-Instruct"),
        ("damaged", UNTITLED, 500, None),
    ]
    assert store.latest() == new


def test_no_folder_no_chats(store: TranscriptStore) -> None:
    assert store.list() == []
    assert store.latest() is None


# One writer


def test_a_second_writer_reads_only(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    first = store.open(chat)
    second = store.open(chat)
    assert (first.transcript.read_only, second.transcript.read_only) == (False, True)
    with pytest.raises(TranscriptError, match="reading only"):
        second.transcript.head("x")
    second.transcript.close()
    first.transcript.close()
    third = store.open(chat)
    assert not third.transcript.read_only
    third.transcript.close()


def test_a_torn_line_of_a_chat_that_is_being_written_is_not_cut_off(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    owner = store.open(chat)
    path = store.folder / f"{chat}.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"type":"hea')
    size = path.stat().st_size
    second = store.open(chat)
    assert path.stat().st_size == size
    second.transcript.close()
    owner.transcript.close()


def test_a_fork_is_a_chat_of_its_own(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    loaded = store.open(chat)
    fork = store.create(loaded.conversation, "copy", None, forked_from=chat)
    fork.close()
    loaded.transcript.close()
    assert fork.id != chat
    copy = store.open(fork.id)
    copy.transcript.close()
    assert facts(copy.conversation) == facts(loaded.conversation)
    assert json.loads(fork.path.read_bytes().splitlines()[0])["forked_from"] == chat


ANSWERING = """
import sys, time
from pathlib import Path
from tinyllm_chat.chat.scripted import ScriptedBackend
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.transcript import TranscriptStore

backend = ScriptedBackend([[f"{number} " for number in range(100_000)]], automatic=False)
session = Session(backend, TranscriptStore(Path(sys.argv[1])), Settings())
session.open_model("model.gguf")
backend.finish_opening()
session.drain()
session.send("count")
for number in range(100_000):
    backend.step()
    session.drain()
    print(number, time.time(), flush=True)
    time.sleep(0.002)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal")
def test_a_killed_program_loses_at_most_the_last_second(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ANSWERING, str(tmp_path)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    shown = []
    for line in process.stdout:
        shown.append(line.split())
        if len(shown) == 300:
            break
    process.send_signal(signal.SIGKILL)
    killed = time.time()
    shown += [line.split() for line in process.stdout.read().splitlines() if len(line.split()) == 2]
    process.wait()
    store = TranscriptStore(tmp_path)
    chat = store.latest()
    assert chat is not None
    loaded = store.open(chat)
    assert not loaded.transcript.read_only  # the lock of the dead is taken over
    loaded.transcript.close()
    assert loaded.warnings == []
    question, answer = loaded.conversation.path()
    assert question.content == "count"
    assert answer.state is MessageState.INTERRUPTED
    numbers = [int(word) for word in answer.content.split()]
    assert numbers == list(range(len(numbers)))
    assert len(answer.ids) == len(numbers)
    older_than_a_second = [int(number) for number, moment in shown if float(moment) < killed - 1]
    assert len(numbers) > max(older_than_a_second, default=0)
    assert numbers


HOLDING = """
import sys
from pathlib import Path
from tinyllm_chat.chat.transcript import TranscriptStore

loaded = TranscriptStore(Path(sys.argv[1])).open(sys.argv[2])
print(loaded.transcript.read_only, flush=True)
sys.stdin.read()
"""


def test_two_programs_never_write_one_file(store: TranscriptStore) -> None:
    chat = saved(store, sample_chat())
    arguments = [sys.executable, "-c", HOLDING, str(store.folder), chat]
    first = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "False\n"
    mine = store.open(chat)
    assert mine.transcript.read_only
    second = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert second.stdout == "True\n"
    first.kill()
    first.wait()
    first.stdin.close()
    first.stdout.close()
    mine = store.open(chat)
    assert not mine.transcript.read_only
    mine.transcript.close()
