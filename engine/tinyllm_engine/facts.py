"""The facts of an architecture, as data, and the small rules among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tinyllm_engine.config import MAX_BLOCKS, MAX_LENGTH, ModelConfig
from tinyllm_engine.latent import Latent
from tinyllm_engine.mixture import Mixture

Number = Callable[[ModelConfig], float]


@dataclass(frozen=True)
class Norms:
    """The names of a block's norms in the file; a place without a name has none.

    before, after: of what mixes rows, its input and its result; ffn_before, ffn_after: of the feed-forward network
    """

    before: str = "attn_norm"
    after: str = ""
    ffn_before: str = "ffn_norm"
    ffn_after: str = ""


SANDWICH = Norms(after="post_attention_norm", ffn_after="post_ffw_norm")
AFTER = Norms(before="", after="post_attention_norm", ffn_before="", ffn_after="post_ffw_norm")
SHARED = Norms(ffn_before="")  # in a parallel block: the network reads what attention reads
# attention reads through a norm of its own where there is one (Falcon 40B)
FALCON = Norms(before="attn_norm_2|attn_norm", ffn_before="attn_norm")


@dataclass(frozen=True)
class Window:
    """Sliding windows: the rows of some layers see only so many keys, themselves and those before.

    period: of so many layers the last sees everything; the key attention.sliding_window_pattern may give another
        period, or a flag for each layer. None: it has to
    size: where the file has no attention.sliding_window; 0: then no layer has a window
    blocks: only models of so many blocks have windows
    rope_base: of rotations in layers with a window: the file's rope.freq_base_swa, else this number; None: as in the
        others, and the key counts only with `rope_key`
    rope_scaling: what there is of the scaling of positions in them: "full", "magnitude" alone, or "none"
    rope_factors: whether the factors of rotations count in them
    own_heads: whether heads have other lengths in them, by the keys attention.key_length_swa and value_length_swa, of
        which rope.dimension_count_swa elements rotate
    """

    period: int | None
    size: int = 0
    blocks: int | None = None
    rope_base: float | None = None
    rope_key: bool = True
    rope_scaling: Literal["full", "magnitude", "none"] = "full"
    rope_factors: bool = True
    own_heads: bool = False


def one(config: ModelConfig) -> float:
    return 1.0


def zero(config: ModelConfig) -> float:
    return 0.0


def key_length_root(config: ModelConfig) -> float:
    """1 / sqrt(d), as in arXiv:1706.03762."""
    return config.key_length**-0.5


def always(config: ModelConfig, block: int, windowed: bool) -> bool:
    return True


def everywhere(config: ModelConfig, block: int) -> bool:
    return True


def nothing(config: ModelConfig) -> int:
    return 0


def dense(block: int) -> float:
    return 0.0


@dataclass(frozen=True)
class Architecture:
    """The facts of one `general.architecture`. Those of a plain llama are the default.

    rope: which pairs rotate: "norm" (2i, 2i + 1), "neox" (i, i + n_rot / 2), or "none"
    rope_factors: tensors that divide its frequencies: "freqs" (rope_freqs), "long_short" (rope_factors_long or _short,
        by the length of the context), "by_scaling" (the ones or the others, by rope.scaling.type), "" (never looked at)
    rope_sections: "mrope" or "imrope": with rope.dimension_sections pairs are "neox", those of a fourth section rest
    rope_alpha: whether rope.scaling.alpha raises the base; rope_whole_head: heads rotate whole, whatever the keys say
    yarn_keys: whether rope.scaling.yarn_* count
    rotates: which layers rotate queries and keys at all: (config, block, whether it has a window)
    norm: "rms" or "layer"; norm_weights: whether the file has weights for it
    parallel: attention and feed-forward network read the same x: "never", "always", "without_ffn_norm", or
        "use_parallel_residual", which is a key
    qk_norm: queries and keys are normed: each "head", the whole "row", or "" for not at all
    v_norm: values are normed, without weights, each head
    shared_keys: of the last so many blocks, which have no keys and values of their own
    keys_as_values: values are keys before they are normed, where the file has no matrix for them
    layer_inputs: length of what each layer reads by itself of a token; 0: nothing
    streams: there are several residual streams; sparsity: of a block's network (see FeedForward)
    output_scales: blocks may have a scale of what they pass on, layer_output_scale
    sub_norms: what the last matrices of attention and network read is normed too
    activation: of the feed-forward network: "silu", "gelu" (the tanh form), "relu2", "xielu"
    gate: "split" (ffn_gate), "fused" (the upper rows of ffn_up), "none"; ffn_half: half as wide as the key says
    act_scales: what the activation gives is divided by ffn.act.scales, where the file has them
    ffn_scales: whether weight scales (`.scale`) of the network count; those of attention always do
    attn_softcap, final_softcap: their values where the key is absent, 0 for none; None: whatever keys there are, none
    alibi: exponent of the steepest slope (arXiv:2108.12409), 0: none
    output_norm: the name of the last norm; positions: learned ones, position_embd; embedding_norm: token_embd_norm
    clamp_qkv: by attention.clamp_kqv; temperature: queries grow with their position, by attention.temperature_scale
    unused: tensors that its files may have and that change nothing
    sinks: attn_sinks, one more score in every softmax
    attention_gate: what attention's last matrix multiplies is gated: by what lies "behind" each query, by a "matrix" of
        its own, attn_gate, or "" for not at all
    recurrent: what remembers: "short_convolution", "mamba", "mamba2", "plamo2", "delta_net", or "" for nothing;
        recurs: in which blocks; beside_attention: together with attention, as opposed to in its place;
        recurrent_scales: whether weight scales of it count
    tiled_keys: head h of a delta net has key h % key heads, as opposed to one shared with its neighbours
    feed_forward: whether there are feed-forward networks, where the file has a length for them
    latent: attention is latent; None: it is not
    experts: what there is in place of the network in layers with experts; None: no layer has any, whatever the keys say
    """

    name: str
    rope: Literal["norm", "neox", "none"] = "norm"
    rope_factors: Literal["", "freqs", "long_short", "by_scaling"] = ""
    rope_sections: Literal["", "mrope", "imrope"] = ""
    rope_alpha: bool = False
    rope_whole_head: bool = False
    yarn_keys: bool = False
    rotates: Callable[[ModelConfig, int, bool], bool] = always
    norm: Literal["rms", "layer"] = "rms"
    norm_weights: bool = True
    norms: Norms = Norms()
    parallel: Literal["never", "always", "without_ffn_norm", "use_parallel_residual"] = "never"
    qk_norm: Literal["", "head", "row"] = ""
    qk_norm_optional: bool = False
    qk_norm_after_rope: bool = False
    v_norm: bool = False
    shared_keys: Callable[[ModelConfig], int] = nothing
    keys_as_values: bool = False
    layer_inputs: Callable[[ModelConfig], int] = nothing
    streams: bool = False
    sparsity: Callable[[int], float] = dense
    output_scales: bool = False
    sub_norms: bool = False
    activation: Literal["silu", "gelu", "relu2", "xielu"] = "silu"
    gate: Literal["split", "fused", "none"] = "split"
    ffn_half: bool = False
    act_scales: bool = False
    ffn_scales: bool = False
    attention_scale: Number = key_length_root
    embedding_scale: Number = one
    residual_scale: Number = one
    logit_scale: Number = one
    attn_softcap: float | None = None
    final_softcap: float | None = None
    window: Window | None = None
    alibi: Number = zero
    output_norm: str = "output_norm"
    positions: bool = False
    embedding_norm: bool = False
    clamp_qkv: bool = False
    temperature: bool = False
    unused: tuple[str, ...] = ()
    sinks: bool = False
    attention_gate: Literal["", "behind", "matrix"] = ""
    recurrent: Literal["", "short_convolution", "mamba", "mamba2", "plamo2", "delta_net"] = ""
    recurs: Callable[[ModelConfig, int], bool] = everywhere
    beside_attention: bool = False
    recurrent_scales: bool = True
    tiled_keys: bool = False
    feed_forward: bool = True
    latent: Latent | None = None
    experts: Mixture | None = None


def constant(value: float) -> Number:
    return lambda config: value


def one_over(number: Number) -> Number:
    return lambda config: 1.0 / number(config)


def key_scale(name: str, default: float = 1.0) -> Number:
    """What the key says; 0 there means off, which is 1."""

    def scale(config: ModelConfig) -> float:
        value = config.keys.number(name)
        return default if value is None else value or 1.0

    return scale


def attention_scale_key(config: ModelConfig) -> float:
    return config.keys.scale("attention.scale") or key_length_root(config)


def alibi_key(config: ModelConfig) -> float:
    return config.keys.number("attention.max_alibi_bias") or 0.0


def windowed_only(config: ModelConfig, block: int, windowed: bool) -> bool:
    return windowed


def all_but_every_fourth(config: ModelConfig, block: int, windowed: bool) -> bool:
    return (block + 1) % 4 != 0


def if_finetuned(config: ModelConfig, block: int, windowed: bool) -> bool:
    """Granite's switch for rotation, a key that elsewhere means something else."""
    return config.keys.flag("rope.scaling.finetuned", True)


def rope_pattern_key(config: ModelConfig, block: int, windowed: bool) -> bool:
    pattern = config.keys.integers("attention.rope_pattern", 1)
    return pattern is None or block >= len(pattern) or bool(pattern[block])


def embedding_root(config: ModelConfig) -> float:
    return config.embedding_length**0.5


def without_heads(config: ModelConfig, block: int) -> bool:
    """Blocks without heads of keys and values."""
    return not config.head_count_kv[block]


def without_heads_and_network(config: ModelConfig, block: int) -> bool:
    return not config.head_count_kv[block] and not config.feed_forward_length[block]


def but_every_fourth(config: ModelConfig, block: int) -> bool:
    """As the file says: flags for the blocks, or that every so many one has attention, 4 without a key."""
    name = "attention.recurrent_layers"
    key, value = config.keys.get(name)
    flags = config.keys.integers(name, 1)
    if flags is None and value is not None:
        return bool(config.keys.check_integer(key, int(value) if type(value) is bool else value, 0, 1))
    if flags is None:
        return (block + 1) % config.keys.integer("full_attention_interval", 1, MAX_BLOCKS, default=4) != 0
    if len(flags) < config.block_count:
        config.keys.fail(key, f"{config.block_count} values, one per block", value)
    return bool(flags[block])


def gemma_attention(largest: int) -> Number:
    """1 / sqrt(d), but in the model of so many blocks by the share of a head in the width."""

    def scale(config: ModelConfig) -> float:
        by_width = config.block_count == largest
        return (config.embedding_length // config.head_count[0] if by_width else config.key_length) ** -0.5

    return scale


def minicpm_residual(config: ModelConfig) -> float:
    return key_scale("residual_scale", 1.4 / config.block_count**0.5)(config)


def minicpm_logits(config: ModelConfig) -> float:
    return 1.0 / key_scale("logit_scale", 256 / config.embedding_length)(config)


def jais_attention(config: ModelConfig) -> float:
    """1 / d, as mu-parametrization has it (arXiv:2203.03466)."""
    return 1.0 / config.key_length


def baichuan_alibi(config: ModelConfig) -> float:
    """The 13B model has biases instead of rotation."""
    return 8.0 if config.block_count == 40 else 0.0


def baichuan_rotates(config: ModelConfig, block: int, windowed: bool) -> bool:
    return not baichuan_alibi(config)


def exaone4_rotates(config: ModelConfig, block: int, windowed: bool) -> bool:
    """All layers, but where some have windows only those."""
    return windowed or config.block_count != 64


def shared_keys_key(config: ModelConfig) -> int:
    return config.keys.integer("attention.shared_kv_layers", 0, config.block_count, default=0)


def layer_inputs_key(config: ModelConfig) -> int:
    return config.keys.integer("embedding_length_per_layer_input", 0, MAX_LENGTH // config.block_count, default=0)


def gemma3n_shared_keys(config: ModelConfig) -> int:
    """All blocks behind the twentieth."""
    return max(0, config.block_count - 20)


def gemma3n_layer_inputs(config: ModelConfig) -> int:
    return 256


def gemma3n_sparsity(block: int) -> float:
    """In the first ten blocks about one value in twenty counts: those beyond the 95th percentile of a normal one."""
    return 1.6448533535003662 if block < 10 else 0.0
