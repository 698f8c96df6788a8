"""Attention: queries meet the keys and values of all rows so far."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.architectures import Architecture
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import ModelError
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.parts.base import Linear, Tensors
from tinyllm_engine.rope import Rope


@dataclass(frozen=True, eq=False)
class Attention:
    """softmax(scale * q k^T) v, with groups of heads / kv_heads queries that share one key and value.

    q, k, v: [embedding_length -> heads of their lengths]; output: [heads * value_length -> embedding_length]
    rope: how q and k rotate; None where they do not
    """

    q: Linear
    k: Linear
    v: Linear
    output: Linear
    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    scale: float
    rope: Rope | None

    @property
    def cached(self) -> LayerShape:
        return LayerShape(self.kv_heads, self.key_length, self.value_length)


def read_attention(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rope: Rope | None
) -> Attention:
    """The attention of a block that has heads. ModelError for shapes that do not belong together."""
    blk, embedding = f"blk.{block}", config.embedding_length
    heads, kv_heads = config.head_count[block], config.head_count_kv[block]
    d_k, d_v = config.key_length, config.value_length
    if not kv_heads or not heads or heads % kv_heads:
        raise ModelError(
            f"{tensors.path}: attention.head_count_kv: expected a divisor of {heads} heads, found {kv_heads}"
        )
    sizes = heads * d_k, kv_heads * d_k, kv_heads * d_v
    if f"{blk}.attn_qkv.weight" in tensors:
        q, k, v = tensors.stacked(f"{blk}.attn_qkv", embedding, sizes)
    else:
        q, k, v = (
            tensors.linear(f"{blk}.attn_{name}", embedding, size) for name, size in zip("qkv", sizes, strict=True)
        )
    return Attention(
        q=q,
        k=k,
        v=v,
        output=tensors.linear(f"{blk}.attn_output", heads * d_v, embedding),
        heads=heads,
        kv_heads=kv_heads,
        key_length=d_k,
        value_length=d_v,
        scale=d_k**-0.5,
        rope=rope,
    )
