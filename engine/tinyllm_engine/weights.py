"""The weights of a model by role: layers made of parts, every shape checked while they are read.

A layer lets rows see each other (its mixers: attention, or what stands in its place) and then works on each row alone
(its feed-forward network). Either may be missing. A new kind of part is

1. a module in `parts/`: a frozen dataclass of its matrices and settled numbers, and a function that reads it;
2. a fact in `architectures.py` that says which layers have it, and its place in `_mixers` or `_feed_forward` below;
3. a function in `forward.py` that records what it computes, and a case in `mix` or `feed_forward` there; the same in
   `reference.py`. A mixer leaves out its last product: that is by `output`, which every mixer has;
4. where it keeps rows in the cache: a property `cached` with their shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.architectures import Architecture
from tinyllm_engine.config import ModelConfig
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.parts.attention import Attention, read_attention
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.parts.feed_forward import FeedForward, read_feed_forward
from tinyllm_engine.rope import Rope
from tinyllm_engine.tensor import TensorView

Mixer = Attention
FeedForwardPart = FeedForward
NOTHING_CACHED = LayerShape(0, 0, 0)


@dataclass(frozen=True, eq=False)
class Layer:
    """One block (`blk.N`): x += mixers(attn_norm(x)); x += feed_forward(ffn_norm(x)).

    mixers: what they come to is added up; none, and no norm for it, in a block that only has a feed-forward network
    """

    attn_norm: Norm | None
    mixers: tuple[Mixer, ...]
    ffn_norm: Norm | None
    feed_forward: FeedForwardPart | None

    @property
    def cached(self) -> LayerShape:
        """The rows of K and V that the block keeps of a token."""
        return next((mixer.cached for mixer in self.mixers), NOTHING_CACHED)


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything the forward pass multiplies with, and how rows rotate (`ropes`: all that some layer has)."""

    token_embd: TensorView
    layers: list[Layer]
    output_norm: Norm
    output: Linear
    ropes: tuple[Rope, ...]


def read_weights(tensors: Tensors, facts: Architecture, config: ModelConfig) -> Weights:
    """The weights by role. ModelError names tensor, expected and found shape."""
    embedding = config.embedding_length
    token_embd = tensors.view("token_embd.weight")
    if len(token_embd.dims) != 2 or token_embd.dims[0] != embedding:
        raise tensors.wrong_shape(token_embd, [embedding, "vocabulary"])
    rope = _rope(tensors, facts, config)
    layers = [_layer(tensors, facts, config, block, rope) for block in range(config.block_count)]
    if "output.weight" in tensors:
        output = tensors.linear("output", embedding, token_embd.rows)
    else:
        output = Linear(token_embd)  # tied
    return Weights(
        token_embd=token_embd,
        layers=layers,
        output_norm=tensors.norm("output_norm", embedding, _epsilon(config)),
        output=output,
        ropes=(rope,),
    )


def _epsilon(config: ModelConfig) -> float:
    return config.norm_rms_epsilon or 1e-5


def _rope(tensors: Tensors, facts: Architecture, config: ModelConfig) -> Rope:
    factors = tensors.view("rope_freqs.weight").dequantize().reshape(-1) if "rope_freqs.weight" in tensors else None
    return Rope(config.rope, facts.rope_interleaved, factors)


def _layer(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rope: Rope | None) -> Layer:
    mixers = _mixers(tensors, facts, config, block, rope)
    feed_forward = _feed_forward(tensors, facts, config, block)

    def norm(name: str) -> Norm:
        return tensors.norm(f"blk.{block}.{name}", config.embedding_length, _epsilon(config))

    return Layer(
        attn_norm=norm("attn_norm") if mixers else None,
        mixers=mixers,
        ffn_norm=norm("ffn_norm") if feed_forward is not None else None,
        feed_forward=feed_forward,
    )


def _mixers(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rope: Rope | None
) -> tuple[Mixer, ...]:
    if not config.head_count[block] and not config.head_count_kv[block]:
        return ()
    return (read_attention(tensors, facts, config, block, rope),)


def _feed_forward(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> FeedForwardPart | None:
    if not config.feed_forward_length[block]:
        return None
    return read_feed_forward(tensors, facts, config, block)
