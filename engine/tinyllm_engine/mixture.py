"""The facts of a family's mixture of experts, as data, and the small rules among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tinyllm_engine.agreed import SIGMOID, SOFTMAX
from tinyllm_engine.config import MAX_BLOCKS, MAX_LENGTH, ModelConfig

Width = Callable[[ModelConfig, int], int]  # (config, block)


def everywhere(config: ModelConfig, block: int) -> bool:
    return True


def after_leading(config: ModelConfig, block: int) -> bool:
    """The first layers are dense, as many as leading_dense_block_count says."""
    return block >= config.keys.integer("leading_dense_block_count", 0, MAX_BLOCKS, default=0)


def interleaved(config: ModelConfig, block: int) -> bool:
    """Of so many layers the last; 0: none."""
    step = config.keys.integer("interleave_moe_layer_step", 0, MAX_BLOCKS)
    return step > 0 and (block + 1) % step == 0


def after_leading_interleaved(config: ModelConfig, block: int) -> bool:
    return after_leading(config, block) and interleaved(config, block)


def none(config: ModelConfig, block: int) -> int:
    return 0


def feed_forward_width(config: ModelConfig, block: int) -> int:
    return config.feed_forward_length[block]


def expert_width(config: ModelConfig, block: int) -> int:
    """The key expert_feed_forward_length: one number, or one for each block."""
    return config.keys.per_block("expert_feed_forward_length", config.block_count, MAX_LENGTH)[block]


def expert_width_or_share(config: ModelConfig, block: int) -> int:
    """Where the key is absent or 0, the chosen experts together are as wide as a dense network."""
    return _optional_width(config, block) or config.feed_forward_length[block] // config.expert_used_count


def shared_key(config: ModelConfig, block: int) -> int:
    """The key expert_shared_feed_forward_length; 0: there is no shared expert."""
    return config.keys.integer("expert_shared_feed_forward_length", 0, MAX_LENGTH, default=0)


def shared_key_or_whole(config: ModelConfig, block: int) -> int:
    return shared_key(config, block) or config.feed_forward_length[block]


def shared_key_or_expert(config: ModelConfig, block: int) -> int:
    return shared_key(config, block) or expert_width(config, block)


def shared_experts(config: ModelConfig, block: int) -> int:
    """As wide as so many experts: expert_shared_count."""
    return _shared_count(config) * expert_width(config, block)


def shared_keys(config: ModelConfig, block: int) -> int:
    """Several as wide as the key says."""
    return _shared_count(config) * shared_key_or_expert(config, block)


def _shared_count(config: ModelConfig) -> int:
    return config.keys.integer("expert_shared_count", 0, MAX_LENGTH)


def _optional_width(config: ModelConfig, block: int) -> int:
    absent = config.keys.get("expert_feed_forward_length")[1] is None
    return 0 if absent else expert_width(config, block)


@dataclass(frozen=True)
class Mixture:
    """The facts of a family whose layers have experts. Those of Mixtral are the default.

    layers: which layers have experts, the others are dense
    width: of an expert
    by_router: layers have experts where the file has a router for them, whatever `layers` says
    required: whether there are always experts; else a file without any is dense throughout
    gating: what makes weights of scores (kernels.experts); gating_key: unless the key expert_gating_func says so
    ranking: what makes of scores what decides, where that is something else; 0: the same
    normalized: whether the weights of a row add up to 1; None: the key expert_weights_norm says so
    scale_key: whether expert_weights_scale counts
    bias: whether what decides is biased (exp_probs_b, if the file has it)
    scales: whether the experts' weight scales (`.scale`) count
    fused: whether gate and up may lie in one tensor
    biases: whether the router and the experts have biases
    activation: of experts; "": as in dense layers
    weighted_inputs: what experts read is weighed, not what they give
    narrowed: experts may work in a space of moe_latent_size
    beside_network: beside a dense network, each with norms of its own; the router then reads a norm of its own too
    shared: the width of what all rows go through beside their experts, 0 for nothing
    shared_gated: whether the row decides how much that counts
    """

    layers: Callable[[ModelConfig, int], bool] = everywhere
    width: Width = feed_forward_width
    by_router: bool = False
    required: bool = True
    gating: int = SOFTMAX
    gating_key: bool = False
    ranking: int = 0
    normalized: bool | None = True
    scale_key: bool = False
    bias: bool = False
    scales: bool = False
    fused: bool = False
    biases: bool = False
    activation: Literal["", "limited_silu"] = ""
    weighted_inputs: bool = False
    narrowed: bool = False
    beside_network: bool = False
    shared: Width = none
    shared_gated: bool = False


MIXTRAL = Mixture(required=False, scales=True)
GRANITE_MOE = Mixture(required=False, shared=shared_key)
DEEPSEEK = Mixture(layers=after_leading, width=expert_width, normalized=False, scale_key=True, shared=shared_experts)
JAMBA = Mixture(by_router=True, normalized=False)
GEMMA4 = Mixture(by_router=True, required=False, width=expert_width, scales=True, fused=True, beside_network=True)
LFM2_MOE = Mixture(layers=after_leading, width=expert_width, gating_key=True, bias=True)
NEMOTRON_MOE = Mixture(
    by_router=True,
    width=expert_width_or_share,
    gating=SIGMOID,
    normalized=None,
    scale_key=True,
    bias=True,
    scales=True,
    narrowed=True,
    shared=shared_key,
)
QWEN3_NEXT = Mixture(
    width=expert_width_or_share, scales=True, fused=True, shared=shared_key_or_whole, shared_gated=True
)
