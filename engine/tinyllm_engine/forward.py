"""The forward pass of a decoder-only transformer. It reads like arithmetic; each line records one op of a program.

`forward` is the frame that all models share; below it stands one function for each kind of part a layer is made of.
"""

from __future__ import annotations

from tinyllm_engine.model import Model
from tinyllm_engine.parts.attention import Attention, Projection
from tinyllm_engine.parts.base import Norm
from tinyllm_engine.parts.feed_forward import FeedForward
from tinyllm_engine.program import Buffer
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.weights import FeedForwardPart, Mixer, Weights


def forward(p: Recorder, model: Model) -> Buffer:
    """Records one pass over the rows of the batch; returns the buffer of logits, float32 [outputs, vocabulary]."""
    w, n_embd = model.weights, model.config.embedding_length
    y = p.buffer("y", n_embd)  # what a part adds to x
    logits = p.buffer("logits", w.output.outputs, outputs=True)

    for rope in w.ropes:
        p.rope_table(rope)
    x = embedded(p, w, n_embd)  # the residual stream

    for il, layer in enumerate(w.layers):
        xb = normed(p, x, layer.attn_norm)
        hb = normed(p, x, layer.ffn_norm, "hb") if layer.parallel and layer.ffn_norm is not None else xb
        mixed = [(mix(p, part, xb, il), part.output) for part in layer.mixers]
        if il == len(w.layers) - 1:  # what follows is needed only where logits are wanted
            x, mixed = p.outputs(x), [(p.outputs(heads), output) for heads, output in mixed]
            hb = p.outputs(hb) if layer.parallel else hb
        for heads, output in mixed:
            p.matmul(y, output, heads)
            p.add(x, normed(p, y, layer.attn_post_norm, "yb"))

        if layer.feed_forward is not None:
            if not layer.parallel:
                hb = normed(p, x, layer.ffn_norm)
            feed_forward(p, layer.feed_forward, y, hb)
            p.add(x, normed(p, y, layer.ffn_post_norm, "yb"))

    p.matmul(logits, w.output, normed(p, x, w.output_norm))
    if w.final_softcap:
        p.softcap(logits, w.final_softcap)
    return logits


def embedded(p: Recorder, w: Weights, n_embd: int) -> Buffer:
    """What the tokens are before the first layer: [n_embd] for every row."""
    x = p.buffer("x", n_embd)
    p.embed(x, w.token_embd)
    if w.embedding_scale != 1:
        p.scale(x, w.embedding_scale)
    if w.position_embd is not None:
        place = p.buffer("place", n_embd)
        p.embed_positions(place, w.position_embd)
        p.add(x, place)
    return normed(p, x, w.embedding_norm, "x0")


def normed(p: Recorder, x: Buffer, norm: Norm | None, name: str = "xb") -> Buffer:
    """The norm of x in a buffer of this name; x itself where there is no norm."""
    if norm is None:
        return x
    xb = p.buffer(name, len(norm.weight))
    p.norm(xb, x, norm)
    return xb


# --- how rows see each other: all but the last product of a part ------------------------------------------------------


def mix(p: Recorder, part: Mixer, xb: Buffer, il: int) -> Buffer:
    """What the part's `output` multiplies, for every row of xb [n_embd]; `il` is the layer's place in the cache."""
    match part:
        case Attention():
            return attention(p, part, xb, il)
        case Projection():
            return xb


def attention(p: Recorder, part: Attention, xb: Buffer, il: int) -> Buffer:
    q, k = p.buffer("q", part.heads * part.key_length), p.buffer("k", part.kv_heads * part.key_length)
    v, att = p.buffer("v", part.kv_heads * part.value_length), p.buffer("att", part.heads * part.value_length)

    p.matmul(q, part.q, xb)
    p.matmul(k, part.k, xb)
    p.matmul(v, part.v, xb)
    if part.clamp:
        for rows in (q, k, v):
            p.clamp(rows, part.clamp)
    if not part.norm_after_rope:
        q, k = normed_heads(p, part, q, k)
    if part.rope is not None:
        p.rope(q, part.heads, part.rope)
        p.rope(k, part.kv_heads, part.rope)
    if part.norm_after_rope:
        q, k = normed_heads(p, part, q, k)
    if part.temperature is not None:
        p.temperature(q, part.temperature)
    p.append(il, k, v)
    p.attention(att, q, il, part.heads, part.scoring)
    return normed(p, att, part.sub_norm, "att_norm")


def normed_heads(p: Recorder, part: Attention, q: Buffer, k: Buffer) -> tuple[Buffer, Buffer]:
    if part.norm_rows:
        return normed(p, q, part.q_norm, "qb"), normed(p, k, part.k_norm, "kb")
    if part.q_norm is not None and part.k_norm is not None:
        p.norm_heads(q, part.heads, part.q_norm)
        p.norm_heads(k, part.kv_heads, part.k_norm)
    return q, k


# --- each row by itself -----------------------------------------------------------------------------------------------


def feed_forward(p: Recorder, part: FeedForwardPart, y: Buffer, xb: Buffer) -> None:
    """y = the part of xb, both [n_embd]"""
    match part:
        case FeedForward():
            dense(p, part, y, xb)


def dense(p: Recorder, part: FeedForward, y: Buffer, xb: Buffer) -> None:
    up = p.buffer("up", part.up.outputs)
    gate = None if part.gate is None else p.buffer("gate", part.gate.outputs)
    hidden = up if gate is None else gate

    if gate is not None and part.gate is not None:
        p.matmul(gate, part.gate, xb)
    p.matmul(up, part.up, xb)
    p.activate(hidden, None if gate is None else up, part.activation)
    if part.divisor is not None:
        p.divide(hidden, part.divisor)
    p.matmul(y, part.down, normed(p, hidden, part.sub_norm, "hidden_norm"))
