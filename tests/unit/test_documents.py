"""README.md and docs/: what they link to is there, and tables made from the program say what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.loading import module_at

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", PROJECT / "benchmarks" / "README.md", *sorted(PROJECT.glob("docs/*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^ {4,}.*$|^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not (PROJECT / "README.md").exists(), reason="the tests lie outside the project")


def anchors(document: Path) -> set[str]:
    """The headings of a document, as links name them: GitHub's rule."""
    names: set[str] = set()
    for title in re.findall(r"^#+ +(.*?) *$", document.read_text(encoding="utf-8"), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        names.add(next(each for i in range(100) if (each := f"{name}-{i}" if i else name) not in names))
    return names


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in LINK.findall(CODE.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = document if not path else document.parent / path
        if not file.exists() or (heading and heading not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\n## A title\n\n[1](#a-title) [2](#a-title-1) [3](page.md#a-title) [4](https://example.com)\n"
        "`[5](code.md)` ![6](gone.png) [7](#a-title-2) [8](page.md#nowhere)\n\n    [9](code.md)\n"
    )
    assert broken_links(page) == ["gone.png", "#a-title-2", "page.md#nowhere"]


@pytest.fixture(scope="module")
def guide_tables():
    return module_at(PROJECT / "scripts" / "guide_tables.py")


def test_the_guide_has_every_setting_key_and_command(guide_tables) -> None:
    text = guide_tables.GUIDE.read_text(encoding="utf-8")
    assert {name for name, _ in guide_tables.tables()} == set(re.findall(r"<!-- table: (.*) -->", text))
    assert text == guide_tables.filled(text), "run python scripts/guide_tables.py"


def test_a_table_of_the_guide_that_is_old_is_replaced(guide_tables) -> None:
    old = "<!-- table: interface -->\n| an | old | table |\n\nText.\n"
    new = guide_tables.filled(old)
    assert "| `theme` |" in new
    assert "old" not in new
    assert new.endswith("\n\nText.\n")


def test_messages_that_the_guide_explains_are_those_of_the_program() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for root in ("app", "engine") for path in _modules(root))
    rows = (PROJECT / "docs" / "guide.md").read_text(encoding="utf-8").partition("## When something is wrong")[2]
    cells = re.findall(r"^\| (.*?) \|", rows, re.MULTILINE)
    messages = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    parts = [part.strip(" ,;:") for message in messages for part in message.split("...")]
    assert len(messages) > 20
    assert [part for part in parts if part not in sources] == []  # ... stands for what varies


def _modules(root: str) -> list[Path]:
    return sorted((PROJECT / root).rglob("*.py"))
