"""Latent attention (arXiv:2405.04434): all heads' keys and values come out of one short vector a row.

A head's key is a product of that latent vector, followed by a part that rotates and that all heads share. Where the
file has the matrices of keys and values apart, the heads need no keys of their own: a query is multiplied with its
head's key matrix instead, and what attention makes of the latent vectors with its value matrix (section 2.1.2). The
cache then holds one latent vector and one rotated part a row, whatever the number of heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.config import MAX_HEAD_LENGTH, MAX_LENGTH, ModelConfig
from tinyllm_engine.errors import ModelError, UnsupportedModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.parts.attention import Scoring, Temperature
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.rotation import Rotations
from tinyllm_engine.parts.stack import Stack, read_stacks
from tinyllm_engine.rope import Rope


@dataclass(frozen=True, eq=False)
class AbsorbedHeads:
    """A matrix for each head: k_b [key_length without what rotates -> latent], v_b [latent -> value_length]."""

    k_b: Stack
    v_b: Stack


@dataclass(frozen=True, eq=False)
class LatentAttention:
    """softmax(scores of q and k) v, with k and v made of a latent vector, and of what rotates in k.

    q_a: [embedding_length -> a short vector], q_norm of that, q: [either -> heads of key_length]
    latent: [embedding_length -> latent vector], latent_norm of that; k_rope: [embedding_length -> what rotates in keys]
    heads_of: how keys and values come of the latent vector: absorbed, or by one matrix for all heads, each with its
        key first and then its value
    output: [heads * value_length -> embedding_length]
    rope: rotates the last elements of each key and query
    """

    q_a: Linear | None
    q_norm: Norm | None
    q: Linear
    latent: Linear
    latent_norm: Norm
    k_rope: Linear
    heads_of: AbsorbedHeads | Linear
    output: Linear
    heads: int
    key_length: int
    value_length: int
    scoring: Scoring
    rope: Rope
    temperature: Temperature | None

    @property
    def rotating(self) -> int:
        """Elements of a key that rotate (the paper's d^R); they are the last."""
        return self.k_rope.outputs

    @property
    def resting(self) -> int:
        """Elements of a key that do not; they come first."""
        return self.key_length - self.rotating

    @property
    def cached(self) -> LayerShape:
        """One key and value for all heads where these are absorbed: the latent vector, and what rotates behind it."""
        if isinstance(self.heads_of, AbsorbedHeads):
            return LayerShape(1, self.latent.outputs + self.rotating, self.latent.outputs)
        return LayerShape(self.heads, self.key_length, self.value_length)

    def scaled(self, factor: float) -> LatentAttention:
        return replace(self, output=self.output.scaled(factor))


def read_latent_attention(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rotations: Rotations | None
) -> LatentAttention:
    """The latent attention of a block. ModelError for shapes that do not belong together."""
    blk, embedding, keys = f"blk.{block}", config.embedding_length, config.keys
    heads, epsilon = config.head_count[block], config.epsilon(facts.norm)
    if rotations is None:
        raise ModelError(f"{tensors.path}: rope.dimension_count: expected a part of each key that rotates, found none")
    rotating, latent = rotations.full.config.dimension_count, keys.integer("attention.kv_lora_rank", 1, MAX_LENGTH)
    absorbed, key_length, value_length = _lengths(config)
    resting = key_length - rotating
    if resting <= 0:
        keys.refuse("rope.dimension_count", f"less than the length of a key, {key_length}", rotating)
    for name, size in (("key", key_length), ("key without what rotates", resting), ("value", value_length)):
        if size % UNIT:  # each head of a row begins with a block, where the row is quantized
            raise UnsupportedModelError(
                f"{tensors.path}: latent attention: expected a {name} of a multiple of {UNIT} elements, found {size}"
            )
    q_rank = _q_rank(facts, config)
    latent_part, k_rope = tensors.stacked(f"{blk}.attn_kv_a_mqa", embedding, (latent, rotating))
    heads_of: AbsorbedHeads | Linear
    if absorbed:
        (k_b,) = read_stacks(tensors, f"{blk}.attn_k_b", resting, (latent,), heads)
        (v_b,) = read_stacks(tensors, f"{blk}.attn_v_b", latent, (value_length,), heads)
        heads_of = AbsorbedHeads(k_b, v_b)
    else:
        heads_of = tensors.linear(f"{blk}.attn_kv_b", latent, heads * (resting + value_length))
    return LatentAttention(
        q_a=tensors.linear(f"{blk}.attn_q_a", embedding, q_rank) if q_rank else None,
        q_norm=tensors.norm(f"{blk}.attn_q_a_norm", q_rank, facts.norm, epsilon) if q_rank else None,
        q=tensors.linear(f"{blk}.attn_q_b" if q_rank else f"{blk}.attn_q", q_rank or embedding, heads * key_length),
        latent=latent_part,
        latent_norm=tensors.norm(f"{blk}.attn_kv_a_norm", latent, facts.norm, epsilon),
        k_rope=k_rope,
        heads_of=heads_of,
        output=tensors.linear(f"{blk}.attn_output", heads * value_length, embedding),
        heads=heads,
        key_length=key_length,
        value_length=value_length,
        scoring=Scoring(scale=facts.attention_scale(config)),
        rope=rotations.full,
        temperature=_temperature(facts, config),
    )


def _lengths(config: ModelConfig) -> tuple[bool, int, int]:
    """(whether keys and values have matrices apart, the length of a head's key, that of its value).

    Where they have, the keys that usually tell the lengths tell those of what is cached.
    """
    key, value = (
        config.keys.integer(f"attention.{name}_length_mla", 0, MAX_HEAD_LENGTH, 0) for name in ("key", "value")
    )
    return (True, key, value) if key and value else (False, config.key_length, config.value_length)


def _q_rank(facts: Architecture, config: ModelConfig) -> int:
    """The length of the vector that queries are made of; 0: they are made of the row itself."""
    if facts.latent is None or facts.latent.plain_queries(config):
        return 0
    return config.keys.integer("attention.q_lora_rank", 0, MAX_LENGTH, default=0)


def _temperature(facts: Architecture, config: ModelConfig) -> Temperature | None:
    if not facts.temperature:
        return None
    scale = config.keys.number("attention.temperature_scale")
    return Temperature(scale, config.keys.integer("attention.temperature_length", 1, MAX_LENGTH)) if scale else None
