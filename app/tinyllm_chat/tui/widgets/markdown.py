"""Markdown as lines of text, block by block, shown literally where Markdown would hide or fetch something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

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

# Characters of a code block, and of one of its lines, beyond which it is shown without colours: they are slow to fold.
HIGHLIGHT_LIMIT, HIGHLIGHT_LINE_LIMIT = 20_000, 500
LINK_LENGTH = 200  # shown of one address
PLAIN_FROM = 20_000  # characters of one block; more is shown as it was written
DEEPEST = 16  # nesting of one block; the parser drops what is nested more than 20 deep

CODE_GROUND = "on $surface"
_BULLETS = "•◦▪"
_INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}
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
        lines = self._open.split("\n")
        nodes = SyntaxTreeNode(parser().parse(self._open)).children
        if self.pieces:
            self.pieces.pop()
        for node in nodes:
            start, end = node.map or (0, 0)
            block = _Block(node, "\n".join(lines[start:end]))
            self.pieces.append(Piece(block.layout, gap=1 if self.pieces else 0))
        if nodes and nodes[-1].map is not None:
            self._open = "\n".join(lines[nodes[-1].map[0] :])


class _Block:
    """A block and the text it was parsed from, which is shown instead where rendering would lose some of it.

    What was parsed is given up once it is laid out, and parsed again for another width: of a long chat it would be many
    objects, all of which Python's garbage collector looks at in one go.
    """

    def __init__(self, node: SyntaxTreeNode, source: str) -> None:
        self._node: SyntaxTreeNode | None = node
        self._source = source
        self._plain = len(source) > PLAIN_FROM or _depth(node) > DEEPEST

    def layout(self, width: int) -> list[Content]:
        if not self._plain:
            node, self._node = self._node, None
            nodes = SyntaxTreeNode(parser().parse(self._source)).children if node is None else [node]
            lines = [line for node in nodes for line in render(node, width)]
            if all(line.cell_length <= width for line in lines):
                return lines
        return Content(self._source.expandtabs(4)).wrap(width)


def code_blocks(text: str) -> list[str]:
    """What stands in the code blocks of a text, in their order."""
    return [token.content for token in parser().parse(text) if token.type in ("fence", "code_block")]


def _depth(node: SyntaxTreeNode) -> int:
    return max((child.level for child in node.walk() if child.type != "root"), default=0)


def render(node: SyntaxTreeNode, width: int, depth: int = 0) -> list[Content]:
    """The lines of one block, wider than `width` only where there is no room for its markers or columns."""
    width = max(1, width)
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
    # A name of a language shows in the colours; anything else that stands there is written out.
    label = [] if re.fullmatch(r"[\w+#.-]{0,20}", language.strip()) else [Content.styled(language.strip(), MUTED)]
    text = text.expandtabs(4)
    longest = max(map(len, text.split("\n")))
    if words and len(text) <= HIGHLIGHT_LIMIT and longest <= HIGHLIGHT_LINE_LIMIT:
        shown = highlight(text, language=words[0], theme=CodeColours)
    else:
        shown = Content(text)
    written = [*label, *shown.split("\n", allow_blank=True)]
    lines = (folded for line in written for folded in line.fold(max(2, width - 4)))
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
    text = _StyledText()
    for child in node.children:
        text.write(child)
    return Content("".join(text.parts), spans=text.spans)


class _StyledText:
    """Inline nodes written one after the other."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self._length = 0

    def write(self, node: SyntaxTreeNode) -> None:
        start = self._length
        match node.type:
            case "text":
                self._add(node.content)
            case "softbreak":
                self._add(" ")
            case "hardbreak":
                self._add("\n")
            case "code_inline":
                self._add(node.content)
                self._style(start, _INLINE_CODE)
            case "image":
                self._add(f"{node.content or 'picture'} ({_address(node, 'src')})")
            case "link":
                self._write_link(node)
            case _:
                for child in node.children:
                    self.write(child)
                if style := _INLINE_STYLES.get(node.type):
                    self._style(start, style)

    def _write_link(self, node: SyntaxTreeNode) -> None:
        """A link's text and, behind it, where it leads, so that no text can pass for another address."""
        start, first = self._length, len(self.parts)
        for child in node.children:
            self.write(child)
        self._style(start, "underline")
        self._style(start, Style.from_meta({"address": str(node.attrs.get("href", ""))}))
        address = _address(node, "href")
        if "".join(self.parts[first:]) not in (address, address.removeprefix("mailto:")):
            self._add(f" ({address})")

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)

    def _style(self, start: int, style: Style | str) -> None:
        if self._length > start:
            self.spans.append(Span(start, self._length, style))


def _address(node: SyntaxTreeNode, attribute: str) -> str:
    return shorten(str(node.attrs.get(attribute, "")), LINK_LENGTH)
