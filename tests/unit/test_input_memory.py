"""What outlives the program of the input: texts that were sent, and the draft; and files that a message names."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from tinyllm_chat.chat.attaching import (
    LIMIT,
    AttachingError,
    attachments,
    completed,
    completions,
    mentioned,
    unfinished,
)
from tinyllm_chat.chat.conversation import Attachment
from tinyllm_chat.chat.drafts import PIECE, Draft, DraftKeeper, _pieces
from tinyllm_chat.chat.prompt_history import KEPT, LONGEST, PromptHistory
from tinyllm_chat.tui.editor import EditorError, edited, editor_command

# Texts that were sent


def test_texts_come_back_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "state" / "prompts.jsonl"
    history = PromptHistory(path)
    for text in ("one", "two\nlines", "two\nlines", " ", "x" * (LONGEST + 1), "three\ud800"):
        history.add(text)
    assert PromptHistory(path).texts == history.texts == ["one", "two\nlines", "three\ud800"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_instances_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    first, second = PromptHistory(path), PromptHistory(path)
    first.add("a")
    second.add("b")
    first.add("c")
    assert PromptHistory(path).texts == ["a", "b", "c"]


def test_the_file_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b"".join(b'"text %d"\n' % number for number in range(2 * KEPT + 5)))
    history = PromptHistory(path)
    assert (len(history.texts), history.texts[-1]) == (KEPT, f"text {2 * KEPT + 4}")
    assert path.read_bytes().count(b"\n") == KEPT


@pytest.mark.parametrize("damage", [b"[1]\n{}\nnull\n\xff\xfe\n", b"[" * 100_000, b'"a'])
def test_damage_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'"one"\n' + damage)
    assert PromptHistory(path).texts == ["one"]


def test_a_history_that_cannot_be_kept_works_for_the_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "prompts.jsonl", tmp_path, None):
        history = PromptHistory(path)
        history.add("one")
        assert history.texts == ["one"]


# Drafts


def test_a_draft_outlives_its_instance(tmp_path: Path) -> None:
    draft = Draft("see [pasted]", {"[pasted]": "a\nb\ud800"})
    crashed = DraftKeeper(tmp_path)
    assert crashed.open() == Draft()
    crashed.save(draft)
    other = DraftKeeper(tmp_path)
    assert other.open() == Draft()  # the first one still lives
    crashed.close()
    assert DraftKeeper(tmp_path).open() == draft
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_book_is_kept_a_little_at_a_time(tmp_path: Path) -> None:
    """No other thread runs while a piece is made."""
    book = 'a "line" of é, 🙂 and \ud800\n' * 20_000
    draft = Draft("[one] and [two]", {"[one]": book, '["two"]': ""})
    pieces = list(_pieces(draft))
    assert max(map(len, pieces)) < 10 * PIECE
    assert json.loads(b"".join(pieces)) == {"text": draft.text, "folded": dict(draft.folded)}
    keeper = DraftKeeper(tmp_path)
    keeper.open()
    keeper.save(draft)
    keeper.close()
    assert DraftKeeper(tmp_path).open() == draft


def test_the_draft_that_was_wanted_last_is_the_one_that_is_kept(tmp_path: Path) -> None:
    keeper = DraftKeeper(tmp_path)
    keeper.open()
    keeper.want(Draft("old"))
    keeper.save(Draft("new"))
    keeper.write()  # of a thread that had been asked to write the old one
    keeper.close()
    assert DraftKeeper(tmp_path).open() == Draft("new")


def test_an_empty_draft_leaves_nothing(tmp_path: Path) -> None:
    keeper = DraftKeeper(tmp_path)
    keeper.open()
    keeper.save(Draft("a"))
    keeper.save(Draft(""))
    keeper.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"text":1,"folded":{}}', b'{"text":"a","folded":[]}', b"\xff"])
def test_a_damaged_draft_is_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "draft-0.json").write_bytes(damage)
    assert DraftKeeper(tmp_path).open() == Draft()


def test_drafts_that_cannot_be_kept_bother_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keeper = DraftKeeper(tmp_path / "file")
    assert keeper.open() == Draft()
    keeper.save(Draft("a"))
    keeper.close()


# Files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "two words.md").write_bytes("\ufeffgrün\r\nblau".encode())
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "zero.bin").write_bytes(b"a\0b")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "main.py").write_text("x = 1\n")
    return tmp_path


def test_named_files_are_read(folder: Path) -> None:
    text = 'See @notes.txt, and @"two words.md" (not a@notes.txt or @nobody or @source), @notes.txt @source/main.py.'
    assert attachments(text, folder) == (
        Attachment("notes.txt", "one\ntwo\n"),
        Attachment("two words.md", "grün\nblau"),
        Attachment("source/main.py", "x = 1\n"),
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("picture.png", "no UTF-8 text"), ("zero.bin", "it is binary"), ("big.txt", "larger than 1,000,000 bytes")],
)
def test_what_is_no_text_is_refused_in_one_line(folder: Path, name: str, reason: str) -> None:
    (folder / "big.txt").write_bytes(b"a" * (LIMIT + 1))
    with pytest.raises(AttachingError, match=f"^{name}: not attached: .*{reason}") as error:
        attachments(f"@{name}", folder)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(AttachingError, match="no regular file"):
        attachments("@pipe", folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs permissions")
def test_an_unreadable_file_says_why(folder: Path) -> None:
    (folder / "notes.txt").chmod(0)
    with pytest.raises(AttachingError, match="Permission denied"):
        attachments("@notes.txt", folder)


def test_a_file_that_is_gone_is_the_one_that_was_sent(folder: Path) -> None:
    gone = Attachment("gone.txt", "old")
    assert attachments("@gone.txt and @notes.txt", folder, [gone, Attachment("notes.txt", "old")]) == (
        gone,
        Attachment("notes.txt", "one\ntwo\n"),
    )


@pytest.mark.parametrize("text", ["@" + "x" * 5000, "@a\0b", "@~nobody/x", "@", '@""', '@"', "@/dev/null\0"])
def test_odd_names_are_text(folder: Path, text: str) -> None:
    assert mentioned(text, folder) == []


def test_names_are_completed(folder: Path) -> None:
    assert unfinished("see @no") == "no"
    assert unfinished('see @"two w') == "two w"
    assert unfinished("see @no ") is None
    assert unfinished("a@b") is None
    assert completions("", folder)[0] == "source/"
    assert ".hidden" not in completions("", folder)
    assert completions(".h", folder) == [".hidden"]
    assert completions("No", folder) == ["notes.txt"]
    assert completions("source/", folder) == ["source/main.py"]
    assert completions("nowhere/", folder) == completions("a\0", folder) == []
    assert completed("see @no", "notes.txt") == "see @notes.txt "
    assert completed("see @so", "source/") == "see @source/"
    assert completed('see @"tw', "two words.md") == 'see @"two words.md" '


# The editor


def editor(tmp_path: Path, code: str) -> dict[str, str]:
    script = tmp_path / "editor.py"
    script.write_text(f"import sys\npath = sys.argv[-1]\n{code}\n")
    return {"VISUAL": f'"{sys.executable}" "{script}" --wait', "EDITOR": "nothing"}


def test_a_text_goes_through_the_editor(tmp_path: Path) -> None:
    env = editor(tmp_path, "text = open(path).read(); open(path, 'w').write(text + ' and more\\n')")
    assert edited("some text", nullcontext, env) == "some text and more"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(3)", "ended with code 3"),
        ("open(path, 'wb').write(b'\\xff')", "UTF-8"),
        ("import os; os.remove(path)", "read"),
    ],
)
def test_an_editor_that_fails_says_why(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(EditorError, match=said):
        edited("a", nullcontext, editor(tmp_path, code))


def test_which_editor_is_used() -> None:
    assert editor_command({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_command({"VISUAL": " ", "EDITOR": "vi"}) == ["vi"]
    assert editor_command({}, which=lambda name: name if name == "vi" else None) == ["vi"]
    for env, said in (({"EDITOR": 'a "'}, "cannot be understood"), ({}, "no editor is set")):
        with pytest.raises(EditorError, match=said):
            editor_command(env, which=lambda name: None)
    with pytest.raises(EditorError, match="cannot be started"):
        edited("a", nullcontext, {"EDITOR": "/no/such/editor"})


def test_a_label_of_two_drafts_keeps_both_meanings() -> None:
    a, b = Draft("a [x]", {"[x]": "A"}), Draft("b [x] [y]", {"[x]": "B", "[y]": "C"})
    assert a.before(b) == Draft("a [x]\nb [x, 2] [y]", {"[x]": "A", "[x, 2]": "B", "[y]": "C"})
    assert a.before(b).whole == "a A\nb B C"
    assert a.before(a).text == "a [x]\na [x]"
    assert a.before(Draft()) == a
