"""Markdown as lines of text, block by block, shown literally where Markdown would hide or fetch something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.token import Token as Kind
from textual.content import Content, Span
from textual.highlight import HighlightTheme, highlight
from textual.style import Style

from tinyllm_chat.tui.text import shorten
from tinyllm_chat.tui.widgets import table
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.rows import ACCENT, FAINT, MUTED

HIGHLIGHT_LIMIT = 20_000  # characters of one code block; more is shown without colours
LINK_LENGTH = 200  # shown of one address
NARROWEST = 8  # cells that nesting leaves for text

CODE_GROUND = "on $surface"
_BULLETS = "•◦▪"
_INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}
_INLINE_CODE = "on $foreground 10%"


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough. HTML and link definitions are text: all that a model writes is seen."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


class MarkdownText:
    """Markdown that is appended to. Only its last block can still change and is parsed again."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._open = ""  # the source from the last block on

    def append(self, text: str) -> None:
        self._open += text
        nodes = SyntaxTreeNode(parser().parse(self._open)).children
        if self.pieces:
            self.pieces.pop()
        for node in nodes:
            self.pieces.append(Piece(partial(render, node), gap=1 if self.pieces else 0))
        if nodes and nodes[-1].map is not None:
            self._open = "\n".join(self._open.split("\n")[nodes[-1].map[0] :])


def render(node: SyntaxTreeNode, width: int, depth: int = 0) -> list[Content]:
    """The lines of one block, `width` cells at most where the text allows it."""
    width = max(width, NARROWEST)
    match node.type:
        case "paragraph":
            return _inline(node).wrap(width)
        case "heading":
            style = f"bold {ACCENT}" if node.tag in ("h1", "h2") else "bold"
            return _inline(node).stylize_before(style).wrap(width)
        case "bullet_list" | "ordered_list":
            return list(_list(node, width, depth))
        case "blockquote":
            return [
                Content.assemble(("▌ ", FAINT), line.stylize_before(MUTED))
                for line in _flow(node.children, width - 2, depth)
            ]
        case "fence" | "code_block":
            return code(node.content.removesuffix("\n"), node.info if node.type == "fence" else "", width)
        case "hr":
            return [Content.styled("─" * width, FAINT)]
        case "table":
            rows = [[_inline(cell) for cell in row.children] for part in node.children for row in part.children]
            return table.layout(rows[0], rows[1:], width) if rows else []
    return Content(node.content).wrap(width) if node.content else []


def code(text: str, language: str, width: int) -> list[Content]:
    """A code block. Only a named language is highlighted: guessing one tries every lexer there is."""
    words = language.split()
    text = text.expandtabs(4)
    if words and len(text) <= HIGHLIGHT_LIMIT:
        shown = highlight(text, language=words[0], theme=CodeColours)
    else:
        shown = Content(text)
    lines = (folded for line in shown.split("\n", allow_blank=True) for folded in line.fold(max(2, width - 4)))
    return [Content.assemble("  ", line).truncate(width, pad=True).stylize_before(CODE_GROUND) for line in lines]


class CodeColours(HighlightTheme):
    """Four tints at most, all of the theme's own; names stay as they are."""

    STYLES = {  # noqa: RUF012
        Kind: "$foreground",
        Kind.Comment: "$foreground 50% italic",
        Kind.Keyword: "$primary",
        Kind.Keyword.Constant: "$warning",
        Kind.Operator.Word: "$primary",
        Kind.Literal.String: "$success",
        Kind.Literal.String.Doc: "$success italic",
        Kind.Literal.Number: "$warning",
        Kind.Name.Builtin: "$primary",
        Kind.Name.Function: "bold",
        Kind.Name.Class: "bold",
        Kind.Name.Tag: "$primary",
        Kind.Name.Attribute: "$warning",
        Kind.Name.Decorator: "$primary",
        Kind.Generic.Deleted: "$error",
        Kind.Generic.Inserted: "$success",
        Kind.Generic.Heading: "bold",
        Kind.Generic.Subheading: "$primary",
    }


def _flow(nodes: Iterable[SyntaxTreeNode], width: int, depth: int, *, tight: bool = False) -> Iterator[Content]:
    """Blocks one below the other."""
    for number, node in enumerate(nodes):
        if number and not tight:
            yield Content()
        yield from render(node, width, depth)


def _list(node: SyntaxTreeNode, width: int, depth: int) -> Iterator[Content]:
    start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    tight = all(part.hidden for item in node.children for part in item.children if part.type == "paragraph")
    last = f"{start + len(node.children) - 1}. " if start is not None else ""
    bullet = f"{_BULLETS[depth % len(_BULLETS)]} "
    for number, item in enumerate(node.children):
        if number and not tight:
            yield Content()
        mark = bullet if start is None else f"{start + number}. ".rjust(len(last))
        lines = list(_flow(item.children, width - len(mark), depth + 1, tight=tight)) or [Content()]
        yield Content.assemble((mark, ACCENT), lines[0])
        for line in lines[1:]:
            yield Content.assemble(" " * len(mark), line)


def _inline(node: SyntaxTreeNode) -> Content:
    """The text inside a block, with its styles."""
    text: list[str] = []
    spans: list[Span] = []
    for child in node.children:
        _write(child, text, spans)
    return Content("".join(text), spans=spans)


def _write(node: SyntaxTreeNode, text: list[str], spans: list[Span]) -> None:
    start = sum(map(len, text))
    match node.type:
        case "text":
            text.append(node.content)
        case "softbreak":
            text.append(" ")
        case "hardbreak":
            text.append("\n")
        case "code_inline":
            text.append(node.content)
            spans.append(Span(start, start + len(node.content), _INLINE_CODE))
        case "image":
            text.append(f"{node.content or 'picture'} ({_address(node, 'src')})")
        case _:
            for child in node.children:
                _write(child, text, spans)
            end = sum(map(len, text))
            if style := _INLINE_STYLES.get(node.type):
                spans.append(Span(start, end, style))
            if node.type == "link":
                _write_address(node, "".join(text)[start:end], start, text, spans)


def _write_address(node: SyntaxTreeNode, label: str, start: int, text: list[str], spans: list[Span]) -> None:
    """Writes where a link leads behind its text, so that no text can pass for another address."""
    address = _address(node, "href")
    spans.append(Span(start, start + len(label), Style.from_meta({"address": str(node.attrs.get("href", ""))})))
    if label not in (address, address.removeprefix("mailto:")):
        text.append(f" ({address})")


def _address(node: SyntaxTreeNode, attribute: str) -> str:
    return shorten(str(node.attrs.get(attribute, "")), LINK_LENGTH)
