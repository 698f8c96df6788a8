"""The index of chats: what it finds, that it is never needed, and that nothing in a query or a file can break it."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tinyllm_chat.chat import history as history_module
from tinyllm_chat.chat.conversation import Conversation
from tinyllm_chat.chat.finding import Query, Snippet, folded, indexed, is_query, shown
from tinyllm_chat.chat.history import HistoryIndex
from tinyllm_chat.chat.scripted import model_info
from tinyllm_chat.chat.transcript import Transcript, TranscriptStore

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


class History:
    """A folder of chats and an index over it."""

    def __init__(self, folder: Path, fts5: bool | None) -> None:
        self.folder = folder
        self.store = TranscriptStore(folder / "transcripts")
        self.fts5 = fts5
        self.index = self.another_index()

    def another_index(self) -> HistoryIndex:
        return HistoryIndex(self.store.folder, self.folder / "cache", fts5=self.fts5)

    def write(self, question: str, answer: str = "Well.", *, created: float = 1.7e9) -> str:
        conversation = Conversation()
        asked = conversation.new_message("user", question, None)
        answered = conversation.new_message("assistant", "", asked.id)
        answered.model = "Tiny"
        answered.extend(answer, ())
        answered.finish("eog", None)
        for message in conversation:
            message.created = created
        transcript = self.store.create(conversation, conversation.title, model_info("m.gguf"))
        transcript.close()
        return transcript.id

    def change(self, chat: str, change: Callable[[Transcript], None]) -> None:
        transcript = self.store.append_to(chat)
        change(transcript)
        transcript.close()

    def found(self, query: str) -> set[str]:
        self.index.update()
        return {hit.chat.title for hit in self.index.search(query)}


@pytest.fixture(params=[True, False], ids=["fts5", "no fts5"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path, request.param)
    yield made
    made.index.close()


def test_the_list_says_what_each_chat_is(history: History) -> None:
    old = history.write("What is gravity?", created=1.6e9)
    new = history.write("And light?", created=1.7e9)
    history.index.update()
    light, gravity = history.index.chats()
    assert (light.id, gravity.id) == (new, old)
    assert (gravity.title, gravity.model, gravity.messages) == ("What is gravity?", "Tiny", 2)
    assert (gravity.created, gravity.modified, gravity.pinned, gravity.problem) == (1.6e9, 1.6e9, False, None)
    assert gravity.size == (history.store.folder / f"{old}.jsonl").stat().st_size
    assert history.index.chats(1, 1) == [gravity]
    assert history.index.count() == 2


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Spacetime is curved", "curved"),
        ("Spacetime is curved", "SPACE curv"),  # beginnings, in any order
        ("Crème brûlée, naïve", "creme brulee"),
        ("creme", "CRÈME"),
        (unicodedata.normalize("NFD", "Ångström"), "ångström"),
        ("ＦＵＬＬ width ﬁne", "full fine"),
        ("Straße nach Köln", "koln"),
        ("我想知道天气怎么样", "天气"),
        ("我想知道天气怎么样", "气怎"),
        ("東京タワーへ行く", "タワー"),
        ("안녕하세요 세계", "안녕"),
        ("สวัสดีชาวโลก", "ชาว"),
        ("Привет, МИР", "мир"),
        ("def read_text(path):", "read_text"),
        ("def read_text(path):", "text"),
        ("a well-known fact", "well-known"),
        ("the answer is 42", "42"),
    ],
)
def test_what_is_found(history: History, text: str, query: str) -> None:
    history.write(f"About {text}")
    history.write("Nothing to see")
    assert history.found(query) == {f"About {text}"}


@pytest.mark.parametrize("query", ["curved gravity", "天日", "", "   ", "++", '"', "\x00"])
def test_what_is_not_found(history: History, query: str) -> None:
    history.write("Spacetime is curved 天气 日子")
    assert history.found(query) == set()


@pytest.mark.parametrize(
    "query", ["title:curved", "curved OR nothing", "curved NOT spacetime", "NEAR(curved)", "body:*", "{title}:curved"]
)
def test_no_word_of_a_query_is_syntax(history: History, query: str) -> None:
    history.write("spacetime is curved")
    assert history.found(query) == set()


@pytest.mark.parametrize("query", ["-curved", "^curved", "curved*", '"curved', "(curved", "curved)+"])
def test_no_sign_of_a_query_is_syntax(history: History, query: str) -> None:
    history.write("spacetime is curved")
    assert history.found(query) == {"spacetime is curved"}


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_any_text_can_be_indexed_and_searched(history: History, text: str, query: str) -> None:
    history.write(text, text)
    history.index.update()
    for hit in history.index.search(query):
        assert all(0 <= start < stop <= len(hit.snippet.text) for start, stop in hit.snippet.marks)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="aäÅbß 天気ทé-_", min_size=1), min_size=1, max_size=4))
def test_both_ways_to_search_find_whole_words(tmp_path: Path, texts: list[str]) -> None:
    """What is found by FTS5 is found without it, where words are found from their beginning."""
    query = Query(" ".join(texts[0].split()[:2]))
    answers = []
    for fts5 in (True, False):
        index = HistoryIndex(tmp_path, tmp_path, fts5=fts5)
        db = index._open(in_memory=True)
        for number, text in enumerate(texts):
            values = {"title": "", "body": indexed(text)}
            if not fts5:
                values["folded"] = folded(shown(values["body"]))
            db.execute(
                f"INSERT INTO texts (rowid, {', '.join(values)}) VALUES ({number}, {', '.join('?' * len(values))})",
                tuple(values.values()),
            )
            db.execute(
                "INSERT INTO chats VALUES (?, ?, 0, 0, 0, '', 0, 0, NULL, 0, 0, NULL)",
                (number, str(number)),
            )
        answers.append({hit.chat.id for hit in index._search(db, query, 99)} if query else set())
        db.close()
    with_fts5, without = answers
    assert with_fts5 <= without
    if query and texts[0].split()[0] == texts[0]:
        assert "0" in with_fts5


def test_a_snippet_is_the_line_with_the_words_marked(history: History) -> None:
    history.write("Why?", "First a line.\n" + "x " * 100 + "because Spáce is curved " + "y " * 100 + "\nspace")
    history.index.update()
    (hit,) = history.index.search("space curv")
    text = hit.snippet.text
    assert [text[start:stop] for start, stop in hit.snippet.marks] == ["Spáce", "curv"]
    assert text.startswith("… ")
    assert text.endswith(" …")
    assert len(text) < 140


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("天气", "我想知道天气怎么样", ["天气"]),
        ("strasse", "Die Straße", ["Straße"]),
        ("read text", "read_text", ["read", "text"]),
        ("well-known", "a well known fact", ["well known"]),
        ("art", "artful part", ["art"]),
    ],
)
def test_marks(query: str, text: str, marked: list[str]) -> None:
    assert [text[start:stop] for start, stop in Query(query).snippet(text).marks] == marked


def test_the_text_with_most_words_is_the_best() -> None:
    texts = ["Nothing", "Curved", "Spáce is curved", "space is curved"]
    assert Query("space curv").best(texts) == 2
    assert Query("curv").best(texts) == 1
    assert Query("gravity").best(texts) is None
    assert Query("").best(texts) is None


@pytest.mark.parametrize(
    ("text", "enough"),
    [("", False), (" ", False), ("a", False), ("ab", True), ("天", True), ("a b", True), ("+", True)],
)
def test_one_letter_is_not_searched_for_yet(text: str, enough: bool) -> None:
    assert is_query(text) == enough


def test_a_snippet_of_a_text_that_does_not_answer_is_its_beginning() -> None:
    assert Query("gravity").snippet("Two\n  lines") == Snippet("Two lines")


def test_only_what_changed_is_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = history_module.read_conversation
    monkeypatch.setattr(history_module, "read_conversation", lambda path: (read.append(path.stem), original(path))[1])
    first, second = history.write("one"), history.write("two")
    history.index.update()
    assert sorted(read) == sorted([first, second])
    read.clear()
    history.index.update()
    assert read == []
    history.change(first, lambda transcript: transcript.title("another title"))
    history.index.update()
    assert read == [first]
    assert history.found("another title") == {"another title"}


def test_a_chat_that_is_gone_is_found_no_longer(history: History) -> None:
    chat = history.write("curved")
    assert history.found("curved") == {"curved"}
    (history.store.folder / f"{chat}.jsonl").unlink()
    assert history.found("curved") == set()
    assert history.index.count() == 0


def test_pinned_chats_come_first(history: History) -> None:
    chat = history.write("old", created=1.6e9)
    history.write("new", created=1.7e9)
    history.change(chat, lambda transcript: transcript.pin(True))
    history.index.update()
    assert [(summary.title, summary.pinned) for summary in history.index.chats()] == [("old", True), ("new", False)]


def test_damaged_chats_are_listed_with_the_reason(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = history.store.folder
    chat = history.write("good")
    with open(folder / f"{chat}.jsonl", "ab") as file:
        file.write(b"\xff\xff\n")
    (folder / "newer.jsonl").write_text('{"type":"header","version":99}\n')
    (folder / "garbage.jsonl").write_bytes(os.urandom(100).replace(b"\n", b"") + b"\n")
    (folder / "folder.jsonl").mkdir()
    (folder / "not an id!.jsonl").write_text("")
    monkeypatch.setattr(history_module, "LARGEST", 10_000)
    (folder / "large.jsonl").write_bytes(b"\n" * 10_001)
    history.index.update()
    problems = {summary.id: summary.problem or "" for summary in history.index.chats()}
    assert problems.keys() == {chat, "newer", "garbage", "folder", "large"}
    assert "1 damaged record skipped" in problems[chat]
    assert "format 99" in problems["newer"]
    assert "no transcript" in problems["garbage"]
    assert "directory" in problems["folder"].lower()
    assert "more than" in problems["large"]


def test_dates_that_cannot_be_are_those_of_the_file(history: History) -> None:
    chat = history.write("from the future", created=9e10)
    os.utime(history.store.folder / f"{chat}.jsonl", (1.5e9, 1.5e9))
    history.index.update()
    assert history.index.chats()[0].modified == 1.5e9


# The file


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a database at all" * 100,
        b"SQLite format 3\x00" + bytes(5000),
        "foreign",
        "newer",
        "other tables",
        "torn",
    ],
    ids=["empty", "text", "header only", "foreign", "newer", "other tables", "torn"],
)
def test_an_index_that_is_not_ours_is_made_anew(history: History, content: bytes | str) -> None:
    history.write("curved")
    history.index.update()
    history.index.close()
    file = history.index.file
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "torn":
        data = bytearray(file.read_bytes())
        data[4096:] = os.urandom(len(data) - 4096)
        file.write_bytes(data)
    else:
        db = sqlite3.connect(file)
        if content == "foreign":
            db.execute("PRAGMA application_id = 1")
        elif content == "newer":
            db.execute("PRAGMA user_version = 1000")
        else:
            db.execute("ALTER TABLE chats ADD COLUMN more TEXT")
            db.commit()
        db.close()
    assert history.found("curved") == {"curved"}
    assert [chat.title for chat in history.index.chats()] == ["curved"]


def test_an_index_with_values_of_other_types_is_made_anew(history: History) -> None:
    history.write("curved")
    history.index.update()
    history.index.close()
    with sqlite3.connect(history.index.file) as db:
        db.execute("UPDATE chats SET modified = 'long ago'")
    db.close()
    history.index.chats()
    assert history.found("curved") == {"curved"}


def test_a_damaged_index_found_while_it_is_used_is_made_anew(history: History) -> None:
    history.write("curved")
    history.index.update()
    history.index._run(lambda db: db.execute("DROP TABLE chats"), writing=True)
    assert history.found("curved") == {"curved"}


def test_an_index_damaged_during_an_update_is_complete_after_it(history: History) -> None:
    for number in range(3):
        history.write(f"curved {number}")
    history.index.update()
    history.write("curved 3")
    damaged = False

    def damage(done: int, total: int) -> None:
        nonlocal damaged
        if not damaged:
            damaged = True
            history.index._run(lambda db: db.execute("DROP TABLE chats"), writing=True)

    history.index.update(damage)
    assert history.index.count() == 4


def test_an_index_made_without_full_text_search_is_not_used_with_it(history: History) -> None:
    history.write("curved")
    history.index.update()
    history.index.close()
    history.fts5 = not history.fts5
    history.index = history.another_index()
    assert history.found("curved") == {"curved"}


def test_where_nothing_can_be_written_the_index_is_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path, None)
    (tmp_path / "cache").write_text("a file in the way")
    history.write("curved")
    assert history.found("curved") == {"curved"}
    assert len([line for line in caplog.messages if "index of chats" in line]) == 1  # said once
    history.index.close()


def test_no_transcripts_are_no_error(history: History) -> None:
    history.index.update()
    assert history.index.chats() == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of Unix")
def test_only_the_user_can_read_the_index(history: History) -> None:
    history.write("curved")
    history.index.update()
    files = list(history.index.file.parent.iterdir())
    assert len(files) >= 2  # the write-ahead log too
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_two_folders_of_chats_have_two_indexes(tmp_path: Path) -> None:
    assert HistoryIndex(tmp_path / "a", tmp_path).file != HistoryIndex(tmp_path / "b", tmp_path).file


def test_a_build_can_be_stopped_and_goes_on(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "BATCH", 1)
    for number in range(3):
        history.write(f"chat {number}")
    seen: list[tuple[int, int]] = []
    history.index.update(lambda done, total: seen.append((done, total)), lambda: len(seen) == 2)
    assert seen == [(0, 3), (1, 3)]
    assert history.index.count() == 2
    history.index.update()
    assert history.index.count() == 3


SEVERAL = """
import sys
from pathlib import Path
from tinyllm_chat.chat.history import HistoryIndex
index = HistoryIndex(Path(sys.argv[1]), Path(sys.argv[2]))
for _ in range(5):
    index.update()
    assert len(index.search("chat")) == 40, len(index.search("chat"))
index.close()
"""


def test_several_instances_build_one_index_at_once(tmp_path: Path) -> None:
    history = History(tmp_path, None)
    for number in range(40):
        history.write(f"chat {number}")
    arguments = [sys.executable, "-c", SEVERAL, str(history.store.folder), str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen(arguments, stderr=subprocess.PIPE, env=environment) for _ in range(3)]
    assert [process.communicate(timeout=120)[1].decode() for process in running] == ["", "", ""]
    assert history.found("chat 7") == {"chat 7"}
    history.index.close()
