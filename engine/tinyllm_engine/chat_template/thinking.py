"""Models that think first: where their reasoning stands in what they write, and how it is asked for.

A template's own text says how reasoning is marked: in tags, such as `<think>`, or in channels. What a model writes is
split by the same marks as it comes (`splitter`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tinyllm_engine.chat_template.splitter import ChannelSplitter, Splitter, Tags, TagSplitter
from tinyllm_engine.tokenizer import Tokenizer

_TAGS = (
    Tags("<think>", "</think>"),
    Tags("[THINK]", "[/THINK]"),
    Tags("<seed:think>", "</seed:think>"),
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),
    Tags("<|channel>thought", "<channel|>"),
    Tags("<|inner_prefix|>", "<|inner_suffix|>"),
    Tags("◁think▷", "◁/think▷"),
    Tags("<thought>", "</thought>"),
    Tags("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
)
# What the answer after the reasoning is wrapped in, where it is.
_ANSWER_TAGS = (
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<response>", "</response>"),
    ("<answer>", "</answer>"),
)
_CHANNEL_MARKS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
_FINAL = "<|channel|>final<|message|>"
_LAST_TAG = re.compile(r"(?:<[^<>\s]+>\w+)?(?:<[^<>\s]+>|\[[^\[\]\s]+\]|◁[^◁▷]+▷)$")


class Marks(Protocol):
    """How reasoning is told from the answer."""

    def splitter(self, prompt: str) -> Splitter:
        """For what is written after this prompt, which may have begun the reasoning."""

    def written(self, prompt: str, reasoning: str, content: str) -> list[tuple[str, str | None]]:
        """An answer so far as the model would have written it after this prompt: pieces of text, each with "reasoning"
        or "content" for whose it is, None for marks."""

    def without(self, prompt: str) -> str:
        """What to end the prompt with, so that the answer begins at once; "" if it does already."""

    @property
    def openings(self) -> tuple[str, ...]:
        """What prompts may end with that an answer then goes on from."""

    @property
    def shown(self) -> frozenset[int]:
        """Tokens that must be seen in a text that is to be split, though most of them are hidden otherwise."""


@dataclass(frozen=True)
class TagMarks:
    """Reasoning between two tags, mostly at the start.

    tokens: the tags are tokens that mean nothing else, so they count wherever they stand
    """

    tags: Tags
    tokens: bool
    shown: frozenset[int] = frozenset()

    def splitter(self, prompt: str) -> Splitter:
        return TagSplitter(self.tags, self.tokens, self._open(prompt))

    def written(self, prompt: str, reasoning: str, content: str) -> list[tuple[str, str | None]]:
        opened = self._open(prompt)
        if not reasoning and not opened:
            return [(content, "content")]
        begin = "" if opened else f"{self.tags.begin}\n"
        end = f"\n{self.tags.end}\n\n" if content else ""
        return [(begin, None), (reasoning, "reasoning"), (end, None), (content, "content")]

    def without(self, prompt: str) -> str:
        if prompt.rstrip().endswith(self.tags.end):
            return ""
        gap = "\n\n" if _LAST_TAG.fullmatch(self.tags.end) else ""
        return ("" if self._open(prompt) else self.tags.begin) + gap + self.tags.end + gap

    @property
    def openings(self) -> tuple[str, ...]:
        return ("", self.tags.begin)

    def _open(self, prompt: str) -> bool:
        return prompt.rstrip().endswith(self.tags.begin)


@dataclass(frozen=True)
class ChannelMarks:
    """Messages in channels, as gpt-oss writes them: what is in `analysis` is reasoning."""

    shown: frozenset[int] = frozenset()

    def splitter(self, prompt: str) -> Splitter:
        splitter = ChannelSplitter()
        if prompt.endswith("<|message|>"):
            splitter.resume(prompt[prompt.rfind("<|start|>") :])
        return splitter

    def written(self, prompt: str, reasoning: str, content: str) -> list[tuple[str, str | None]]:
        pieces: list[tuple[str, str | None]] = []
        if reasoning:
            pieces = [("<|channel|>analysis<|message|>", None), (reasoning, "reasoning")]
        if content or not reasoning:
            next_message = "<|end|><|start|>assistant" if reasoning else ""
            pieces += [(f"{next_message}{_FINAL}", None), (content, "content")]
        return pieces

    def without(self, prompt: str) -> str:
        return "" if prompt.endswith("<|message|>") else _FINAL

    @property
    def openings(self) -> tuple[str, ...]:
        return ("", _FINAL)


def find_marks(source: str, tokenizer: Tokenizer, discover: Callable[[], Tags | None]) -> Marks | None:
    """How the template's model marks reasoning; None if it does not seem to reason.

    discover: renders a message with reasoning to see what comes around it
    """
    if "<|channel|>" in source and "<|message|>" in source:
        return ChannelMarks(_markers(_CHANNEL_MARKS, tokenizer))
    tags = next((tags for tags in _TAGS if tags.begin in source or tags.end in source), None) or discover()
    if tags is None:
        tags = next(
            (tags for tags in _TAGS if _is_token(tags.begin, tokenizer) and _is_token(tags.end, tokenizer)), None
        )
    if tags is None:
        return None
    answer = next((pair for pair in _ANSWER_TAGS if pair[0] in source), ("", ""))
    tokens = all(_markers((text,), tokenizer) for text in (tags.begin, tags.end))
    return TagMarks(Tags(tags.begin, tags.end, answer), tokens, _markers((tags.begin, tags.end, *answer), tokenizer))


def tags_around(before: str, prompt: str, between: str) -> Tags | None:
    """The tags of a rendered message, from what stands before its reasoning and between that and its content.

    prompt: the same, up to where the message was due
    """
    same = next((at for at, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), len(prompt))
    begin, end = before[same:].strip(), between.strip()
    if not begin and (last := _LAST_TAG.search(before.rstrip())):
        begin = last.group()  # prompts end with it
    return Tags(begin, end) if begin and end else None


def switch_variables(source: str, think: bool) -> dict[str, Any]:
    """What templates may be told so that the model thinks or does not. They ignore what they do not know."""
    variables: dict[str, Any] = {"enable_thinking": think, "thinking": think, "reasoning": think}
    variables["thinking_mode"] = "enabled" if think else "disabled"
    if not think:
        variables["thinking_budget"] = 0
    for effort in ("no_think", "none"):
        if "reasoning_effort" in source and re.search(rf"""['"]{effort}['"]""", source):
            variables["reasoning_effort"] = "high" if think else effort
    return variables


def _is_token(text: str, tokenizer: Tokenizer) -> bool:
    id = tokenizer.token_id(text)
    return id is not None and tokenizer.is_marker(id)


def _markers(texts: Iterable[str], tokenizer: Tokenizer) -> frozenset[int]:
    """The special tokens in these texts."""
    ids = (id for text in texts for id in tokenizer.encode(text, parse_special=True, add_bos=False))
    return frozenset(id for id in ids if tokenizer.is_marker(id))
