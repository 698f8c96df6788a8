"""ModelConfig: the hyperparameters in a file's metadata, checked and named after their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tinyllm_engine.errors import ModelError, UnsupportedModelError
from tinyllm_engine.gguf_header import location, shown

# Above any model there is; what they bound sizes tables and buffers.
MAX_BLOCKS = 4096
MAX_LENGTH = 1 << 31
MAX_HEADS = 1 << 16
MAX_HEAD_LENGTH = 1 << 16
MAX_VOCABULARY = 1 << 24
MAX_EXPERTS = 1 << 14
MAX_NUMBER = float(np.finfo(np.float32).max)

DEFAULT_EPSILON = 1e-5
SCALING_TYPES = ("none", "linear", "yarn", "longrope")

_REQUIRED: Any = object()


@dataclass(frozen=True)
class RopeConfig:
    """How positions become rotations, in the terms of the YaRN paper (arXiv:2309.00071) and with llama.cpp's defaults.

    dimension_count: values of a head that rotate, even
    scaling_type: none, linear, yarn or longrope; without a key linear (with factor 1, which changes nothing)
    scaling_factor: by how much the context is stretched; 1 where there is no scaling
    original_context_length: what the model was trained with before stretching, by default its context length
    ext_factor: share of extrapolation: 1 for yarn, else 0
    beta_fast, beta_slow: where YaRN's ramp begins and ends, in rotations over the original context
    log_multiplier: of the logarithm by which YaRN's magnitude is divided, 0 for no division. A file's `yarn_*` keys for
        these three count in the few families that read them; elsewhere they change nothing
    """

    dimension_count: int
    freq_base: float
    scaling_type: str
    scaling_factor: float
    original_context_length: int
    attn_factor: float
    ext_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    log_multiplier: float = 0.0


@dataclass(frozen=True)
class ModelConfig:
    """Hyperparameters under the names of their keys, `{architecture}.` and `attention.` left out.

    One entry per block: feed_forward_length, head_count, head_count_kv; 0 in blocks without a feed-forward network or
    attention. None where the file has no such key and no default exists. What an architecture needs or ignores is the
    architecture's to say; keys that only some families know are not here, but read from `keys` by what needs them.

    block_count: without the layers of multi-token prediction that some files have behind the others
    """

    architecture: str
    name: str
    block_count: int
    context_length: int
    embedding_length: int
    feed_forward_length: tuple[int, ...]
    head_count: tuple[int, ...]
    head_count_kv: tuple[int, ...]
    key_length: int
    value_length: int
    vocab_size: int
    norm_epsilon: float | None
    norm_rms_epsilon: float | None
    rope: RopeConfig
    expert_count: int
    expert_used_count: int
    sliding_window: int | None
    keys: Keys = field(repr=False, compare=False)

    def epsilon(self, norm: str) -> float:
        """Of norms of this kind, "rms" or "layer"."""
        return (self.norm_rms_epsilon if norm == "rms" else self.norm_epsilon) or DEFAULT_EPSILON

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: str = "") -> ModelConfig:
        """Read the keys of the file's architecture. ModelError names the key, what was expected and what was found."""
        keys = Keys(metadata, str(path))
        stored = keys.integer("block_count", 1, MAX_BLOCKS)
        blocks = stored - keys.integer("nextn_predict_layers", 0, stored - 1, default=0)
        context = keys.integer("context_length", 1, MAX_LENGTH)
        embedding = keys.integer("embedding_length", 1, MAX_LENGTH)
        heads = keys.per_block("attention.head_count", stored, MAX_HEADS)
        key_length = _head_length(keys, "attention.key_length", embedding, heads)
        experts = keys.integer("expert_count", 0, MAX_EXPERTS, default=0)
        return cls(
            architecture=keys.architecture,
            name=keys.name(),
            block_count=blocks,
            context_length=context,
            embedding_length=embedding,
            feed_forward_length=keys.per_block("feed_forward_length", stored, MAX_LENGTH)[:blocks],
            head_count=heads[:blocks],
            head_count_kv=_key_value_heads(keys, heads)[:blocks],
            key_length=key_length,
            value_length=_head_length(keys, "attention.value_length", embedding, heads),
            vocab_size=_vocab_size(keys),
            norm_epsilon=keys.positive("attention.layer_norm_epsilon"),
            norm_rms_epsilon=keys.positive("attention.layer_norm_rms_epsilon"),
            rope=_rope(keys, key_length, context),
            expert_count=experts,
            expert_used_count=_experts_used(keys, experts),
            sliding_window=keys.optional_integer("attention.sliding_window", 0, MAX_LENGTH),
            keys=keys,
        )


class Keys:
    """Typed access to the metadata under `{architecture}.`; a wrong value is a ModelError with the key in it.

    where: how a message about the file begins
    """

    def __init__(self, metadata: Mapping[str, Any], path: str) -> None:
        self.metadata = metadata
        self.where = location(path)
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            self.fail("general.architecture", "the name of an architecture", architecture)
        self.architecture = architecture

    def fail(self, key: str, expected: str, found: Any) -> NoReturn:
        """ModelError for a key by its whole name."""
        raise ModelError(f"{self.where}{shown(key, 120)}: expected {expected}, found {_describe(found)}")

    def refuse(self, name: str, expected: str, found: Any) -> NoReturn:
        """ModelError for a key under `{architecture}.`."""
        self.fail(self.key(name), expected, found)

    def key(self, name: str) -> str:
        """The whole name of a key."""
        return f"{self.architecture}.{name}"

    def get(self, name: str) -> tuple[str, Any]:
        """A key's whole name and its value, None where the file has no such key."""
        return self.key(name), self.metadata.get(self.key(name))

    def name(self) -> str:
        """general.name, "" where that is no text."""
        value = self.metadata.get("general.name")
        return value if isinstance(value, str) else ""

    def integer(self, name: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """An integer from low to high; the default, where there is one, when the key is absent."""
        key, value = self.get(name)
        if value is None and default is not _REQUIRED:
            return int(default)
        return self.check_integer(key, value, low, high)

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        """None when the key is absent."""
        return None if self.get(name)[1] is None else self.integer(name, low, high)

    def integers(self, name: str, high: int) -> tuple[int, ...] | None:
        """An array of integers (or of truth values) from 0 to high; None when the key is absent or no array."""
        key, value = self.get(name)
        if not isinstance(value, np.ndarray):
            return None
        if value.dtype.kind not in "iub":
            self.fail(key, "integers", value)
        return tuple(self.check_integer(key, int(item), 0, high) for item in value.tolist())

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        key, value = self.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            self.fail(key, "true or false", value)
        return value

    def check_integer(self, key: str, value: Any, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            self.fail(key, f"an integer from {low} to {high}", value)
        return value

    def per_block(self, name: str, blocks: int, high: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """One integer for all blocks, or an array with one for each."""
        key, value = self.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, np.ndarray):
            return (self.check_integer(key, value, 0, high),) * blocks
        if value.dtype.kind not in "iu":
            self.fail(key, "integers", value)
        if len(value) != blocks:
            self.fail(key, f"{blocks} values, one per block", value)
        return tuple(self.check_integer(key, item, 0, high) for item in value.tolist())

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """One number for all blocks, or an array with one for each; `key` is the whole key."""
        value = self.metadata.get(key)
        items: list[Any] = value.tolist() if isinstance(value, np.ndarray) else [value] * count
        if len(items) < count or not all(_is_finite(item) for item in items):
            self.fail(key, f"a finite number, or {count}, one per block", value)
        return tuple(float(item) for item in items[:count])

    def number(self, name: str) -> float | None:
        """A finite number, or None when the key is absent."""
        key, value = self.get(name)
        if value is None:
            return None
        if not _is_finite(value):
            self.fail(key, "a finite number", value)
        return float(value)

    def positive(self, name: str) -> float | None:
        """A number above 0, or None when the key is absent."""
        value = self.number(name)
        if value is not None and value <= 0:
            self.refuse(name, "a number above 0", value)
        return value

    def positive_or(self, name: str, default: float) -> float:
        value = self.positive(name)
        return default if value is None else value

    def scale(self, name: str) -> float | None:
        """A number of 0 or more, where 0 means the same as no key: switched off."""
        value = self.number(name)
        if value is not None and value < 0:
            self.refuse(name, "a number of 0 or more", value)
        return value or None


def _is_finite(value: Any) -> bool:
    """Whether it is a number, and one that float32 can hold: the kernels know no other."""
    return type(value) in (int, float) and abs(value) <= MAX_NUMBER  # which NaN is not


def _describe(value: Any) -> str:
    if value is None:
        return "no such key"
    if isinstance(value, str):
        return f"the string {shown(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)} strings"
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)} {value.dtype.name} values"
    return f"{value!r}"


def _head_length(keys: Keys, name: str, embedding: int, heads: tuple[int, ...]) -> int:
    key, value = keys.get(name)
    if value is not None:
        return keys.integer(name, 1, MAX_HEAD_LENGTH)
    count = max(heads)
    if not count:
        return 0
    if embedding % count:
        keys.fail(key, f"a head size, as embedding_length {embedding} is no multiple of head_count {count}", None)
    return keys.check_integer(key, embedding // count, 1, MAX_HEAD_LENGTH)


def _key_value_heads(keys: Keys, heads: tuple[int, ...]) -> tuple[int, ...]:
    key, value = keys.get("attention.head_count_kv")
    if type(value) is int and any(heads):
        keys.check_integer(key, value, 1, MAX_HEADS)
    counts = keys.per_block("attention.head_count_kv", len(heads), MAX_HEADS, default=heads)
    for block, (query, shared) in enumerate(zip(heads, counts, strict=True)):
        if shared and query % shared:
            keys.fail(key, f"a divisor of head_count {query} in block {block}", shared)
    return counts


def _vocab_size(keys: Keys) -> int:
    """The number of tokens, which the embedding has rows for; the key counts only in a file without tokens."""
    key, value = keys.get("vocab_size")
    tokens = keys.metadata.get("tokenizer.ggml.tokens")
    return keys.check_integer(key, len(tokens) if isinstance(tokens, list) else value, 1, MAX_VOCABULARY)


def _experts_used(keys: Keys, experts: int) -> int:
    used = keys.integer("expert_used_count", 0, MAX_EXPERTS, default=0)
    if used > experts or (experts and not used):
        expected = f"an integer from 1 to expert_count {experts}" if experts else "0, as there are no experts"
        keys.refuse("expert_used_count", expected, used)
    return used


def _rope(keys: Keys, head_length: int, context: int) -> RopeConfig:
    key, value = keys.get("rope.dimension_count")
    dimensions = head_length
    if value is not None and head_length:
        dimensions = keys.check_integer(key, value, 0, head_length)
    if dimensions % 2:
        keys.fail(key, "an even number", dimensions)
    kind = _scaling_type(keys)
    return RopeConfig(
        dimension_count=dimensions,
        freq_base=keys.positive_or("rope.freq_base", 10000.0),
        scaling_type=kind,
        scaling_factor=1.0 if kind == "none" else _scaling_factor(keys),
        original_context_length=keys.integer("rope.scaling.original_context_length", 0, MAX_LENGTH, 0) or context,
        attn_factor=keys.positive_or("rope.scaling.attn_factor", 1.0),
        ext_factor=1.0 if kind == "yarn" else 0.0,
    )


def _scaling_type(keys: Keys) -> str:
    key, value = keys.get("rope.scaling.type")
    if value is None:
        return "linear"
    if not isinstance(value, str):
        keys.fail(key, "a string", value)
    if value not in SCALING_TYPES:
        raise UnsupportedModelError(
            f"{keys.where}{shown(key)}: expected one of {', '.join(SCALING_TYPES)}, found {shown(value)}"
        )
    return value


def _scaling_factor(keys: Keys) -> float:
    _, value = keys.get("rope.scaling.factor")
    return keys.scale("rope.scaling.factor" if value is not None else "rope.scale_linear") or 1.0
