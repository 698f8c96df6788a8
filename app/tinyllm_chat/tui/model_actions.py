"""What a user can do to look at the model: tokens and their alternatives, and how an answer was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyllm_chat.chat.conversation import Message
from tinyllm_chat.chat.errors import SessionError
from tinyllm_chat.chat.presets import NONE
from tinyllm_chat.tui.registry import LOOK, SAMPLING, action
from tinyllm_chat.tui.text import label, sampling_value

if TYPE_CHECKING:
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.app import TinyLLMChatApp


class ModelActions:
    """A part of `Actions`."""

    _app: TinyLLMChatApp
    _session: Session

    @action(
        "Look into the answer, token by token: how likely each was, what else it could have been; branch there",
        keys="alt+i",
        slash="inspect",
        on_message="x",
        group=LOOK,
    )
    def inspect(self) -> None:
        self._app.inspect(self._answer())

    @action("Colour answers by how likely each token was, or stop", keys="alt+h", slash="heat", group=LOOK)
    def heat(self) -> None:
        self._app.turn_heat()

    @action(
        "Show how an answer was made: model, seed, values, speed",
        keys="alt+d",
        slash="details",
        on_message="m",
        group=LOOK,
    )
    def details(self) -> None:
        self._app.show_details(self._answer())

    @action(
        "Take the sampling values of a preset: precise, balanced, creative, your own, or none",
        slash="preset",
        argument="[NAME]",
        group=SAMPLING,
    )
    def preset(self, argument: str) -> None:
        if argument:
            self._session.use_preset(argument)
            self._tell_preset()
        else:
            names = ", ".join([*self._session.presets, NONE])
            self._app.say(f"The preset is {self._session.preset or NONE}; there are {names}")

    @action("Take the next preset", keys="alt+m", slash="next-preset", group=SAMPLING)
    def next_preset(self) -> None:
        self._session.next_preset()
        self._tell_preset()

    @action(
        "Turn any sampling value: ↑↓ choose it, ←→ turn it, Del gives it back",
        keys="alt+v",
        slash="values",
        group=SAMPLING,
    )
    def values(self) -> None:
        self._app.figures.turn_values()

    def _tell_preset(self) -> None:
        session = self._session
        values = session.presets[session.preset] if session.preset is not None else {}
        told = " · ".join(f"{label(name)} {sampling_value(value)}" for name, value in values.items())
        self._app.say(f"Preset {session.preset}: {told}" if session.preset is not None else "No preset")
        self._app.feed.show_figures()
        for name in values:
            self._app.figures.flash(name)

    @action(
        "Show where the time of an answer goes, in a panel, or stop measuring it",
        keys="alt+o",
        slash="profile",
        group=LOOK,
    )
    def profile(self) -> None:
        self._app.figures.turn_profile()

    def _answer(self) -> Message:
        """The answer that is selected, else the last one that is seen."""
        selected = self._app.pane.selected
        if selected is not None and selected in self._session.conversation:
            message = self._session.conversation[selected]
            if message.role == "assistant":
                return message
        answers = [message for message in self._session.conversation.path() if message.role == "assistant"]
        if not answers:
            raise SessionError("there is no answer to look at yet")
        return answers[-1]
