"""Specifications of toy models that are written down by what they are, not tensor by tensor.

A model is an architecture, sizes, keys, and a line that names the tensors of a block: `attn_q+` is a matrix with a
bias, `attn_norm+` a norm with one, `ffn_up*2` a matrix of twice the rows; what stands behind a bar belongs to no block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

Spec = dict[str, list[Any]]

QKV = "attn_q attn_k attn_v"
SWIGLU = "ffn_gate ffn_up ffn_down"
LLAMA = f"attn_norm {QKV} attn_output ffn_norm {SWIGLU} | output_norm output"
NEOX = "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+ | output_norm+ output"


@dataclass(frozen=True)
class Toy:
    """head sizes, counts and widths as in the metadata; lists have one value for each block."""

    architecture: str
    tensors: str = LLAMA
    keys: dict[str, Any] = field(default_factory=dict)
    blocks: int = 3
    embedding: int = 64
    heads: int | list[int] = 4
    kv_heads: int | list[int] = 2
    key: int = 16
    value: int = 16
    width: int | list[int] = 96
    vocabulary: int = 64
    context: int = 256
    without: tuple[str, ...] = ()  # tensors left out, by whole name
    more: tuple[tuple[str, list[int]], ...] = ()  # more of them

    def but(self, **changes: Any) -> Toy:
        return replace(self, **changes)

    def spec(self) -> Spec:
        prefix = self.architecture
        keys: dict[str, Any] = {
            f"{prefix}.vocab_size": self.vocabulary,
            f"{prefix}.context_length": self.context,
            f"{prefix}.embedding_length": self.embedding,
            f"{prefix}.block_count": self.blocks,
            f"{prefix}.feed_forward_length": self.width,
            f"{prefix}.attention.head_count": self.heads,
            f"{prefix}.attention.head_count_kv": self.kv_heads,
            f"{prefix}.attention.key_length": self.key,
            f"{prefix}.attention.value_length": self.value,
            f"{prefix}.attention.layer_norm_epsilon": 1e-5,
            f"{prefix}.attention.layer_norm_rms_epsilon": 1e-6,
            f"{prefix}.rope.dimension_count": self.key,
        }
        for name, value in self.keys.items():
            keys[name if name.startswith(("xielu.", "general.")) else f"{prefix}.{name}"] = value
        kv: list[Any] = [["general.architecture", ["STRING"], prefix], ["tokenizer.ggml.model", ["STRING"], "test"]]
        kv += [[name, kind_of(value), value] for name, value in keys.items() if value is not None]
        tensors = [tensor for tensor in self._tensors() if tensor[0] not in self.without]
        return {"kv": kv, "tensors": [*tensors, *([name, shape, "F32"] for name, shape in self.more)]}

    def _tensors(self) -> list[list[Any]]:
        blocks, _, others = self.tensors.partition("|")
        tensors = self._named("token_embd", self._shape("token_embd", 0), False)
        for item in others.split():
            tensors += self._named(item.rstrip("+"), self._shape(item.rstrip("+"), 0), item.endswith("+"))
        for block in range(self.blocks):
            for item in blocks.split():
                name, _, times = item.rstrip("+").partition("*")
                role = name.partition("/")[0]
                if (shape := self._shape(name, block)) is None:
                    continue
                if times:
                    shape = [*shape[:-1], shape[-1] * int(times)]
                tensors += self._named(f"blk.{block}.{role}", shape, item.endswith("+"))
        return tensors

    def _named(self, name: str, shape: list[int], bias: bool) -> list[list[Any]]:
        weight = [name if name.endswith((".act.scales", ".scale")) else f"{name}.weight", shape, "F32"]
        bias_shape = shape if "norm" in name else shape[-1:]
        return [weight, [f"{name}.bias", bias_shape, "F32"]] if bias else [weight]

    def _shape(self, name: str, block: int) -> list[int] | None:
        """None where the block has no such tensor."""

        def of(value: int | list[int]) -> int:
            return value[block] if isinstance(value, list) else value

        e, f, heads, kv_heads = self.embedding, of(self.width), of(self.heads), of(self.kv_heads)
        q, k, v = heads * self.key, kv_heads * self.key, kv_heads * self.value
        rows = heads * self.value
        if name.startswith("attn_") and not heads:
            return None
        if name.startswith("ffn") and not f:
            return None
        if name in ("attn_q", "attn_k", "attn_v") and not kv_heads:
            return None
        shapes = {
            "token_embd": [e, self.vocabulary],
            "output": [e, self.vocabulary],
            "position_embd": [e, self.context],
            "attn_q": [e, q],
            "attn_k": [e, k],
            "attn_v": [e, v],
            "attn_qkv": [e, q + k + v],
            "attn_output": [rows if kv_heads else e, e],
            "attn_gate": [e, rows],
            "attn_gate/heads": [e, heads],
            "attn_q_norm": [self.key],
            "attn_k_norm": [self.key],
            "attn_q_norm/heads": [self.key, heads],
            "attn_k_norm/heads": [self.key, kv_heads],
            "attn_q_norm/row": [q],
            "attn_k_norm/row": [k],
            "attn_sub_norm": [rows],
            "attn_sinks": [heads],
            "ffn_gate": [e, f],
            "ffn_up": [e, f],
            "ffn_down": [f, e],
            "ffn_sub_norm": [f],
            "ffn.act.scales": [f],
            "rope_freqs": [self.key // 2],
            "rope_factors_long": [self.key // 2],
            "rope_factors_short": [self.key // 2],
        }
        if name.endswith(".scale"):
            return [1]
        return shapes.get(name, [e])


def kind_of(value: Any) -> list[str]:
    """The GGUF type of a metadata value."""
    if isinstance(value, list):
        return ["ARRAY", *kind_of(value[0])]
    return [{bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}[type(value)]]
