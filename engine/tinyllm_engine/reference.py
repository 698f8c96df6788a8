"""The llama forward pass in plain NumPy float32: the text to learn from, and the oracle the kernels are tested against.

Names are those of the file and of the papers: x is the residual stream, xb what a norm makes of it; n rows (one per
token), t rows of the past and present, n_embd, n_head, n_kv (heads of K and V), d (length of a head), n_ff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    ModelError,
    TokenizerError,
    UnsupportedModelError,
)
from tinyllm_engine.rope import rope_frequencies

if TYPE_CHECKING:
    from tinyllm_engine.model import Model

Array = NDArray[np.float32]
BATCH = 128  # rows at a time: bounds the memory of the attention scores, and how long a cancel waits


class ReferenceRunner:
    """Weights as float32, dequantized when first used. Raises UnsupportedModelError for what is not a dense llama."""

    def __init__(self, model: Model, context_length: int | None = None) -> None:
        config = model.config
        if config.architecture != "llama" or config.expert_count:
            kind = f"{config.architecture}{' with experts' if config.expert_count else ''}"
            raise UnsupportedModelError(f"reference: expected the architecture llama without experts, found {kind}")
        self.model = model
        self.config = config
        self.context_length = context_length or config.context_length
        self._cache: dict[str, Array] = {}
        factors = self.weight("rope_freqs.weight") if "rope_freqs.weight" in model.tensors else None
        self.inv_freq, self.magnitude = rope_frequencies(config.rope, factors, config.context_length)  # [n_rot / 2]

    def sequence(self) -> ReferenceSequence:
        return ReferenceSequence(self)

    def weight(self, name: str) -> Array:
        """float32 [rows, columns], or [columns] for a tensor of one dimension. ModelError where the file lacks it."""
        if name not in self._cache:
            if name not in self.model.tensors:
                raise ModelError(f"{name}: expected this tensor, found none of the name")
            tensor = self.model.tensors[name]
            self._cache[name] = tensor.dequantize().reshape(tensor.dims[::-1])
        return self._cache[name]

    def optional(self, name: str, default: float) -> Array | float:
        return self.weight(name) if name in self.model.tensors else default

    def embed(self, ids: Sequence[int]) -> Array:
        """float32 [n, n_embd]: single rows, for the whole table is large."""
        table = self.model.tensors["token_embd.weight"]
        return np.concatenate([table.dequantize(i, i + 1) for i in ids])


class ReferenceSequence:
    """One conversation: K and V of every token so far, in float32."""

    def __init__(self, runner: ReferenceRunner) -> None:
        config = runner.config
        self.runner = runner
        self.tokens: list[int] = []
        self._k = [np.empty((0, n_kv, config.key_length), np.float32) for n_kv in config.head_count_kv]  # [t, n_kv, d]
        self._v = [np.empty((0, n_kv, config.value_length), np.float32) for n_kv in config.head_count_kv]

    @property
    def position(self) -> int:
        return len(self.tokens)

    def truncate(self, n: int) -> int:
        """Forgets all tokens after the first n; returns how many are left."""
        n = max(0, min(n, self.position))
        del self.tokens[n:]
        self._k, self._v = [k[:n] for k in self._k], [v[:n] for v in self._v]
        return n

    def forward(
        self,
        ids: Sequence[int],
        all_logits: bool = False,
        cancel: Cancel | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Array:
        """Appends ids; returns the logits after the last one [n_vocab], or after each of them [n, n_vocab].

        Raises, before anything is evaluated, ContextFullError if they do not fit and TokenizerError for an id outside
        the vocabulary; CancelledError between two batches, whose rows stay.
        """
        n_vocab = self.runner.model.tensors["token_embd.weight"].rows
        if not ids:
            raise EngineError("forward: expected at least one token id, found none")
        if bad := [i for i in ids if not 0 <= i < n_vocab]:
            raise TokenizerError(f"token id: expected 0 to {n_vocab - 1}, found {bad[0]}")
        if (room := self.runner.context_length - self.position) < len(ids):
            raise ContextFullError(
                f"context: {len(ids)} tokens do not fit, {room} of {self.runner.context_length} left"
            )
        logits = []
        for start in range(0, len(ids), BATCH):
            if cancel is not None and cancel.is_set():
                raise CancelledError(f"forward: cancelled after {start} of {len(ids)} tokens")
            x = self._evaluate(ids[start : start + BATCH])  # [n, n_embd]
            if all_logits:
                logits.append(self._logits(x))
            if progress is not None:
                progress(min(start + BATCH, len(ids)), len(ids))
        return np.concatenate(logits) if all_logits else self._logits(x[-1:])[0]

    def _evaluate(self, ids: Sequence[int]) -> Array:
        """The forward pass of n tokens, up to the last residual [n, n_embd]."""
        config, weight, optional = self.runner.config, self.runner.weight, self.runner.optional
        eps, d = config.norm_rms_epsilon or 0.0, config.key_length
        positions = np.arange(self.position, self.position + len(ids))  # [n]
        cos, sin = self._rotation(positions)  # [n, 1, n_rot / 2]

        def project(name: str, x: Array) -> Array:
            return x @ weight(f"{name}.weight").T * optional(f"{name}.scale", 1) + optional(f"{name}.bias", 0)

        def project_ffn(name: str, x: Array) -> Array:
            return (x @ weight(f"{name}.weight").T + optional(f"{name}.bias", 0)) * optional(f"{name}.scale", 1)

        x = self.runner.embed(ids)  # [n, n_embd]
        for layer in range(config.block_count):
            blk, n_head, n_kv = f"blk.{layer}", config.head_count[layer], config.head_count_kv[layer]

            xb = rmsnorm(x, weight(f"{blk}.attn_norm.weight"), eps)  # [n, n_embd]
            q = project(f"{blk}.attn_q", xb).reshape(len(ids), n_head, d)
            k = project(f"{blk}.attn_k", xb).reshape(len(ids), n_kv, d)
            v = project(f"{blk}.attn_v", xb).reshape(len(ids), n_kv, config.value_length)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            self._k[layer] = np.concatenate((self._k[layer], k))  # [t, n_kv, d]
            self._v[layer] = np.concatenate((self._v[layer], v))
            out = attention(q, self._k[layer], self._v[layer], positions)  # [n, n_head * d]
            x = x + project(f"{blk}.attn_output", out)  # [n, n_embd]

            xb = rmsnorm(x, weight(f"{blk}.ffn_norm.weight"), eps)  # [n, n_embd]
            gate = project_ffn(f"{blk}.ffn_gate", xb)  # [n, n_ff]
            up = project_ffn(f"{blk}.ffn_up", xb)  # [n, n_ff]
            x = x + project_ffn(f"{blk}.ffn_down", silu(gate) * up)  # [n, n_embd]
        self.tokens.extend(ids)
        return x

    def _logits(self, x: Array) -> Array:
        """float32 [n, n_vocab]; a file without an output matrix uses the embedding for it."""
        runner = self.runner
        x = rmsnorm(x, runner.weight("output_norm.weight"), runner.config.norm_rms_epsilon or 0.0)
        tied = "output.weight" not in runner.model.tensors
        output = runner.weight("token_embd.weight" if tied else "output.weight")
        return x @ output.T * runner.optional("output.scale", 1)

    def _rotation(self, positions: NDArray[np.int64]) -> tuple[Array, Array]:
        angle = positions.astype(np.float32)[:, None, None] * self.runner.inv_freq  # [n, 1, n_rot / 2]
        magnitude = np.float32(self.runner.magnitude)
        return np.cos(angle) * magnitude, np.sin(angle) * magnitude


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight (arXiv:1910.07467)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def silu(x: Array) -> Array:
    """x * sigmoid(x); with `up` it makes SwiGLU (arXiv:2002.05202)."""
    return x / (1 + np.exp(-np.maximum(x, -80)))  # e^80 is still a float32


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """RoPE (arXiv:2104.09864) on neighbours: pair i of a head is (x[2i], x[2i + 1]); what lies past n_rot stays.

    x [n, h, d], cos and sin [n, 1, n_rot / 2] -> [n, h, d]
    """
    n_rot = 2 * cos.shape[-1]
    even, odd = x[..., 0:n_rot:2], x[..., 1:n_rot:2]  # [n, h, n_rot / 2]
    out = x.copy()
    out[..., 0:n_rot:2] = even * cos - odd * sin
    out[..., 1:n_rot:2] = even * sin + odd * cos
    return out


def attention(q: Array, k: Array, v: Array, positions: NDArray[np.int64]) -> Array:
    """softmax(q k^T / sqrt(d)) v over the past and present; n_head / n_kv neighbouring heads of q share one of k and v.

    q [n, n_head, d], k and v [t, n_kv, d] -> [n, n_head * d]
    """
    n, n_head, d = q.shape
    t, n_kv, _ = k.shape
    q = q.reshape(n, n_kv, n_head // n_kv, d).transpose(1, 2, 0, 3)  # [n_kv, group, n, d]
    scores = q @ k.transpose(1, 2, 0)[:, None] / np.float32(np.sqrt(d))  # [n_kv, group, n, t]
    scores[..., np.arange(t) > positions[:, None]] = -np.inf  # no token sees a later one
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    out = p @ v.transpose(1, 0, 2)[:, None]  # [n_kv, group, n, d]
    return out.transpose(2, 0, 1, 3).reshape(n, -1)
