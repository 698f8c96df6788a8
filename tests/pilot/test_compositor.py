"""What is written of a frame is what stands there when the whole screen is drawn."""

from __future__ import annotations

import pytest
from tinyllm_chat.tui.compositor import PartialCompositor

ANSWER = "Gravity *pulls*.\n\n- one\n- 数 two\n\n```python\nx = 1\ny = 2\n```\n\nAnd so on. " * 6


@pytest.mark.parametrize("size", [(60, 20), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_parts_of_frames_are_those_of_the_whole(open_chat, monkeypatch, size):
    drawn = PartialCompositor.render_partial_update
    parts = 0

    def checked(self):
        nonlocal parts
        update = drawn(self)
        if update is not None:
            whole = self.render_strips()
            for y, left, right in update.spans:
                for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=True):
                    assert (strip is not None) or end <= left or x >= right, "something that changed is not drawn"
                    if strip is not None:
                        assert strip.text == whole[y].crop(x, end).text
                        parts += 1
        return update

    monkeypatch.setattr(PartialCompositor, "render_partial_update", checked)
    async with open_chat(ANSWER, size=size) as chat:
        await chat.ask("What is gravity?", steps=10)
        for _ in range(6):
            await chat.write(8)
            await chat.pilot.press("a")
        await chat.press("pageup", "up", "pagedown", "alt+up")
        chat.app.say("A toast.")
        await chat.pilot.pause()
        chat.backend.finish()
        await chat.until(lambda: not chat.session.busy)
    assert parts > 20
