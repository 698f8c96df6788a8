"""The message that is being written: sent or run as a command, completed, counted, kept, taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.worker import Worker

from tinyllm_chat.chat.attaching import attachments, completed, completions, mentioned, unfinished
from tinyllm_chat.chat.drafts import Draft, DraftKeeper
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.tui.actions import COMMANDS, Actions
from tinyllm_chat.tui.registry import Suggestion, UnknownCommand, commands_by_key, is_command
from tinyllm_chat.tui.text import clean, count, size
from tinyllm_chat.tui.widgets.prompt import SHOWN_WHOLE, InputBar, Prompt
from tinyllm_chat.tui.widgets.suggestions import Suggestions

if TYPE_CHECKING:
    from tinyllm_chat.chat.conversation import Attachment, Message
    from tinyllm_chat.chat.prompt_history import PromptHistory
    from tinyllm_chat.chat.session import Session
    from tinyllm_chat.tui.app import TinyLLMChatApp

NAME_CHARACTERS = 1000  # of the end of a draft in which a command or the name of a file is looked for
DRAFT_DELAY = 0.5  # seconds of peace after a key before the draft is put on disk


class Writing:
    """One per app; runs on its thread. `history` and `drafts` keep what is sent and what is written; None: nothing."""

    def __init__(
        self, app: TinyLLMChatApp, actions: Actions, history: PromptHistory | None, drafts: DraftKeeper | None
    ) -> None:
        self._app = app
        self._actions = actions
        self.editing: str | None = None  # id of the message whose text is in the input
        self._draft_before = Draft()  # what was in the input before
        self.suggestions = Suggestions()
        keys = commands_by_key(app.keymap.actions)
        self.bar = InputBar(Prompt({"tab": "app.complete", **keys}, history, app.session.count_tokens))
        self.bar.prompt.take_waiting = self._take_waiting
        self._drafts = drafts
        self._draft_timer: Timer | None = None
        self._saving: Worker[None] | None = None
        self._folder = Path.cwd()  # where the names of files begin
        self._looked_at = ""  # the draft whose files are shown

    @property
    def prompt(self) -> Prompt:
        return self.bar.prompt

    @property
    def _session(self) -> Session:
        return self._app.session

    # Sending

    def submit(self, draft: Draft) -> None:
        """Sends a message, or does what it commands. What is folded in it names no files.

        Raises ChatError for what cannot be sent.
        """
        text = draft.whole
        if not text.strip():
            return
        if self.editing is None and is_command(text.strip()):
            self._command(draft)
            return
        files = attachments(draft.text, self._folder, draft.files)
        names = {file.name for file in files}
        files += tuple(file for file in draft.files if file.name not in names)
        if self.editing is not None:
            self._finish_edit(self.editing, draft, files)
        else:
            self._session.send(text.replace("//", "/", 1) if text.startswith("//") else text, files, draft)
        self.prompt.remember(text)
        self._app.pane.follow()
        self._app.pane.show_queued(self._session.queued)
        if self._session.model is None and self._session.loading is None:
            self._app.say("No model is open: the message waits. /model opens one", "warning")

    def _command(self, draft: Draft) -> None:
        text = draft.whole.strip()
        try:
            entry, argument = COMMANDS.parse(text)
        except UnknownCommand as error:
            self._app.say(str(error), "error")
            self.prompt.give_back(draft)
            return
        if self._app.run_entry(entry, argument):
            self.prompt.remember(text)
        else:
            self.prompt.give_back(draft)

    # What comes back

    def return_to_prompt(self, drafts: Sequence[Draft]) -> None:
        """Gives back what was waiting to be sent, or was refused."""
        for draft in reversed(drafts):
            if self.editing is None and draft.edits is not None and draft.edits in self._session.conversation:
                self._edit_again(draft, draft.edits)
            else:
                self.prompt.give_back(draft)
        if drafts:
            self._app.pane.show_queued(())

    def take_back(self, index: int = -1) -> None:
        """Puts a message that waits back into the input."""
        self.prompt.give_back(self._session.take_back(index))
        self._app.pane.show_queued(self._session.queued)
        self.prompt.focus()

    def _take_waiting(self) -> bool:
        """Brings the last message that waits back into the input, if there is one."""
        if not self._session.queued:
            return False
        self.take_back()
        return True

    # Editing

    def begin_edit(self, message: Message) -> None:
        """Puts a message into the input; sending makes another branch of it."""
        if self.editing is None:
            self._draft_before = self.prompt.draft
        self.editing = message.id
        self.prompt.set_text(message.content, message.attachments)

    def _edit_again(self, draft: Draft, message_id: str) -> None:
        """Goes on with an edit that was sent and not accepted."""
        self.editing, self._draft_before = message_id, self.prompt.draft
        if draft.text.startswith("//"):
            draft = replace(draft, text=draft.text[1:])  # see _finish_edit
        self.prompt.set_draft(draft)

    def leave_edit(self) -> bool:
        """Puts back what was in the input before; False if nothing was being edited."""
        if self.editing is None:
            return False
        self.editing, draft, self._draft_before = None, self._draft_before, Draft()
        self.prompt.set_draft(draft)
        return True

    def edit_outside(self) -> None:
        """Has the draft written in the user's own editor. Raises EditorError."""
        from tinyllm_chat.tui.editor import edited

        draft = self.prompt.draft
        self.prompt.set_text(clean(edited(draft.whole, self._app.suspend)), draft.files)

    def _finish_edit(self, message_id: str, draft: Draft, files: Sequence[Attachment]) -> None:
        session, text = self._session, draft.whole
        if text.startswith("/"):
            draft = replace(draft, text=f"/{draft.text}")  # should it come back, it is no command
        if message_id not in session.conversation:
            session.send(text, files, draft)
        elif session.conversation[message_id].role == "assistant":
            session.edit_answer(message_id, text)
        else:
            session.resend(message_id, text, files, draft)
        self.leave_edit()

    # Keeping

    @property
    def warnings(self) -> list[str]:
        """What is wrong with a draft that was found, one line each."""
        return [] if self._drafts is None else self._drafts.warnings

    def open_draft(self) -> None:
        """Brings back what was being written when the program ended."""
        if self._drafts is not None:
            self.prompt.set_draft(self._drafts.open())

    def close(self) -> None:
        if self._drafts is not None:
            self._drafts.save(self.prompt.draft)
            self._drafts.close()

    def _save_draft(self) -> None:
        """On a thread of its own: the draft may be a book, and the disk slow."""
        if self._drafts is None:
            return
        self._drafts.want(self.prompt.draft)
        if self._saving is not None and not self._saving.is_finished:
            self._draft_timer = self._app.set_timer(DRAFT_DELAY, self._save_draft)
        else:
            self._saving = self._app.run_worker(self._drafts.write, group="draft", thread=True)

    # Completing and counting

    def changed(self) -> None:
        """The draft is another one."""
        self.suggestions.show(self._suggest())
        self._looked_at = ""
        if self._drafts is not None:
            if self._draft_timer is not None:
                self._draft_timer.stop()
            self._draft_timer = self._app.set_timer(DRAFT_DELAY, self._save_draft)

    def complete(self) -> None:
        """Completes what is typed to the first that is suggested, and asked again to the next."""
        completed = self.suggestions.completed(self.prompt.text)
        if completed is not None:
            self.prompt.set_draft(replace(self.prompt.draft, text=completed))

    def _suggest(self) -> list[Suggestion]:
        """What the text before the cursor may become."""
        text = self.prompt.text
        if self.prompt.cursor_location == self.prompt.document.end:
            end = text[-NAME_CHARACTERS:]
            if (name := unfinished(end)) is not None:
                names = completions(name, self._folder)
                return [Suggestion(text[: -len(end)] + completed(end, each), each) for each in names if each != name]
        return COMMANDS.suggestions(text, self._actions) if len(text) < NAME_CHARACTERS else []

    def count(self) -> None:
        """Shows how many tokens the draft has, and the files that go with it."""
        draft, bar = self.prompt.draft, self.bar
        if not draft.text.strip() or is_command(draft.text):
            bar.count.show(None)
            return
        if draft.text != self._looked_at and not self.suggestions.tabbed:
            self._looked_at = draft.text
            self.suggestions.show(self._attached_now(draft))
        tokens, model = self._session.count_tokens(draft.whole), self._session.model
        if tokens is None and model is not None:
            bar.count_on()
            return
        bar.count.show(tokens, too_many=model is not None and (tokens or 0) > model.context_length)

    def _attached_now(self, draft: Draft) -> list[Suggestion]:
        """The files that go with what is typed, each with its size; or why it cannot go."""
        lines = []
        known = [file.name for file in draft.files]
        names = mentioned(draft.text[:SHOWN_WHOLE], self._folder, known)
        for name in dict.fromkeys([*names, *known]):
            try:
                (file,) = attachments(f'@"{name}"', self._folder, draft.files)
            except ChatError as error:
                lines.append(Suggestion("", f"+ {name}", str(error).removeprefix(f"{name}: ")))
                continue
            tokens = self._session.count_tokens(file.text) if len(file.text) <= SHOWN_WHOLE else None
            length = size(len(file.text.encode())) if tokens is None else count(tokens, "token")
            lines.append(Suggestion("", f"+ {name}", f"{length}, goes with the message"))
        return lines
