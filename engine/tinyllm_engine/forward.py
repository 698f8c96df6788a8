"""The forward pass of a decoder-only transformer. It reads like arithmetic; each line records one op of a program.

`forward` is the frame that all models share; below it stands one function for each kind of part a layer is made of.
"""

from __future__ import annotations

from tinyllm_engine.model import Model
from tinyllm_engine.parts.attention import Attention
from tinyllm_engine.parts.feed_forward import FeedForward
from tinyllm_engine.program import Buffer
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.weights import FeedForwardPart, Mixer


def forward(p: Recorder, model: Model) -> Buffer:
    """Records one pass over the rows of the batch; returns the buffer of logits, float32 [outputs, vocabulary]."""
    w, n_embd = model.weights, model.config.embedding_length

    x = p.buffer("x", n_embd)  # the residual stream
    xb = p.buffer("xb", n_embd)  # x after a norm; then what a block adds to x
    logits = p.buffer("logits", w.output.outputs, outputs=True)

    for rope in w.ropes:
        p.rope_table(rope)
    p.embed(x, w.token_embd)

    for il, layer in enumerate(w.layers):
        if layer.attn_norm is not None:
            p.norm(xb, x, layer.attn_norm)
        mixed = [(mix(p, part, xb, il), part.output) for part in layer.mixers]
        if il == len(w.layers) - 1:  # what follows is needed only where logits are wanted
            x, mixed = p.outputs(x), [(p.outputs(y), output) for y, output in mixed]
        for y, output in mixed:
            p.matmul(xb, output, y)
            p.add(x, xb)

        if layer.ffn_norm is not None:
            p.norm(xb, x, layer.ffn_norm)
        if layer.feed_forward is not None:
            feed_forward(p, layer.feed_forward, xb)
            p.add(x, xb)

    p.norm(xb, x, w.output_norm)
    p.matmul(logits, w.output, xb)
    return logits


# --- how rows see each other: all but the last product of a part ------------------------------------------------------


def mix(p: Recorder, part: Mixer, xb: Buffer, il: int) -> Buffer:
    """What the part's `output` multiplies, for every row of xb [n_embd]; `il` is the layer's place in the cache."""
    match part:
        case Attention():
            return attention(p, part, xb, il)


def attention(p: Recorder, part: Attention, xb: Buffer, il: int) -> Buffer:
    q, k = p.buffer("q", part.heads * part.key_length), p.buffer("k", part.kv_heads * part.key_length)
    v, att = p.buffer("v", part.kv_heads * part.value_length), p.buffer("att", part.heads * part.value_length)

    p.matmul(q, part.q, xb)
    p.matmul(k, part.k, xb)
    p.matmul(v, part.v, xb)
    if part.rope is not None:
        p.rope(q, part.heads, part.rope)
        p.rope(k, part.kv_heads, part.rope)
    p.append(il, k, v)
    p.attention(att, q, il, part.heads, part.scale)
    return att


# --- each row by itself -----------------------------------------------------------------------------------------------


def feed_forward(p: Recorder, part: FeedForwardPart, xb: Buffer) -> None:
    """xb [n_embd] = the part of xb"""
    match part:
        case FeedForward():
            gated(p, part, xb)


def gated(p: Recorder, part: FeedForward, xb: Buffer) -> None:
    gate, up = p.buffer("gate", part.gate.outputs), p.buffer("up", part.up.outputs)

    p.matmul(gate, part.gate, xb)
    p.matmul(up, part.up, xb)
    p.swiglu(gate, up)
    p.matmul(xb, part.down, gate)
