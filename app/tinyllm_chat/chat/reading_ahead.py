"""What the next prompt is known to begin with, evaluated while the next message is being thought of.

What stands in front of a message, and whatever of the answer before it is not in the cache yet, is the same for every
message: it is what the prompts for two different ones have in common. Drafts are not looked at: they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tinyllm_chat.chat.backend import PromptMessage
from tinyllm_chat.chat.cancellable import Cancellable
from tinyllm_chat.chat.engine_api import EngineApi
from tinyllm_chat.chat.kept_cache import KeptCaches
from tinyllm_chat.chat.opening import OpenModel
from tinyllm_chat.chat.prompt import PromptBuilder

# One token is not worth it, and a model that only goes back to where reading began could not leave it out again. More
# than the template's words around two messages is reading a chat that may only be looked at.
FEWEST, MOST = 2, 32  # tokens


class Ahead(Cancellable):
    """The prompt that may follow some messages."""

    def __init__(
        self, messages: Sequence[PromptMessage], think: bool | None = None, cache_file: Path | None = None
    ) -> None:
        super().__init__()
        self._messages = messages
        self._think = think
        self._cache_file = cache_file

    def run(self, engine: EngineApi, opened: OpenModel, prompts: PromptBuilder, kept: KeptCaches) -> int:
        """Evaluates a few tokens behind those of the cache, if it has all before them; returns how many.

        Raises EngineError, for being cancelled too: the cache is as it was then.
        """
        if not self._begin(engine):
            return 0
        ids = prompts.beginning(self._messages, think=self._think)
        if self._cache_file is not None and not self._cancelled:
            kept.recall(self._cache_file, ids)
        sequence = opened.branches.continued(ids)
        if sequence is None or len(ids) >= opened.info.context_length:
            return 0
        fresh = ids[sequence.position :]
        if not FEWEST <= len(fresh) <= MOST:
            return 0
        sequence.forward(fresh, cancel=self._cancel)
        return len(fresh)
