"""Every screen in terminals from 60x20 to 240x60, with text of every kind: nothing is cut off, nothing overlaps."""

from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len
from textual.widget import Widget
from tinyllm_chat.tui.models import ModelChoice, ModelFacts

SIZES = [(60, 20), (80, 24), (100, 30), (160, 45), (240, 60)]
ENDS = [SIZES[0], SIZES[2], SIZES[-1]]
TEXTS = {
    "chinese": "重力是一种自然现象，它使得所有具有质量的物体相互吸引。" * 4,
    "emoji": "👍 ❤️ 👨‍👩‍👧 🇫🇷 1️⃣ 🏳️‍🌈 " * 12,
    "arabic": "الجاذبية ظاهرة طبيعية تنجذب بموجبها الأجسام " * 4,
    "hebrew": "כוח הכבידה הוא תופעה טבעית (ראו כאן) " * 4,
    "combining": "Z̷̢͎͓a̸͕͝l̵̰͒g̶̻̈́o̷͔̾ é ñ ệ क्षि ที่ " * 8,
    "wide table": "| 名前 | 👍 |\n|---|---|\n| 重力の法則についての長い説明 | ❤️ |\n| a\u0301 | العربية |",
    "code": '```python\nprint("你好，世界 👋")  # ' + "長い" * 60 + "\n```",
    "no spaces": "重" * 300 + "x" * 300,
    "tabs": "a\tb\tc\n\n- 一\n  - 二\n    - 三 " + "four " * 40,
}


class Models:
    def choices(self):
        return [ModelChoice("模型 " + "x" * 80, "98 MB " + "👍" * 40, "/models/a.gguf"), ModelChoice("b", "1 GB", None)]

    def describe(self, path):
        return ModelFacts("Q4_0 · " + "長い説明 " * 20)

    def opened(self, path):
        pass


def check_rows(chat) -> None:
    """Every row is as wide as the terminal, to the cell."""
    width, height = chat.app.size
    strips = chat.app.screen._compositor.render_strips()
    assert len(strips) == height
    for number, strip in enumerate(strips):
        assert cell_len(strip.text) == strip.cell_length == width, (number, strip.text)


def check_places(chat) -> None:
    """Every widget lies within what holds it, and beside the others there."""

    def visible(widget: Widget) -> list[Widget]:
        return [child for child in widget.children if child.display and child.region.area and not child.styles.dock]

    def check(parent: Widget) -> None:
        children = visible(parent)
        scrolls = parent.is_scrollable and (parent.max_scroll_y or parent.show_vertical_scrollbar)
        for number, child in enumerate(children):
            if child.styles.overlay == "screen":
                continue
            if not scrolls:
                assert parent.region.contains_region(child.region), (child, child.region, parent.region)
                for other in children[number + 1 :]:
                    assert not child.region.overlaps(other.region), (child, other)
            check(child)

    check(chat.app.screen)


def check(chat) -> None:
    check_rows(chat)
    check_places(chat)


@pytest.mark.parametrize("size", ENDS, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_text_of_every_kind_keeps_to_its_place(open_chat, size):
    async with open_chat(*TEXTS.values(), size=size) as chat:
        for text in TEXTS.values():
            await chat.ask(text[:60].replace("\n", " "))
            check(chat)
        await chat.type(TEXTS["emoji"] + TEXTS["chinese"])
        check(chat)
        assert "Enter send" in chat.screen[-1]
        assert "›" in "\n".join(chat.screen[-14:])
        await chat.press("ctrl+home")
        check(chat)
        await chat.press("shift+tab", "up")
        check(chat)


@pytest.mark.parametrize("size", ENDS, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_text_of_every_kind_cut_into_tokens_anywhere_keeps_to_its_place(open_chat, size):
    answers = [list(text) for text in TEXTS.values()]
    async with open_chat(*answers, size=size, settings={"inspect_tokens": True}) as chat:
        for text in TEXTS.values():
            await chat.ask(text[:10].replace("\n", " "))
            assert chat.session.conversation.leaf.is_seen
            check(chat)
        await chat.send("/inspect")
        await chat.until(lambda: chat.app.screen.is_modal)
        for _ in range(3):
            await chat.press("right")
            check(chat)


@pytest.mark.parametrize("size", ENDS, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_what_covers_the_chat_fits(open_chat, size):
    async with open_chat(TEXTS["chinese"], size=size, models=Models()) as chat:
        await chat.ask("Why? 👍 " + TEXTS["arabic"])
        for command, says in [
            ("/settings", "Esc close"),
            ("/theme", "Esc"),
            ("/help", "Esc close"),
            ("/model", "Esc"),
            ("/inspect", "Esc back"),
            ("/details", "Esc close"),
            ("/tree", "Esc"),
            ("/system", "Esc"),
            ("/palette", "Search"),
        ]:
            await chat.send(command)
            await chat.until(lambda: chat.app.screen.is_modal, command)
            check_rows(chat)
            if command != "/palette":  # Textual's own
                check_places(chat)
            assert says in "\n".join(chat.screen), command
            await chat.press("escape")
            await chat.until(lambda: not chat.app.screen.is_modal, command)


async def test_resizing_while_text_of_every_kind_streams(open_chat):
    answer = "\n\n".join(TEXTS.values())
    async with open_chat(answer) as chat:
        await chat.ask("Go", steps=0)
        for size in [*SIZES, (40, 12), *reversed(SIZES)]:
            await chat.pilot.resize_terminal(*size)
            await chat.write(12)
            check(chat)
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
        shown = unicodedata.normalize("NFC", chat.text)
        assert "重力の法則" in "".join(shown.split())


@pytest.mark.parametrize("theme", ["ansi-light", "high-contrast-dark"])
async def test_every_kind_of_theme_draws_every_screen(open_chat, theme):
    async with open_chat(TEXTS["code"], size=(100, 30), settings={"theme": theme}) as chat:
        await chat.ask("Why?")
        for command in ("/settings", "/theme", "/help"):
            await chat.send(command)
            check(chat)
            await chat.press("escape")
