"""What a backend reports while it opens a model and answers: small frozen values that cross threads.

Order of one model: ModelLoading*, then ModelReady or ModelFailed. Order of one answer: AnswerStarted,
ReadingPrompt*, TextDelta* (ContextShifted may come among them), then AnswerFinished or AnswerFailed. CacheState and
Notice may come at any time. PathChanged, MessageRefused, Condensing* and Condensed come from the session itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyllm_chat.chat.choices import TokenChoice
from tinyllm_chat.chat.drafts import Draft


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the screen and the transcript say of an open model."""

    name: str  # the file's name without type and ending, or general.name: one printable line
    path: str
    file_type: str  # the quantization that most bytes have, e.g. "Q4_1"
    architecture: str
    fingerprint: str  # identifies the weights and vocabulary; ids are reused only under the same one
    parameters: int
    file_bytes: int
    context_length: int  # in force
    model_context_length: int  # the model's own
    cache_bytes_per_token: int
    lasting_bytes_per_token: int  # of these, in layers that see the whole context: the others keep windows only
    full_cache_bytes: int  # that the cache can take
    cache_type: str  # "f16", or "q8_0/f16": of keys and of values
    threads: int
    reasons: bool = False  # it can think before it answers
    notes: tuple[str, ...] = ()  # things the user must know: capped context, completion mode, missing `pre`
    adapters: tuple[str, ...] = ()  # LoRA adapters in force, one printable line each
    sampling: dict[str, Any] = field(default_factory=dict)  # the file's own `general.sampling.*`, by our setting names


@dataclass(frozen=True, slots=True)
class ModelLoading:
    stage: str  # plain words: "opening", "reading weights", "compiling kernels"
    done: int
    total: int  # 0: unknown


@dataclass(frozen=True, slots=True)
class ModelReady:
    info: ModelInfo
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelFailed:
    message: str  # one line


@dataclass(frozen=True, slots=True)
class CacheSegment:
    """A run of cached tokens that belongs to one message (message_id None: template or unknown)."""

    message_id: str | None
    role: str
    tokens: int
    reused: bool = False


@dataclass(frozen=True, slots=True)
class CacheState:
    used: int  # tokens in the cache
    total: int  # context length in force
    bytes_now: int  # in memory, other branches and chats included
    bytes_full: int  # that the cache can take
    segments: tuple[CacheSegment, ...] = ()
    reused: int = 0  # tokens of the last prompt that were found in the cache
    evaluated: int = 0  # and those that were not
    held: tuple[tuple[int, int], ...] | None = None  # tokens that layers with a window still have; None: there are none


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    message_id: str
    prompt_tokens: int
    reused_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class ReadingPrompt:
    message_id: str
    done: int
    total: int
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Some tokens of the answer. `text` may be empty: of an incomplete character, or of marks around reasoning."""

    message_id: str
    text: str
    ids: tuple[int, ...]
    tokens_per_second: float  # over the last moments
    sampling: dict[str, Any] | None = None  # set where the sampling in force changed: holds from these ids on
    reasoning: bool = False  # the text is what the model thinks before it answers
    seconds: float = 0.0  # that these tokens of reasoning took
    choices: tuple[TokenChoice | None, ...] = ()  # for each of `ids`, or none at all


@dataclass(frozen=True, slots=True)
class TokensSeen:
    """What the tokens of a finished answer were chosen from, found out afterwards; `start`: the first one's place."""

    message_id: str
    start: int
    choices: tuple[TokenChoice, ...]


@dataclass(frozen=True, slots=True)
class OpProfile:
    """Where the time of writing went: shares of the kinds of operations, the highest first, together 1."""

    message_id: str
    tokens: int  # written since the clocks were started
    seconds: float
    shares: tuple[tuple[str, float], ...]  # kind in plain words, share


@dataclass(frozen=True, slots=True)
class AnswerStats:
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # after the first token
    first_token_seconds: float = 0.0  # from the request to the first token
    seed: int = 0

    @property
    def prefill_tokens_per_second(self) -> float:
        evaluated = self.prompt_tokens - self.reused_tokens
        return evaluated / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """The first token is the prompt's: `decode_seconds` begin after it."""
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    message_id: str
    reason: str  # eog, stop, length, context_full, cancelled
    stats: AnswerStats = field(default_factory=AnswerStats)


@dataclass(frozen=True, slots=True)
class AnswerFailed:
    message_id: str
    message: str  # one line: what happened and what can be done


@dataclass(frozen=True, slots=True)
class PathChanged:
    """The visible messages are others than before: read `Session.conversation.path()` again."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that the user should see: a transcript that could not be written, messages that had to be rearranged."""

    message: str
    severity: str = "warning"  # information, warning, error
    offers: tuple[str, ...] = ()  # what can be done, of room.OFFERS


@dataclass(frozen=True, slots=True)
class MessageRefused:
    """A message that was not sent, and why in one line: whoever wrote it gets it back."""

    draft: Draft
    message: str
    offers: tuple[str, ...] = ()  # what can be done, of room.OFFERS


@dataclass(frozen=True, slots=True)
class ContextShifted:
    """The cache was full while an answer was being written: the messages from `begin` up to `end` left it."""

    message_id: str
    begin: str
    end: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Condensing:
    """The model summarizes the oldest turns: so much is read, so much is written."""

    messages: int
    done: int
    total: int  # tokens to read; 0: not known yet
    tokens_per_second: float
    written: int  # tokens


@dataclass(frozen=True, slots=True)
class Condensed:
    """The summary is there, or there will be none."""


Event = (
    ModelLoading
    | ModelReady
    | ModelFailed
    | CacheState
    | AnswerStarted
    | ReadingPrompt
    | TextDelta
    | TokensSeen
    | OpProfile
    | AnswerFinished
    | AnswerFailed
    | PathChanged
    | Notice
    | MessageRefused
    | ContextShifted
    | Condensing
    | Condensed
)
