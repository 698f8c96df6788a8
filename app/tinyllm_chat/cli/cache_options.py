"""The options of a verb that opens a cache: the types of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tinyllm_chat.chat.cache_types import CACHE_TYPES, DEFAULT


def cache_types(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -ctk and -ctv, which the command gets as k_type and v_type."""
    kind = click.Choice(CACHE_TYPES)
    for letter, name in (("v", "values"), ("k", "keys")):
        option = click.option(
            f"-ct{letter}", f"--cache-type-{letter}", f"{letter}_type", type=kind, default=DEFAULT, show_default=True,
            help=f"Number type of cached {name}.",
        )  # fmt: skip
        command = option(command)
    return command
