"""What turns messages into events. The chat knows this protocol only; who computes is the backend's business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tinyllm_chat.chat.events import Event


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message as the model shall see it.

    `ids` are the token ids the answer was generated with under `fingerprint`; they are spliced into the prompt instead
    of tokenizing `content` again while that model is open.
    """

    id: str
    role: str  # system, user, assistant
    content: str
    ids: tuple[int, ...] | None = None
    fingerprint: str | None = None
    reasoning: str = ""  # what an assistant thought before; the template says whether the model is told again


class Backend(Protocol):
    """All calls return at once; what comes of them arrives as events from `drain`."""

    def open(self, path: str) -> None:
        """Opens a model (closing an earlier one) on the worker thread."""

    def answer(
        self,
        message_id: str,
        messages: Sequence[PromptMessage],
        *,
        sampling: dict[str, Any],
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        continue_last: bool = False,
        think: bool | None = None,
        shift: int | None = None,
        free: bool = False,
        cache_file: Path | None = None,
        inspect: bool = False,
    ) -> None:
        """Starts an answer.

        `continue_last`: messages[-1] is a partial assistant message to write on. `think`: shall the model reason first?
        None: as its template has it. `shift`: where the context becomes full, its oldest turns make room, but not those
        that begin within so many tokens; None: the answer ends there. `free`: a grammar does not hold for it.
        `cache_file`: where the cache of this chat may be kept, see `leave`.
        `inspect`: the events tell what each token was chosen from.
        """

    def look_back(self, messages: Sequence[PromptMessage], *, think: bool | None = None) -> None:
        """Finds out what the tokens of messages[-1], an answer, were chosen from: TokensSeen, else a Notice."""

    def read_ahead(
        self, messages: Sequence[PromptMessage], *, think: bool | None = None, cache_file: Path | None = None
    ) -> None:
        """A user's message may follow these: what is known of its prompt may be evaluated now. Whatever else is asked
        for ends that, and nothing is told of it.
        """

    def set_profiling(self, on: bool) -> None:
        """Shall the clocks run while answers are written, and OpProfile be told? At once."""

    def set_sampling(self, **values: Any) -> None:
        """Changes sampling from the next token on."""

    def cancel(self) -> None:
        """Stops the running answer; what is written stays. Without one: nothing."""

    def drain(self) -> list[Event]:
        """Events since the last call, oldest first. Never blocks."""

    def measure(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, think: bool | None = None
    ) -> Sequence[int] | None:
        """Tokens that each message takes in the prompt, the template's around it included; None where that cannot be
        said. It takes as long as building the prompt, which an `answer` to the same messages then need not do again.
        """

    def count_tokens(self, text: str) -> int | None:
        """Tokens of a draft, None while no model is open. Cheap enough for every key press (cached, bounded)."""

    def leave(self, cache_file: Path) -> None:
        """The chat of that file is left: its cache may be kept there."""

    def close(self) -> None:
        """Stops the worker and gives the model's memory back."""
