"""Chats as documents: faithful, harmless, private; and documents of anybody as chats."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tinyllm_chat.chat import exports
from tinyllm_chat.chat.conversation import Attachment, Conversation, MessageState
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.chat.errors import ExportError
from tinyllm_chat.chat.events import AnswerStats
from tinyllm_chat.chat.interchange import from_json, to_json
from tinyllm_chat.chat.markdown import from_markdown, to_markdown
from tinyllm_chat.chat.webpage import to_html

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def a_chat(question: str = "Why?", answer: str = "Because.", thought: str = "Hm.") -> Conversation:
    conversation = Conversation()
    conversation.set_system("Be brief.")
    asked = conversation.new_message("user", question, None, [Attachment("notes.txt", "a file")])
    first = conversation.new_message("assistant", "", asked.id)
    first.model, first.fingerprint = "Tiny", "print"
    first.extend(thought, (1, 2), {"temperature": 0.5}, reasoning=True, seconds=1.5)
    first.extend(answer, (3, 4))
    first.finish("eog", AnswerStats(10, 5, 3, 0.5, 0.25, 0.125, 99))
    other = conversation.new_message("assistant", "", asked.id)
    other.fail("no memory")
    conversation.select(first.id)
    return conversation


def facts(conversation: Conversation) -> Any:
    messages = [conversation.system, *conversation] if conversation.system else [*conversation]
    return (
        conversation.head,
        conversation.title,
        conversation.pinned,
        [{name: getattr(message, name) for name in message.__slots__} for message in messages],
    )


def said(conversation: Conversation) -> list[tuple[str, str, Any]]:
    return [(message.role, message.content, message.model) for message in conversation.path()]


# JSON


def test_json_brings_back_all_of_a_chat() -> None:
    conversation = a_chat()
    conversation.name, conversation.pinned = "Heavy things", True
    back, warnings = from_json(to_json(conversation), "chat.json")
    assert facts(back) == facts(conversation)
    assert warnings == []


@given(ANY_TEXT, ANY_TEXT)
def test_json_brings_back_any_text(question: str, answer: str) -> None:
    conversation = a_chat(question, answer)
    document = to_json(conversation)
    assert not STEERING.search(document)
    # Two halves of a surrogate pair side by side are one character to JSON.
    assert from_json(document, "")[0].path()[-1].content == json.loads(json.dumps(answer))


def test_json_tells_other_programs_what_is_visible() -> None:
    messages = json.loads(to_json(a_chat()))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[-1] == {"role": "assistant", "content": "Because."}
    assert "a file" in messages[1]["content"]


@pytest.mark.parametrize("wrapped", [True, False])
def test_messages_of_other_programs_are_read(wrapped: bool) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Why?"}, {"type": "image_url"}]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "Because."},
    ]
    document = {"title": "Causes", "messages": messages} if wrapped else messages
    conversation, warnings = from_json(json.dumps(document), "chat.json")
    assert said(conversation) == [
        ("system", "Be brief.", None),
        ("user", "Why?", None),
        ("assistant", "Because.", None),
    ]
    assert conversation.path()[-1].state is MessageState.COMPLETE
    assert conversation.title == ("Causes" if wrapped else "Why?")
    assert len(warnings) == 1
    assert "2 damaged records skipped" in warnings[0]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("3", "expected an object"),
        ("{}", "expected a list"),
        ('{"records": 3}', "expected a list"),
        ('{"records": []}', "no message"),
        ('{"messages": [1, "x", {}]}', "no message"),
        ('{"format": "tinyllm-chat", "version": 9, "records": []}', "format 9"),
        ('{"records": [{"type": "header", "version": 9}]}', "format 9"),
    ],
)
def test_json_that_is_no_chat_is_refused(document: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(document, "chat.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=10,
)
records = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "delta", "end", "head", "resume", "title", "pin", "delete", "restore"])},
    optional={
        "id": st.sampled_from(["a", "b", "c"]) | json_values,
        "parent": st.sampled_from(["a", "b", "c", None]) | json_values,
        "role": st.sampled_from(["user", "assistant", "system"]) | json_values,
        **dict.fromkeys(("content", "text", "ids", "stats", "sampling", "attachments", "title"), json_values),
    },
)


@hypothesis_settings(max_examples=30)
@given(st.lists(records | json_values, max_size=12))
def test_hostile_records_make_a_chat_or_are_refused(document: list[Any]) -> None:
    try:
        conversation, _ = from_json(json.dumps({"records": document}), "chat.json")
    except ValueError:
        return
    from_json(to_json(conversation), "again")
    for write in (to_markdown, to_html):
        assert not STEERING.search(write(conversation))


# Markdown


def test_markdown_brings_back_what_is_visible() -> None:
    conversation = a_chat()
    conversation.name = "Heavy things"
    back = from_markdown(to_markdown(conversation))
    assert back.title == "Heavy things"
    assert [(role, model) for role, _, model in said(back)] == [
        ("system", None),
        ("user", None),
        ("assistant", "Tiny"),
    ]
    assert back.path()[-1].content == "Because."


def a_cut_chat(summary: str = "") -> Conversation:
    conversation = a_chat()
    question = conversation.new_message("user", "And then?", conversation.head)
    first = conversation.path()[1]
    conversation.name = "Heavy things"
    conversation.cuts[question.id] = Cut(first.id, question.id, 2, 1234, summary)
    return conversation


@pytest.mark.parametrize("summary", ["", "Both agreed.\n\n## You\n\nNothing else."])
def test_documents_mark_what_the_model_does_not_see(summary: str) -> None:
    conversation = a_cut_chat(summary)
    begins, ends = "from here on not seen by the model", "not seen by the model: 2 messages, 1,234 tokens"
    for text in (to_markdown(conversation), Page(to_html(conversation)).text):
        places = [text.index(each) for each in ("Be brief.", begins, "Why?", "Because.", ends, "And then?")]
        assert places == sorted(places)
        assert ("Both agreed." in text, "Summary in their place" in text) == (bool(summary), bool(summary))
    document = json.loads(to_json(conversation))
    assert document["not_seen"] == {"begin": 1, "end": 3, "tokens": 1234, "summary": summary}
    assert from_json(to_json(conversation), "again")[0].cut == conversation.cut


@pytest.mark.parametrize("edited", [False, True])
def test_marks_in_markdown_are_no_part_of_a_message(edited: bool) -> None:
    conversation = a_cut_chat("Both agreed.")
    document = to_markdown(conversation)
    back = from_markdown(document.replace("Why?", "Why?\n\nSay.") if edited else document)
    path = back.path()
    assert [message.role for message in path] == ["system", "user", "assistant", "user"]
    assert [path[0].content, path[2].content, path[3].content] == ["Be brief.", "Because.", "And then?"]
    assert back.cut is None


def test_headings_of_an_answer_are_part_of_it() -> None:
    answer = "# Title\n\n## You\n\n## System\n\n## Tiny\n\nSaid."
    conversation = a_chat("Why?", answer)
    assert said(from_markdown(to_markdown(conversation)))[-1] == ("assistant", answer, "Tiny")


def test_a_document_that_was_edited_is_read_by_its_headings() -> None:
    document = to_markdown(a_chat()).replace("Why?", "Why?\n\nReally?\n\n- or not")
    conversation = from_markdown("\n".join([document.split("\n")[0], "", "", *document.split("\n")[1:]]))
    assert [role for role, *_ in said(conversation)] == ["system", "user", "assistant"]
    assert "Really?" in said(conversation)[1][1]
    assert said(conversation)[2][1] == "Because."


@pytest.mark.parametrize("end", ["cancelled", "length", "failed", "unfinished", "edited"])
def test_markdown_keeps_how_an_answer_ended(end: str) -> None:
    conversation = a_chat()
    answer = conversation.path()[-1]
    if end == "failed":
        answer.fail("no memory")
    elif end == "unfinished":
        answer.state = MessageState.INTERRUPTED
    else:
        answer.finish(end, None)
    back = from_markdown(to_markdown(conversation)).path()[-1]
    assert (back.content, back.state, back.error) == ("Because.", answer.state, answer.error)
    assert back.reason == (end if end not in ("failed", "unfinished") else None)


@pytest.mark.parametrize("document", ["", "\n\n", "Hello", "# A title", "# A title\n\n## Other\n\ntext", "## You\n"])
def test_markdown_that_is_no_chat_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        from_markdown(document)


@given(ANY_TEXT, ANY_TEXT)
def test_markdown_brings_back_any_text_but_for_what_steers_terminals(question: str, answer: str) -> None:
    document = to_markdown(a_chat(question, answer))
    assert not STEERING.search(document)
    back = said(from_markdown(document))
    assert [role for role, *_ in back] == ["system", "user", "assistant"]
    assert back[-1][1] == STEERING.sub("", answer.replace("\r\n", "\n")).strip("\n") or not answer.strip()


@given(st.text(alphabet="#@ \nYouSystem<!-123tinyllm->:", max_size=60))
def test_markdown_of_anybody_makes_a_chat_or_is_refused(document: str) -> None:
    try:
        conversation = from_markdown(f"# x\n{document}")
    except ValueError:
        return
    assert len(conversation) or conversation.system is not None


# Web pages


class Page(HTMLParser):
    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


HARMLESS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2", "time"),
    *("details", "summary", "div", "p", "pre", "code", "a", "em", "strong", "ul", "ol", "li", "blockquote", "table"),
    *("thead", "tbody", "tr", "th", "td", "hr", "br", "s", "h3", "h4", "h5", "h6"),
}


def test_a_page_reads_well() -> None:
    page = Page(to_html(a_chat("Why <b>?", "It is **so**, `x < y`.")))
    assert "Why <b>?" in page.text
    assert "It is so, x < y." in page.text
    assert {"strong", "code", "details"} <= set(page.tags)
    assert set(page.tags) <= HARMLESS
    assert "a file" in page.text
    assert "Hm." in page.text
    assert "prefers-color-scheme: dark" in to_html(a_chat())


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "![a picture](https://example.com/track.png)",
        "[click](javascript:alert(1))",
        "[click](data:text/html,x)",
        "</section></body><script>",
        "<https://example.com/?a=\"onclick='x'\">",
        "```\n</code></pre><script>\n```",
        "[a]: javascript:alert(1)\n\n[a]",
    ],
)
def test_nothing_in_a_page_runs_or_is_fetched(text: str) -> None:
    conversation = a_chat(text, text, text)
    conversation.name = text
    conversation.path()[-1].model = text
    page = Page(to_html(conversation))
    assert set(page.tags) <= HARMLESS
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset")
        assert not re.match(r"\s*(javascript|data|vbscript):", value or "", re.IGNORECASE)


@given(ANY_TEXT)
@hypothesis_settings(max_examples=50)
def test_a_page_of_any_text_is_harmless(text: str) -> None:
    document = to_html(a_chat(text, text, text))
    assert not STEERING.search(document)
    assert set(Page(document).tags) <= HARMLESS


# Files


@pytest.mark.parametrize("name", ["chat.md", "chat.json", "chat.html", "chat.txt", "chat"])
def test_the_name_of_the_file_says_the_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sub" / name
    exports.export(a_chat(), path)
    start = {"json": "{", "html": "<!DOCTYPE"}.get(path.suffix.removeprefix("."), "# Why?")
    assert path.read_text().startswith(start)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    exports.export(a_chat(), path, "json")
    assert path.read_text().startswith("{")


def test_what_was_exported_is_read_again(tmp_path: Path) -> None:
    for name in ("chat.json", "chat.md"):
        exports.export(a_chat(), tmp_path / name)
        assert exports.read_document(tmp_path / name)[0].title == "Why?"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "No such file"),
        (b"", "expected the title"),
        (b"<!DOCTYPE html>", "web pages are only written"),
        (b"# \xff\xff", "no text in UTF-8, at byte 2"),
        (b"{}", "expected a list"),
        (b"# " + b"x" * 100, "more than"),
    ],
)
def test_a_file_without_a_chat_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None, reason: str
) -> None:
    monkeypatch.setattr(exports, "LARGEST", 50)
    path = tmp_path / "chat"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ExportError, match=reason) as refused:
        exports.read_document(path)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "chat.md"
    os.mkfifo(pipe)
    with pytest.raises(ExportError, match="not a regular file"):
        exports.read_document(pipe)
    with pytest.raises(ExportError, match="no regular file"):
        exports.export(a_chat(), pipe)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_an_empty_chat_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nothing to save"):
        exports.export(Conversation(), tmp_path / "x.md")
    with pytest.raises(ExportError, match="no format"):
        exports.export(a_chat(), tmp_path / "x.md", "pdf")


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_chat_or_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "chat"
    path.write_bytes(data)
    with contextlib.suppress(ExportError):
        exports.read_document(path)
