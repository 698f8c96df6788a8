"""What is closed is forgotten: a chat in which help was read a hundred times is no larger than any other."""

from __future__ import annotations

import gc

from textual._styles_cache import StylesCache
from textual.strip import Strip
from tinyllm_chat.tui.steady import STYLES


async def remembered(chat, times: int) -> int:
    """How many widgets' looks are in memory after a screen with many was opened and closed."""
    for _ in range(times):
        await chat.press("f1")
        await chat.press("escape")
    await chat.press("f2")
    await chat.press("escape")
    gc.collect()
    # By type: isinstance asks what a weak proxy stands for, which may be gone.
    return sum(type(each) is StylesCache for each in gc.get_objects())


async def test_closed_screens_leave_nothing(open_chat):
    async with open_chat(size=(100, 40)) as chat:
        before = await remembered(chat, 1)
        assert await remembered(chat, 2) <= before + 5


async def test_styles_of_earlier_messages_are_forgotten(open_chat):
    async with open_chat(size=(100, 40)) as chat:
        before = Strip.render_ansi.cache_info().misses
        await chat.ask("one")
        strips = chat.app.screen._compositor.render_strips()
        codes = [strip.render(chat.app.console) for strip in strips]
        known = Strip.render_ansi.cache_info()
        assert any("\x1b[" in row for row in codes)
        assert known.misses > before  # it is the one that is used
        assert known.maxsize == STYLES
