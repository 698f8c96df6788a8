"""The forward pass in plain NumPy float32: the text to learn from, and the oracle the kernels are tested against.

It has the frame of `forward.py` and the parts of dense decoders, which it computes instead of recording.

Names are those of the file and of the papers: x is the residual stream, xb what a norm makes of it; n rows (one per
token), t rows of the past and present, n_embd, n_head, n_kv (heads of K and V), d (length of a head), n_ff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm_engine.cancel import Cancel
from tinyllm_engine.errors import CancelledError, ContextFullError, EngineError, TokenizerError, UnsupportedModelError
from tinyllm_engine.parts.attention import Attention, Projection, Scoring
from tinyllm_engine.parts.base import Linear, Norm
from tinyllm_engine.parts.feed_forward import XIELU, FeedForward
from tinyllm_engine.rope import Rope

if TYPE_CHECKING:
    from tinyllm_engine.model import Model
    from tinyllm_engine.tensor import TensorView

Array = NDArray[np.float32]
BATCH = 128  # rows at a time: bounds the memory of the attention scores, and how long a cancel waits


class ReferenceRunner:
    """Weights as float32, dequantized when first used. Raises UnsupportedModelError for parts of other kinds."""

    def __init__(self, model: Model, context_length: int | None = None) -> None:
        self.model, self.weights = model, model.weights
        for layer in self.weights.layers:
            for part in (*layer.mixers, layer.feed_forward):
                if isinstance(part, Attention) and not _is_plain(part):
                    raise UnsupportedModelError(
                        "reference: expected attention without gates and with values of its own"
                    )
                if not isinstance(part, Attention | Projection | FeedForward | None):
                    kind = type(part).__name__
                    raise UnsupportedModelError(
                        f"reference: expected attention and feed-forward networks, found {kind}"
                    )
        self.context_length = context_length or model.config.context_length
        self._matrices: dict[TensorView, Array] = {}
        self.rotations = {rope: rope.frequencies(self.context_length) for rope in self.weights.ropes}

    def sequence(self) -> ReferenceSequence:
        return ReferenceSequence(self)

    def product(self, linear: Linear, x: Array) -> Array:
        """scale * x W^T + bias, and what adapters add: [n, inputs] -> [n, outputs]"""
        if linear.weight not in self._matrices:
            self._matrices[linear.weight] = linear.weight.dequantize()
        y = x @ self._matrices[linear.weight].T * np.float32(linear.scale)
        for change in linear.adapters:
            y += np.float32(change.scale) * (x @ change.a.T @ change.b.T)
        return y if linear.bias is None else y + linear.bias


class ReferenceSequence:
    """One conversation: K and V of every token so far, in float32."""

    def __init__(self, runner: ReferenceRunner) -> None:
        self.runner = runner
        self.tokens: list[int] = []
        cached = runner.weights.cached
        self._k = [np.empty((0, shape.heads, shape.k_size), np.float32) for shape in cached]  # [t, n_kv, d]
        self._v = [np.empty((0, shape.heads, shape.v_size), np.float32) for shape in cached]

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
        n_vocab = self.runner.weights.output.outputs
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
        positions = np.arange(self.position, self.position + len(ids))  # [n]
        x = self._embed(ids, positions)
        for il, layer in enumerate(self.runner.weights.layers):
            xb = normed(x, layer.attn_norm)
            hb = xb if layer.ffn_norm is None else normed(x, layer.ffn_norm)
            for part in layer.mixers:
                heads = self._attention(part, xb, il, positions) if isinstance(part, Attention) else xb
                x = x + normed(self.runner.product(part.output, heads), layer.attn_post_norm)
            if not layer.parallel:
                hb = normed(x, layer.ffn_norm)
            if isinstance(layer.feed_forward, FeedForward):
                x = x + normed(self._feed_forward(layer.feed_forward, hb), layer.ffn_post_norm)
        self.tokens.extend(ids)
        return x

    def _embed(self, ids: Sequence[int], positions: NDArray[np.int64]) -> Array:
        w = self.runner.weights
        x = rows_of(w.token_embd, ids)  # [n, n_embd]
        for change in w.embedding_adapters:
            x = x + np.float32(change.scale) * (change.a[list(ids)] @ change.b.T)
        x = x * np.float32(w.embedding_scale)
        if w.position_embd is not None:
            x = x + rows_of(w.position_embd, positions.tolist())
        return normed(x, w.embedding_norm)

    def _attention(self, part: Attention, xb: Array, il: int, positions: NDArray[np.int64]) -> Array:
        """What `output` multiplies: [n, n_head * d]"""
        product, n = self.runner.product, len(xb)
        assert part.k is not None
        assert part.v is not None
        q = product(part.q, xb).reshape(n, part.heads, part.key_length)
        k = product(part.k, xb).reshape(n, part.kv_heads, part.key_length)
        v = product(part.v, xb).reshape(n, part.kv_heads, part.value_length)
        if part.clamp:
            q, k, v = (np.clip(rows, -part.clamp, part.clamp) for rows in (q, k, v))
        if not part.norm_after_rope:
            q, k = normed_heads(q, part.q_norm, part.norm_rows), normed_heads(k, part.k_norm, part.norm_rows)
        if part.rope is not None:
            cos, sin = self._angles(part.rope, positions)
            q, k = rotate(q, cos, sin, part.rope.interleaved), rotate(k, cos, sin, part.rope.interleaved)
        if part.norm_after_rope:
            q, k = normed_heads(q, part.q_norm, part.norm_rows), normed_heads(k, part.k_norm, part.norm_rows)
        if part.temperature is not None:
            growth = part.temperature.scale * np.log(1 + positions // part.temperature.period)
            q = q * (1 + growth)[:, None, None].astype(np.float32)
        self._k[il] = np.concatenate((self._k[il], k))  # [t, n_kv, d]
        self._v[il] = np.concatenate((self._v[il], v))
        return normed(attention(q, self._k[il], self._v[il], positions, part.scoring), part.sub_norm)

    def _feed_forward(self, part: FeedForward, xb: Array) -> Array:
        product = self.runner.product
        up = product(part.up, xb)  # [n, n_ff]
        if part.gate is None:
            hidden = activated(up, part.activation)
        else:
            hidden = activated(product(part.gate, xb), part.activation) * up
        if part.divisor is not None:
            hidden = hidden / part.divisor
        return product(part.down, normed(hidden, part.sub_norm))

    def _logits(self, x: Array) -> Array:
        """float32 [n, n_vocab]"""
        w = self.runner.weights
        logits = self.runner.product(w.output, normed(x, w.output_norm))
        return softcap(logits, w.final_softcap) if w.final_softcap else logits

    def _angles(self, rope: Rope, positions: NDArray[np.int64]) -> tuple[Array, Array]:
        """cos and sin [n, 1, n_rot / 2] of the rows' angles."""
        frequencies, magnitude = self.runner.rotations[rope]
        angle = positions.astype(np.float32)[:, None, None] * frequencies
        return np.cos(angle) * np.float32(magnitude), np.sin(angle) * np.float32(magnitude)


def _is_plain(part: Attention) -> bool:
    return part.v is not None and part.v_norm is None and not part.gated and part.gate is None


def rows_of(table: TensorView, ids: Sequence[int]) -> Array:
    """float32 [n, n_embd]: single rows, for the whole table is large."""
    return np.concatenate([table.dequantize(i, i + 1) for i in ids])


def normed(x: Array, norm: Norm | None) -> Array:
    if norm is None:
        return x
    if norm.kind == "rms":
        return rmsnorm(x, norm.weight, norm.epsilon)
    return layernorm(x, norm.weight, norm.bias, norm.epsilon)


def normed_heads(x: Array, norm: Norm | None, whole: bool) -> Array:
    """The norm of each head of x [n, h, d], with a weight for all or one for each; or that of the whole row."""
    if norm is None:
        return x
    if whole:
        return normed(x.reshape(len(x), -1), norm).reshape(x.shape)
    weight, bias = norm.weight.reshape(-1, x.shape[-1]), norm.bias.reshape(-1, x.shape[-1])
    return normed(x, Norm(norm.kind, weight, bias, norm.epsilon))


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight (arXiv:1910.07467)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def layernorm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias (arXiv:1607.06450)."""
    x = x - np.mean(x, axis=-1, keepdims=True)
    return rmsnorm(x, weight, eps) + bias


def activated(x: Array, activation: str | XIELU) -> Array:
    match activation:
        case XIELU():
            bend = np.float32(activation.alpha_n) * (np.expm1(np.minimum(x, np.float32(activation.epsilon))) - x)
            return np.where(x > 0, np.float32(activation.alpha_p) * x * x, bend) + np.float32(activation.beta) * x
        case "gelu":
            return gelu(x)
        case "relu2":
            return np.maximum(x, 0) ** 2
        case _:
            return silu(x)


def silu(x: Array) -> Array:
    """x * sigmoid(x); with `up` it makes SwiGLU (arXiv:2002.05202)."""
    return x / (1 + np.exp(-np.maximum(x, -80)))  # e^80 is still a float32


def gelu(x: Array) -> Array:
    """x times the share of a normal distribution below x, in the tanh form (arXiv:1606.08415)."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    return x / 2 * (1 + np.tanh(inner))


def softcap(x: Array, cap: float) -> Array:
    """cap * tanh(x / cap): x where it is small, never beyond the cap."""
    return np.float32(cap) * np.tanh(x / np.float32(cap))


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool = True) -> Array:
    """RoPE (arXiv:2104.09864): pair i of a head is (x[2i], x[2i + 1]), or (x[i], x[i + n_rot / 2]) if not interleaved.

    What lies past n_rot stays. x [n, h, d], cos and sin [n, 1, n_rot / 2] -> [n, h, d]
    """
    pairs = cos.shape[-1]
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    if not interleaved:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def attention(q: Array, k: Array, v: Array, positions: NDArray[np.int64], scoring: Scoring) -> Array:
    """softmax(scale q k^T) v over the past and present; n_head / n_kv neighbouring heads of q share one of k and v.

    q [n, n_head, d], k and v [t, n_kv, d] -> [n, n_head * d]
    """
    n, n_head, d = q.shape
    t, n_kv, _ = k.shape
    q = q.reshape(n, n_kv, n_head // n_kv, d).transpose(1, 2, 0, 3)  # [n_kv, group, n, d]
    scores = q @ k.transpose(1, 2, 0)[:, None] * np.float32(scoring.scale)  # [n_kv, group, n, t]
    distance = positions[:, None] - np.arange(t)  # [n, t]
    if scoring.softcap:
        scores = softcap(scores, scoring.softcap)
    if scoring.slopes is not None:
        scores = scores - scoring.slopes.reshape(n_kv, -1, 1, 1) * distance.astype(np.float32)
    hidden = distance < 0  # no token sees a later one
    if scoring.window > 0:
        hidden |= distance >= scoring.window
    elif scoring.window < 0:
        hidden |= distance > positions[:, None] % -scoring.window
    scores[..., hidden] = -np.inf
    sinks = np.full(n_head, -np.inf, np.float32) if scoring.sinks is None else scoring.sinks
    sink = sinks.reshape(n_kv, -1, 1, 1)
    top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    p = np.exp(scores - top)
    p /= p.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    out = p @ v.transpose(1, 0, 2)[:, None]  # [n_kv, group, n, d]
    return out.transpose(2, 0, 1, 3).reshape(n, -1)
