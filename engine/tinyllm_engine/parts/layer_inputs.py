"""What each layer reads of a token by itself: a slice of a second embedding, mixed with a projection of the first."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.facts import Architecture
from tinyllm_engine.parts.base import Linear, Norm, Tensors
from tinyllm_engine.tensor import TensorView


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """(scale * table[token] + norm(projection(x))) / sqrt(2), x being the embedding of the token.

    table: [blocks * length, vocabulary]; projection: [embedding_length -> blocks * length]
    norm: of the part of each block, `length` elements
    """

    table: TensorView
    scale: float
    projection: Linear
    norm: Norm
    length: int
    blocks: int


@dataclass(frozen=True, eq=False)
class LayerInput:
    """x += norm(projection(gelu(gate(x)) * input)), at the end of a block, with the block's slice of LayerInputs."""

    gate: Linear
    projection: Linear
    norm: Norm


def read_layer_inputs(tensors: Tensors, facts: Architecture, config: ModelConfig) -> LayerInputs | None:
    """None for a family whose blocks read nothing. ModelError for what is missing or of another shape."""
    length = facts.layer_inputs(config)
    if not length:
        return None
    table = tensors.view("per_layer_token_embd.weight")
    size = length * config.block_count
    if table.dims != (size, config.vocab_size):
        raise tensors.wrong_shape(table, [size, config.vocab_size])
    projection = tensors.linear("per_layer_model_proj", config.embedding_length, size)
    norm = tensors.norm("per_layer_proj_norm", length, facts.norm, config.epsilon(facts.norm))
    return LayerInputs(
        table, length**0.5, projection.scaled(config.embedding_length**-0.5), norm, length, config.block_count
    )


def read_layer_input(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> LayerInput | None:
    """None for a family whose blocks read nothing. ModelError for what is missing or of another shape."""
    length, embedding = facts.layer_inputs(config), config.embedding_length
    if not length:
        return None
    return LayerInput(
        gate=tensors.linear(f"blk.{block}.inp_gate", embedding, length),
        projection=tensors.linear(f"blk.{block}.proj", length, embedding),
        norm=tensors.norm(f"blk.{block}.post_norm", embedding, facts.norm, config.epsilon(facts.norm)),
    )
