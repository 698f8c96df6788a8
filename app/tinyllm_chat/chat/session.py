"""One chat window without its window: conversation, transcript, backend and settings held together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tinyllm_chat.chat import settings as settings_module
from tinyllm_chat.chat.backend import Backend
from tinyllm_chat.chat.branching import Branching
from tinyllm_chat.chat.context_keeping import THINK
from tinyllm_chat.chat.context_policy import SHIFT
from tinyllm_chat.chat.conversation import Attachment, Message, title_of
from tinyllm_chat.chat.cuts import for_model
from tinyllm_chat.chat.drafts import Draft
from tinyllm_chat.chat.errors import SessionError, SettingsError
from tinyllm_chat.chat.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    CacheState,
    ContextShifted,
    Event,
    ModelFailed,
    ModelInfo,
    ModelLoading,
    ModelReady,
    Notice,
    OpProfile,
    PathChanged,
    ReadingPrompt,
    TextDelta,
    TokensSeen,
)
from tinyllm_chat.chat.filing import Writing
from tinyllm_chat.chat.looking import Looking
from tinyllm_chat.chat.mishaps import describe
from tinyllm_chat.chat.presets import Presets, load_presets
from tinyllm_chat.chat.session_settings import SessionSettings
from tinyllm_chat.chat.settings import Settings
from tinyllm_chat.chat.steps import Step
from tinyllm_chat.chat.transcript import Transcript, TranscriptStore


@dataclass(frozen=True, slots=True)
class Waiting:
    """A user message that waits for the model or for the running answer."""

    text: str
    attachments: tuple[Attachment, ...]
    typed: Draft | None  # what it was written as, if not just so
    edits: str | None = None  # the message that it is put beside

    @property
    def draft(self) -> Draft:
        """What to give back to whoever wrote it."""
        return replace(self.typed or Draft(self.text), files=self.attachments)


class Session(Branching, Looking, SessionSettings):
    """The controller behind a screen or a pipe.

    All methods are called on one thread and return at once. What the backend does arrives through `drain`, which the
    owner calls on a timer; conversation and transcript change there and in the methods, nowhere else. `store=None`
    keeps the chat in memory only, `config=None` has no file that settings could be saved to.
    """

    def __init__(
        self,
        backend: Backend,
        store: TranscriptStore | None,
        settings: Settings,
        config: Path | None = None,
        presets: Presets | None = None,
    ) -> None:
        super().__init__(backend, settings, store)
        self.presets = load_presets({}, "", []) if presets is None else presets
        self.preset: str | None = None  # the one in force
        self.cache: CacheState | None = None
        self._replacing = False  # is a model being opened in place of another?
        self.seed: int | None = None  # used by the latest answer
        self.loading: ModelLoading | None = None  # the stage while a model is being opened
        self._config = config
        self._queue: list[Waiting] = []
        self._apply_default_system_prompt()
        self._start_preset()
        backend.set_profiling(settings.value("show_profile"))

    # What is seen

    @property
    def queued(self) -> list[str]:
        """User texts that wait for the model or for the running answer."""
        return [waiting.text for waiting in self._queue]

    @property
    def busy(self) -> bool:
        """True while an answer is being written, or a summary."""
        return self._writing is not None or self._summary is not None

    def count_tokens(self, text: str) -> int | None:
        """Tokens of a draft; None while no model is open."""
        return self._backend.count_tokens(text)

    # Model

    def open_model(self, path: str | Path) -> None:
        """Opens a model in place of the present one. A running answer is stopped, its text stays."""
        if self.busy:
            self._backend.cancel()
        self._replacing = self.model is not None or self._replacing
        self._leave_cache()
        self.model, self.cache = None, None
        self.loading = ModelLoading("opening", 0, 0)
        self._backend.open(str(path))

    # Conversation

    def send(self, text: str, attachments: Sequence[Attachment] = (), draft: Draft | None = None) -> None:
        """Appends a user message and starts the answer, or queues the text while that is not possible.

        `draft`: what the text was written as, if it is to come back so where it cannot be sent.
        """
        if not text.strip():
            return
        waiting = Waiting(text, tuple(attachments), draft)
        if self.busy or self.model is None:
            self._queue.append(waiting)
            return
        self._send_below(self.conversation.head, waiting)

    def resend(
        self, message_id: str, text: str, attachments: Sequence[Attachment] = (), draft: Draft | None = None
    ) -> None:
        """Puts another user message beside `message_id` and answers that. Raises SessionError."""
        self._require_idle()
        message = self._message(message_id)
        if message.role != "user":
            raise SessionError("only your own messages can be edited")
        self._send_below(message.parent, Waiting(text, tuple(attachments), draft, message_id), "the edit")

    def take_back(self, index: int = -1) -> Draft:
        """Removes a message from those that wait, by default the last, and returns it. Raises SessionError."""
        if not -len(self._queue) <= index < len(self._queue):
            raise SessionError("no message waits")
        return self._queue.pop(index).draft

    def stop(self) -> list[Draft]:
        """Stops the running answer; its text stays. Returns what was queued, which it is no longer."""
        waiting, self._queue = [each.draft for each in self._queue], []
        if self.busy:
            self._backend.cancel()
        return waiting

    def regenerate(self, message_id: str | None = None) -> None:
        """Answers once more, beside an answer or below a user message; None: the last one. Raises SessionError."""
        self._require_idle()
        message = self.conversation.leaf if message_id is None else self._message(message_id)
        if message is None:
            raise SessionError("there is nothing to answer again yet")
        self._answer_again(message.parent if message.role == "assistant" else message.id)

    def continue_answer(self) -> None:
        """Writes on where the last answer ends. Raises SessionError."""
        self._require_idle()
        leaf = self.conversation.leaf
        if leaf is None or leaf.role != "assistant" or not (leaf.content or leaf.reasoning):
            raise SessionError("there is no answer to continue")
        self._write_on(leaf, self.settings.value("max_tokens"))

    def read_ahead(self) -> None:
        """Has the backend prepare for what may be said next. Called where somebody is there to say it."""
        leaf = self.conversation.leaf
        if self.model is None or self.busy or leaf is None or leaf.role != "assistant":
            return
        self._backend.read_ahead(
            for_model(self.conversation.path(), self.conversation.cut),
            think=THINK[self.settings.value("think")],
            cache_file=self._cache_file(),
        )

    def set_system_prompt(self, text: str) -> None:
        """Sets what the model is told before the conversation, from the next answer on. Empty: nothing."""
        if self.conversation.system is None and not text.strip():
            return
        if self.read_only:
            self._own_file(self.title)
        message = self.conversation.set_system(text)
        self._record(lambda transcript: transcript.message(message))
        self._own_events.append(PathChanged())

    # Events

    def drain(self) -> list[Event]:
        """Applies what the backend reported to conversation and transcript; returns it for display."""
        shown = self._take_own_events()
        for event in self._backend.drain():
            try:
                if self._apply(event):
                    shown.append(event)
            except Exception as error:  # what comes behind it counts all the same
                self._own_events.append(Notice(describe(error), "error"))
        self._after_full()
        if self._queue and not self.busy and self.model is not None:
            self._send_below(self.conversation.head, self._queue.pop(0))
        shown.extend(self._take_own_events())
        return shown

    def close(self) -> None:
        """Stops the backend and puts everything on disk. Raises TranscriptError for what could not be put there."""
        self._backend.cancel()
        self._leave_cache()
        self._backend.close()
        for event in self._backend.drain():
            self._apply(event)
        if self._writing is not None:
            self._finish(AnswerFinished(self._writing.message.id, "cancelled"))
        transcript, self._transcript = self._transcript, None
        self._leave()
        if transcript is not None:
            transcript.close()

    # Inside

    def _take_own_events(self) -> list[Event]:
        events, self._own_events = self._own_events, []
        return events

    def _send_below(self, parent: str | None, said: Waiting, what: str = "the message") -> None:
        message = self.conversation.draft("user", said.text, parent, said.attachments)
        path = [*self.conversation.path_to(parent), message]
        refused = replace(said.draft, edits=said.edits)
        fits = self._make_room(path, lambda: self._send_below(parent, said, what), refused)
        if fits is None:
            return
        self._own_file(title_of(said.text))
        before = self.conversation.head
        self.conversation.append(message)
        self._record(lambda transcript: transcript.message(message))
        self._leave_out(fits.cut)
        self._answer_below(message.id)
        self._steps.take(Step(what, before, added=message.id, draft=said.draft))

    def _answer_again(self, parent: str | None) -> None:
        fits = self._make_room(self.conversation.path_to(parent), lambda: self._answer_again(parent))
        if fits is None:
            return
        self._own_file(self.title)
        self._leave_out(fits.cut)
        before = self.conversation.head
        answer = self._answer_below(parent)
        self._steps.take(Step("the new answer", before, added=answer.id))

    def _write_on(self, answer: Message, max_tokens: int) -> None:
        path = self.conversation.path()
        fits = self._make_room(path, lambda: self._write_on(answer, max_tokens), continue_last=True)
        if fits is None:
            return
        self._own_file(self.title)
        self._leave_out(fits.cut)
        assert self.model is not None
        answer.resume(self.model.fingerprint)
        self._record(lambda transcript: transcript.resume(answer))
        self._start(answer, max_tokens, continue_last=True)

    def _answer_below(self, parent: str | None) -> Message:
        assert self.model is not None
        answer = self.conversation.new_message("assistant", "", parent)
        answer.fingerprint, answer.model = self.model.fingerprint, self.model.name
        answer.resume(self.model.fingerprint)
        self._record(lambda transcript: transcript.message(answer))
        self._record_head()
        self._start(answer, self.settings.value("max_tokens"), continue_last=False)
        return answer

    def _start(self, answer: Message, max_tokens: int, *, continue_last: bool) -> None:
        """The one path of send, resend, regenerate and continue."""
        # What was asked is on disk before the first token of what is answered.
        self._record(lambda transcript: transcript.sync())
        path = self.conversation.path()
        path = path if continue_last else path[:-1]
        self._writing = Writing(answer, self.conversation, self._transcript)
        try:
            self._backend.answer(
                answer.id,
                for_model(path, self.conversation.cut_of(path)),
                sampling=self.settings.sampling(),
                max_tokens=max_tokens or None,
                stop=self.settings.value("stop"),
                continue_last=continue_last,
                think=THINK[self.settings.value("think")],
                shift=self.settings.value("keep") if self.settings.value("context_full") == SHIFT else None,
                cache_file=self._cache_file(),
                inspect=self.settings.value("inspect_tokens"),
            )
        except Exception as error:  # nothing will ever be reported of it
            failed = AnswerFailed(answer.id, describe(error))
            self._finish(failed)
            self._own_events.append(failed)
        self._own_events.append(PathChanged())

    def _apply(self, event: Event) -> bool:
        """Takes in one event; True if it concerns what is on screen."""
        if self._is_of_summary(event):
            return False
        match event:
            case ModelLoading():
                self.loading = event
            case ModelReady(info):
                self.model, self.loading = info, None
                self._take_model_sampling(info)
                self._say_what_is_read_again(info)
            case ModelFailed():
                self.model, self.loading = None, None
            case CacheState():
                self.cache = event
            case OpProfile():
                self.profile = event
            case AnswerStarted(seed=seed):
                self.seed = seed
            case TextDelta(text=text, ids=ids, sampling=sampling, reasoning=reasoning, seconds=seconds, choices=seen):
                if self._writing is not None and event.message_id == self._writing.message.id:
                    self._writing.message.extend(
                        text, ids, sampling, reasoning=reasoning, seconds=seconds, choices=seen
                    )
                    self._record(lambda transcript: transcript.delta(event), self._writing.transcript)
            case ContextShifted():
                if self._writing is not None and event.message_id == self._writing.message.id:
                    self._take_shift(event, self._writing.conversation, self._writing.transcript)
            case TokensSeen(message_id, start, choices) if message_id in self.conversation:
                self.conversation[message_id].see(start, choices)
            case AnswerFinished() | AnswerFailed():
                return self._finish(event)
        if isinstance(event, AnswerStarted | ReadingPrompt | TextDelta | TokensSeen):
            return event.message_id in self.conversation
        return True

    def _finish(self, event: AnswerFinished | AnswerFailed) -> bool:
        writing = self._writing
        if writing is None or writing.message.id != event.message_id:
            return False
        self._writing = None
        if isinstance(event, AnswerFinished):
            writing.message.finish(event.reason, event.stats)
        else:
            writing.message.fail(event.message)
        self._record(lambda transcript: transcript.end(writing.message), writing.transcript)
        if writing.conversation is not self.conversation and writing.transcript is not None:
            self._record(Transcript.close, writing.transcript)
        if writing.message.reason == "context_full" and writing.conversation is self.conversation:
            self._full = (writing.message, event.stats.generated_tokens if isinstance(event, AnswerFinished) else 0)
        return writing.conversation is self.conversation

    def _say_what_is_read_again(self, info: ModelInfo) -> None:
        """Another model than before knows nothing of the chat yet."""
        messages = len(self.conversation.path())
        if self._replacing and self.conversation.leaf is not None:
            text = "1 message" if messages == 1 else f"{messages} messages"
            self._own_events.append(
                Notice(f"{info.name} goes on with this chat: {text} will be read again first", "information")
            )
        self._replacing = False

    def _take_model_sampling(self, info: ModelInfo) -> None:
        try:
            self.settings = self.settings.with_layer(settings_module.MODEL, info.sampling)
        except SettingsError as error:
            self._own_events.append(Notice(f"{info.name} recommends a sampling value that is not used: {error}"))

    def _leave(self) -> None:
        """Lets go of the present chat. Its transcript stays open as long as an answer is written into it."""
        self._leave_cache()
        if self.busy:
            self._backend.cancel()
        if self._writing is None:
            self._record(Transcript.close)
        self._summary = self._full = None
        self._transcript = None
        self._queue.clear()
        self._steps.forget()

    def _require_idle(self, *, model: bool = True) -> None:
        if self.busy:
            raise SessionError("an answer is being written: stop it first")
        if model and self.model is None:
            raise SessionError("no model is open")
