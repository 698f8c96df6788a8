"""Attention: queries meet the keys and values of the rows so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tinyllm_engine.config import MAX_HEAD_LENGTH, MAX_LENGTH, ModelConfig
from tinyllm_engine.errors import ModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.rotation import Rotations
from tinyllm_engine.rope import Rope


@dataclass(frozen=True)
class Temperature:
    """Queries times 1 + scale * ln(1 + floor(position / period))."""

    scale: float
    period: int


@dataclass(frozen=True)
class Scoring:
    """How the scores of queries and keys become weights.

    scale: what q k is multiplied with
    window: keys that a row sees, itself included; 0: all; -n: those of its own chunk of n
    softcap: scores become softcap * tanh(score / softcap); 0: they stay
    slopes: float32 [heads], what a score loses per key of distance (ALiBi); sinks: float32 [heads], a score without a
        value; None: there are none
    """

    scale: float
    window: int = 0
    softcap: float = 0.0
    slopes: np.ndarray | None = None
    sinks: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Attention:
    """softmax(scores of q and k) v, with groups of heads / kv_heads queries that share one key and value.

    q, k, v: [embedding_length -> heads of their lengths]; output: [heads * value_length -> embedding_length]
    v: None where values are what keys are before they are normed
    source: the block whose keys and values the queries meet, where the block has none (k and v are None); else None
    clamp: what q, k and v are clamped to, 0: nothing
    q_norm, k_norm: of the heads of q and k, or of their rows with norm_rows; before they rotate, or after it
    v_norm: of the heads of v
    rope: how q and k rotate; None where they do not
    sub_norm: of what `output` multiplies
    gated: what `output` multiplies is first multiplied by the sigmoid of what q has behind each head
    gate: or by the sigmoid of this product; [embedding_length -> heads * value_length]
    """

    q: Linear
    k: Linear | None
    v: Linear | None
    output: Linear
    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    scoring: Scoring
    rope: Rope | None = None
    clamp: float = 0.0
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    v_norm: Norm | None = None
    source: int | None = None
    norm_rows: bool = False
    norm_after_rope: bool = False
    temperature: Temperature | None = None
    sub_norm: Norm | None = None
    gated: bool = False
    gate: Linear | None = None

    @property
    def cached(self) -> LayerShape:
        """The shape of keys and values that it adds; see `source`."""
        heads = self.kv_heads if self.source is None else 0
        return LayerShape(heads, self.key_length, self.value_length, self.scoring.window)

    def scaled(self, factor: float) -> Attention:
        return replace(self, output=self.output.scaled(factor))


@dataclass(frozen=True, eq=False)
class Projection:
    """A block whose attention was replaced by one matrix, each row by itself (as in DeciLM)."""

    output: Linear

    def scaled(self, factor: float) -> Projection:
        return Projection(self.output.scaled(factor))


def read_attention(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rotations: Rotations | None
) -> Attention:
    """The attention of a block that has heads. ModelError for shapes that do not belong together."""
    blk, embedding = f"blk.{block}", config.embedding_length
    heads, kv_heads = config.head_count[block], config.head_count_kv[block]
    window = windows(facts, config)[block]
    d_k, d_v = head_lengths(facts, config, block)
    source = shared_source(facts, config, block)
    if not kv_heads or not heads or heads % kv_heads:
        raise ModelError(
            f"{tensors.path}: attention.head_count_kv: expected a divisor of {heads} heads, found {kv_heads}"
        )
    q_size = heads * d_k * (2 if facts.attention_gate == "behind" else 1)
    sizes = q_size, kv_heads * d_k, kv_heads * d_v
    q, k, v = _matrices(tensors, facts, blk, embedding, sizes, source is None)
    q_norm, k_norm = _head_norms(tensors, facts, config, block, d_k, source is None)
    v_norm = tensors.norm(f"{blk}.attn_v_norm", d_v, "rms", config.epsilon("rms"), weights=False)
    return Attention(
        q=q,
        k=k,
        v=v,
        output=tensors.linear(f"{blk}.attn_output", heads * d_v, embedding),
        heads=heads,
        kv_heads=kv_heads,
        key_length=d_k,
        value_length=d_v,
        scoring=_scoring(tensors, facts, config, block, heads, window),
        rope=_rope(facts, config, block, rotations, window),
        clamp=(config.keys.scale("attention.clamp_kqv") or 0.0) if facts.clamp_qkv else 0.0,
        q_norm=q_norm,
        k_norm=k_norm,
        v_norm=v_norm if facts.v_norm else None,
        source=source,
        norm_rows=facts.qk_norm == "row",
        norm_after_rope=facts.qk_norm_after_rope,
        temperature=_temperature(facts, config),
        sub_norm=_norm(tensors, facts, config, f"{blk}.attn_sub_norm", heads * d_v) if facts.sub_norms else None,
        gated=facts.attention_gate == "behind",
        gate=tensors.linear(f"{blk}.attn_gate", embedding, heads * d_v) if facts.attention_gate == "matrix" else None,
    )


def read_projection(tensors: Tensors, config: ModelConfig, block: int) -> Projection:
    """The matrix of a block that has queries and no keys."""
    embedding = config.embedding_length
    return Projection(tensors.linear(f"blk.{block}.attn_output", embedding, embedding))


def head_lengths(facts: Architecture, config: ModelConfig, block: int) -> tuple[int, int]:
    """Elements of a key and of a value of the block."""
    window, lengths = facts.window, (config.key_length, config.value_length)
    if window is None or not window.own_heads or not windows(facts, config)[block]:
        return lengths
    names = ("attention.key_length_swa", "attention.value_length_swa")
    key, value = (
        config.keys.integer(name, 1, MAX_HEAD_LENGTH, default=length)
        for name, length in zip(names, lengths, strict=True)
    )
    return key, value


def shared_source(facts: Architecture, config: ModelConfig, block: int) -> int | None:
    """The block whose keys and values a block uses that has none of its own: the last of its kind that has some."""
    shared = facts.shared_keys(config)
    first = config.block_count - shared
    if block < first:
        return None
    source = first - (2 if windows(facts, config)[block] else 1)
    kinds = [
        (bool(windows(facts, config)[each]), config.head_count_kv[each], head_lengths(facts, config, each))
        for each in (block, max(source, 0))
    ]
    if source < 0 or kinds[0] != kinds[1]:
        config.keys.refuse(
            "attention.shared_kv_layers",
            f"blocks before {first} with keys such as those of {block}",
            shared,
        )
    return source


def _matrices(
    tensors: Tensors, facts: Architecture, blk: str, embedding: int, sizes: tuple[int, int, int], has_keys: bool
) -> tuple[Linear, Linear | None, Linear | None]:
    """Those of q, k and v; without keys of its own a block has but the first, and where values are keys two."""
    if not has_keys:
        return tensors.linear(f"{blk}.attn_q", embedding, sizes[0]), None, None
    if facts.keys_as_values and f"{blk}.attn_v.weight" not in tensors and sizes[1] == sizes[2]:
        q, k = _projections(tensors, blk, embedding, sizes[:2])
        return q, k, None
    q, k, v = _projections(tensors, blk, embedding, sizes)
    return q, k, v


def _projections(tensors: Tensors, blk: str, embedding: int, sizes: Sequence[int]) -> list[Linear]:
    """The matrices of q, k and v, each by itself or all in one; then their biases may still be apart."""
    names = [f"{blk}.attn_{name}" for name in "qkv"[: len(sizes)]]
    if f"{blk}.attn_qkv.weight" not in tensors:
        return [tensors.linear(name, embedding, size) for name, size in zip(names, sizes, strict=True)]
    parts = tensors.stacked(f"{blk}.attn_qkv", embedding, sizes)
    biases = [tensors.optional(f"{name}.bias", size) for name, size in zip(names, sizes, strict=True)]
    if parts[0].bias is None and all(bias is not None for bias in biases):
        return [replace(part, bias=bias) for part, bias in zip(parts, biases, strict=True)]
    return parts


def _scoring(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, heads: int, window: int
) -> Scoring:
    return Scoring(
        scale=facts.attention_scale(config),
        window=window,
        softcap=_attn_softcap(facts, config),
        slopes=alibi_slopes(heads, facts.alibi(config)),
        sinks=tensors.vector(f"blk.{block}.attn_sinks.weight", heads) if facts.sinks else None,
    )


def _rope(
    facts: Architecture, config: ModelConfig, block: int, rotations: Rotations | None, window: int
) -> Rope | None:
    """How the block's heads rotate; None where they do not."""
    if rotations is None or not facts.rotates(config, block, window > 0):
        return None
    return rotations.windowed if window else rotations.full


def _norm(tensors: Tensors, facts: Architecture, config: ModelConfig, name: str, length: int, heads: int = 1) -> Norm:
    return tensors.norm(name, length, facts.norm, config.epsilon(facts.norm), heads=heads)


def _head_norms(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, size: int, has_keys: bool
) -> tuple[Norm, Norm] | tuple[Norm | None, None]:
    """The norms of queries and keys. An optional one is there for both where it is there for the queries."""
    blk = f"blk.{block}"
    if not facts.qk_norm or (facts.qk_norm_optional and f"{blk}.attn_q_norm.weight" not in tensors):
        return None, None
    heads, kv_heads = config.head_count[block], config.head_count_kv[block]
    q_name, k_name = f"{blk}.attn_q_norm", f"{blk}.attn_k_norm"
    if not has_keys:
        return _norm(tensors, facts, config, q_name, size, heads), None
    if facts.qk_norm == "row":
        q_norm, k_norm = (
            _norm(tensors, facts, config, name, count * size) for name, count in ((q_name, heads), (k_name, kv_heads))
        )
    else:
        q_norm, k_norm = (
            _norm(tensors, facts, config, name, size, count) for name, count in ((q_name, heads), (k_name, kv_heads))
        )
    return q_norm, k_norm


def _attn_softcap(facts: Architecture, config: ModelConfig) -> float:
    if facts.attn_softcap is None:
        return 0.0
    key = config.keys.number("attn_logit_softcapping")
    return facts.attn_softcap if key is None else key


def _temperature(facts: Architecture, config: ModelConfig) -> Temperature | None:
    scale = config.keys.number("attention.temperature_scale") if facts.temperature else None
    return Temperature(scale, config.rope.original_context_length) if scale else None


def windows(facts: Architecture, config: ModelConfig) -> tuple[int, ...]:
    """The window of each block; 0 where a row sees everything before it."""
    window, blocks = facts.window, config.block_count
    size = 0
    if window is not None and window.blocks in (None, blocks):
        size = window.size if config.sliding_window is None else config.sliding_window
    if window is None or not size:
        return (0,) * blocks
    name = "attention.sliding_window_pattern"
    flags = config.keys.integers(name, 1)
    if flags is None:
        period = window.period
        if period is None or config.keys.get(name)[1] is not None:
            period = config.keys.integer(name, 0, MAX_LENGTH)
        flags = tuple(int(period == 0 or block % period < period - 1) for block in range(blocks))
    elif len(flags) < blocks:
        config.keys.refuse(name, f"{blocks} values, one per block", config.keys.get(name)[1])
    return tuple(size * flag for flag in flags[:blocks])


def alibi_slopes(heads: int, bias: float) -> np.ndarray | None:
    """float32 [heads]: powers of 2^(-bias / n) for the first n heads, n a power of 2; between them for the others.

    arXiv:2108.12409; None for a bias of 0.
    """
    if not bias:
        return None
    base = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-bias / base * np.arange(1, base + 1))
    between = 2.0 ** (-bias / 2 / base * np.arange(1, 2 * (heads - base), 2))
    return np.concatenate((first, between)).astype(np.float32)
