"""The weights of a model by role: layers made of parts, every shape checked while they are read.

A layer lets rows see each other (its mixers: attention, or what stands in its place) and then works on each row alone
(its feed-forward network). Either may be missing. A new kind of part is

1. a module in `parts/`: a frozen dataclass of its matrices and settled numbers, and a function that reads it;
2. a fact in `architectures.py` that says which layers have it, and its place in `_mixers` or `_feed_forward` below;
3. a function in `forward.py` that records what it computes, and a case in `mix` or `feed_forward` there; the same in
   `reference.py`. A mixer leaves out its last product: that is by `output`, which every mixer has;
4. where it keeps rows in the cache: a property `cached` with their shape; where it remembers a sequence as a whole: a
   property `state_size`. A layer has one part at most of each sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.facts import Architecture
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.parts.attention import Attention, Projection, read_attention, read_projection
from tinyllm_engine.parts.base import Linear, LowRank, Norm, Tensors
from tinyllm_engine.parts.delta_net import GatedDeltaNet, read_delta_net
from tinyllm_engine.parts.experts import Experts, has_experts, read_experts
from tinyllm_engine.parts.feed_forward import FeedForward, read_feed_forward
from tinyllm_engine.parts.latent_attention import LatentAttention, read_latent_attention
from tinyllm_engine.parts.layer_inputs import LayerInput, LayerInputs, read_layer_input, read_layer_inputs
from tinyllm_engine.parts.mamba import Mamba, read_mamba
from tinyllm_engine.parts.mamba2 import Mamba2, read_mamba2
from tinyllm_engine.parts.plamo2 import Plamo2, read_plamo2
from tinyllm_engine.parts.rotation import Rotations, read_rotations
from tinyllm_engine.parts.short_convolution import ShortConvolution, read_short_convolution
from tinyllm_engine.parts.streams import LayerStreams, Streams, read_layer_streams, read_streams
from tinyllm_engine.parts.two_paths import TwoPaths, read_two_paths
from tinyllm_engine.rope import Rope
from tinyllm_engine.tensor import TensorView

Recurrent = ShortConvolution | Mamba | Mamba2 | Plamo2 | GatedDeltaNet
Mixer = Attention | LatentAttention | Projection | Recurrent
FeedForwardPart = FeedForward | Experts | TwoPaths
NOTHING_CACHED = LayerShape(0, 0, 0)
READ_RECURRENT: dict[str, Callable[[Tensors, Architecture, ModelConfig, int], Recurrent]] = {
    "short_convolution": read_short_convolution,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "plamo2": read_plamo2,
    "delta_net": read_delta_net,
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One block (`blk.N`): x += attn_post_norm(mixers(attn_norm(x))); x += ffn_post_norm(feed_forward(ffn_norm(x))).

    Each norm may be missing. A scale of what is added to x is in the last matrix, by `scaled`, which every part has.

    mixers: what they come to is added up; none in a block that only has a feed-forward network
    parallel: the network reads the same x as the mixers, by its own norm or, without one, what they read
    input: what the block reads of a token by itself, at its end; None: nothing
    output_scale: what x is multiplied with behind that
    streams: how it reads and leaves several residual streams
    """

    attn_norm: Norm | None
    mixers: tuple[Mixer, ...]
    attn_post_norm: Norm | None
    ffn_norm: Norm | None
    feed_forward: FeedForwardPart | None
    ffn_post_norm: Norm | None
    parallel: bool = False
    input: LayerInput | None = None
    output_scale: float = 1.0
    streams: LayerStreams | None = None

    @property
    def cached(self) -> LayerShape:
        """The rows of K and V that the block keeps of a token; others may read them, too (see `cached` of Weights)."""
        return next(
            (mixer.cached for mixer in self.mixers if isinstance(mixer, Attention | LatentAttention)), NOTHING_CACHED
        )

    @property
    def state_size(self) -> int:
        """float32 values that the block remembers of a sequence."""
        return sum(
            mixer.state_size for mixer in self.mixers if not isinstance(mixer, Attention | LatentAttention | Projection)
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """Everything the forward pass multiplies with.

    embedding_adapters: what is added to a token's embedding, whose a has a column for each token
    embedding_scale: of a token's embedding; position_embd: what is added to it, [embedding_length, positions];
        embedding_norm: of the sum
    final_softcap: logits become cap * tanh(logit / cap); 0: they stay
    ropes: all the ways in which some layer's heads rotate
    layer_inputs: what the `input` of layers reads; None: they have none
    streams: the residual streams, where there are several
    """

    token_embd: TensorView
    embedding_adapters: tuple[LowRank, ...]
    embedding_scale: float
    position_embd: TensorView | None
    embedding_norm: Norm | None
    layers: list[Layer]
    output_norm: Norm
    output: Linear
    final_softcap: float
    ropes: tuple[Rope, ...]
    layer_inputs: LayerInputs | None = None
    streams: Streams | None = None

    @property
    def cached(self) -> list[LayerShape]:
        """What each block keeps of a token. It has a window only if all that read it have the same."""
        shapes = [layer.cached for layer in self.layers]
        for layer in self.layers:
            for mixer in layer.mixers:
                if isinstance(mixer, Attention) and mixer.source is not None:
                    shape = shapes[mixer.source]
                    if shape.window != mixer.scoring.window:
                        shapes[mixer.source] = replace(shape, window=0)
        return shapes


def check_sizes(config: ModelConfig, path: str) -> None:
    """Refuses shapes the kernels are not made for: rows are read eight numbers at a time."""
    for name, size in (
        ("attention.key_length", config.key_length),
        ("attention.value_length", config.value_length),
        ("embedding_length", config.embedding_length),
        *(("feed_forward_length", size) for size in set(config.feed_forward_length)),
    ):
        if size % 8:
            raise UnsupportedModelError(f"{path}: {name}: expected a multiple of 8, found {size}")


def matrices(part: Any) -> Iterator[TensorView]:
    """All that the part multiplies with, or the parts in it."""
    if isinstance(part, TensorView):
        yield part
    elif isinstance(part, list | tuple):
        for item in part:
            yield from matrices(item)
    elif is_dataclass(part):
        yield from matrices([getattr(part, field.name) for field in fields(part)])


def read_weights(tensors: Tensors, facts: Architecture, config: ModelConfig) -> Weights:
    """The weights by role. ModelError names tensor, expected and found shape."""
    embedding = config.embedding_length
    if not facts.recurrent and not any(config.head_count):
        config.keys.refuse("attention.head_count", "1 or more, in some block at least", 0)
    # some files have the matrix once, under either name
    only_output = "output.weight" in tensors and "token_embd.weight" not in tensors
    token_embd = tensors.view("output.weight" if only_output else "token_embd.weight")
    if len(token_embd.dims) != 2 or token_embd.dims[0] != embedding:
        raise tensors.wrong_shape(token_embd, [embedding, "vocabulary"])
    rotations = read_rotations(tensors, facts, config)
    softcap = config.keys.number("final_logit_softcapping") if facts.final_softcap is not None else 0.0
    return Weights(
        token_embd=token_embd,
        embedding_adapters=tensors.low_rank("token_embd.weight"),
        embedding_scale=facts.embedding_scale(config),
        position_embd=_positions(tensors, facts, config),
        embedding_norm=_norm(tensors, facts, config, "token_embd_norm") if facts.embedding_norm else None,
        layers=[_layer(tensors, facts, config, block, rotations) for block in range(config.block_count)],
        output_norm=_norm(tensors, facts, config, facts.output_norm),
        output=_output(tensors, token_embd).scaled(facts.logit_scale(config)),
        final_softcap=facts.final_softcap or 0.0 if softcap is None else softcap,
        ropes=rotations.all if rotations is not None else (),
        layer_inputs=read_layer_inputs(tensors, facts, config),
        streams=read_streams(tensors, facts, config),
    )


def _norm(tensors: Tensors, facts: Architecture, config: ModelConfig, name: str) -> Norm:
    """A norm of whole rows."""
    length, epsilon = config.embedding_length, config.epsilon(facts.norm)
    return tensors.norm(name, length, facts.norm, epsilon, facts.norm_weights)


def _output(tensors: Tensors, token_embd: TensorView) -> Linear:
    """A file without a matrix for it uses the embedding."""
    embedding, vocabulary = token_embd.dims
    return tensors.linear("output", embedding, vocabulary, tied=token_embd)


def _positions(tensors: Tensors, facts: Architecture, config: ModelConfig) -> TensorView | None:
    """Learned positions, where the file has them."""
    if not facts.positions or "position_embd.weight" not in tensors:
        return None
    table = tensors.view("position_embd.weight")
    if table.dims != (config.embedding_length, config.context_length):
        raise tensors.wrong_shape(table, [config.embedding_length, config.context_length])
    return table


def _layer(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rotations: Rotations | None
) -> Layer:
    mixers = _mixers(tensors, facts, config, block, rotations)
    feed_forward = _feed_forward(tensors, facts, config, block)
    names = facts.norms

    def norm(name: str, wanted: bool) -> Norm | None:
        """The first that the file has of the names, which stand between bars."""
        if not wanted or not name:
            return None
        *others, last = (f"blk.{block}.{one}" for one in name.split("|"))
        found = next((one for one in others if f"{one}.weight" in tensors), last)
        return _norm(tensors, facts, config, found)

    parallel = _is_parallel(tensors, facts, config, block)
    shared = parallel and facts.parallel == "without_ffn_norm"
    return Layer(
        attn_norm=norm(names.before, bool(mixers)),
        mixers=mixers,
        attn_post_norm=norm(names.after, bool(mixers)),
        ffn_norm=norm("" if shared else names.ffn_before, feed_forward is not None),
        feed_forward=feed_forward,
        ffn_post_norm=norm(names.ffn_after, feed_forward is not None),
        parallel=parallel,
        input=read_layer_input(tensors, facts, config, block),
        output_scale=_output_scale(tensors, facts, block),
        streams=read_layer_streams(tensors, facts, config, block),
    )


def _output_scale(tensors: Tensors, facts: Architecture, block: int) -> float:
    name = f"blk.{block}.layer_output_scale.weight"
    return float(tensors.vector(name, 1)[0]) if facts.output_scales and name in tensors else 1.0


def _is_parallel(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> bool:
    match facts.parallel:
        case "without_ffn_norm":
            return f"blk.{block}.ffn_norm.weight" not in tensors
        case "use_parallel_residual":
            return config.keys.flag("use_parallel_residual", True)
        case kind:
            return kind == "always"


def _mixers(
    tensors: Tensors, facts: Architecture, config: ModelConfig, block: int, rotations: Rotations | None
) -> tuple[Mixer, ...]:
    """Attention, what stands in its place, or beside it; nothing where a block has no heads."""
    mixers: list[Mixer] = []
    if facts.recurrent:
        recurs = facts.recurs(config, block)
        if config.head_count_kv[block] and (facts.beside_attention or not recurs):
            mixers.append(read_attention(tensors, facts, config, block, rotations))
        if recurs:
            mixers.append(READ_RECURRENT[facts.recurrent](tensors, facts, config, block))
    elif config.head_count[block] and not config.head_count_kv[block]:
        mixers.append(read_projection(tensors, config, block))
    elif config.head_count[block]:
        read = read_attention if facts.latent is None else read_latent_attention
        mixers.append(read(tensors, facts, config, block, rotations))
    return tuple(mixer.scaled(facts.residual_scale(config)) for mixer in mixers)


def _feed_forward(tensors: Tensors, facts: Architecture, config: ModelConfig, block: int) -> FeedForwardPart | None:
    part: FeedForwardPart
    if has_experts(tensors, facts, config, block):
        beside = facts.experts is not None and facts.experts.beside_network
        part = (read_two_paths if beside else read_experts)(tensors, facts, config, block)
    elif config.feed_forward_length[block] and facts.feed_forward:
        part = read_feed_forward(tensors, facts, config, block)
    else:
        return None
    return part.scaled(facts.residual_scale(config))
