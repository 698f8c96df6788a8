"""An answer's finished text as Markdown, shown literally where Markdown would hide or fetch something."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments.token import Token as Kind
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock, MarkdownFence

from tinyllm_chat.tui.text import shorten

HIGHLIGHT_LIMIT = 20_000  # characters of one code block; more is shown without colours
LINK_LENGTH = 200  # shown of one address


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough. HTML is text: what a model writes is seen, tags included."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    markdown.core.ruler.push("show_addresses", _show_addresses)
    return markdown


def _show_addresses(state: StateCore) -> None:
    """Writes the address of a link or picture behind its text, so that no text can pass for another address."""
    for block in state.tokens:
        if block.children:
            block.children = _with_addresses(block.children)


def _with_addresses(children: list[Token]) -> list[Token]:
    shown: list[Token] = []
    opened: list[tuple[str, int]] = []
    for token in children:
        if token.type == "image":
            shown.append(_text(f"{token.content or 'picture'} ({_address(token, 'src')})"))
            continue
        shown.append(token)
        if token.type == "link_open":
            opened.append((_address(token, "href"), len(shown)))
        elif token.type == "link_close" and opened:
            address, start = opened.pop()
            label = "".join(part.content for part in shown[start:])
            if label not in (address, address.removeprefix("mailto:")):
                shown.append(_text(f" ({address})"))
    return shown


def _address(token: Token, attribute: str) -> str:
    return shorten(str(token.attrs.get(attribute, "")), LINK_LENGTH)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


class CodeColours(HighlightTheme):
    """Four tints at most, all of the theme's own; names stay as they are."""

    STYLES: ClassVar[dict[tuple[str, ...], str]] = {
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


class CodeBlock(MarkdownFence):
    """A code block. Only a named language is highlighted: guessing one tries every lexer there is."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        words = language.split()
        name = words[0] if words and len(code) <= HIGHLIGHT_LIMIT else "text"
        return highlight(code, language=name, theme=CodeColours)


class AnswerMarkdown(Markdown):
    """Finished text of an answer. Links are text; clicking one posts `Markdown.LinkClicked` and opens nothing."""

    BULLETS: ClassVar[list[str]] = ["• ", "◦ ", "▪ ", "‣ ", "· "]
    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {**Markdown.BLOCKS, "fence": CodeBlock, "code_block": CodeBlock}

    def __init__(self) -> None:
        super().__init__(parser_factory=parser, open_links=False)
