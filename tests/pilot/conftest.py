"""The screen in memory, for every test here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.chat_driver import running


@pytest.fixture
def open_chat() -> Callable[..., Any]:
    """`async with open_chat(answers, ...) as chat:`"""
    return running
