"""The forward pass of a decoder-only transformer. It reads like arithmetic; each line records one op of a program."""

from __future__ import annotations

from tinyllm_engine.model import Model
from tinyllm_engine.program import Buffer
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.rope import rope_frequencies


def forward(p: Recorder, model: Model) -> Buffer:
    """Records one pass over the rows of the batch; returns the buffer of logits, float32 [outputs, vocabulary]."""
    w, c = model.weights, model.config
    n_embd, d_k, d_v = c.embedding_length, c.key_length, c.value_length

    x = p.buffer("x", n_embd)  # the residual stream
    xb = p.buffer("xb", n_embd)  # x after a norm; then what a block adds to x
    logits = p.buffer("logits", w.output.outputs, outputs=True)

    epsilon = c.norm_rms_epsilon or 1e-5
    frequencies, magnitude = rope_frequencies(c.rope, w.rope_freqs, c.context_length)
    p.rope_table(frequencies, magnitude, model.architecture.rope_interleaved)
    p.embed(x, w.token_embd)

    for il, layer in enumerate(w.layers):
        q, att = p.buffer("q", layer.heads * d_k), p.buffer("att", layer.heads * d_v)
        k, v = p.buffer("k", layer.kv_heads * d_k), p.buffer("v", layer.kv_heads * d_v)
        gate, up = p.buffer("gate", layer.ffn_gate.outputs), p.buffer("up", layer.ffn_up.outputs)

        p.rms_norm(xb, x, layer.attn_norm, epsilon)
        p.matmul(q, layer.attn_q, xb)
        p.matmul(k, layer.attn_k, xb)
        p.matmul(v, layer.attn_v, xb)
        p.rope(q, layer.heads)
        p.rope(k, layer.kv_heads)
        p.append(il, k, v)
        p.attention(att, q, il, layer.heads, scale=d_k**-0.5)
        if il == len(w.layers) - 1:  # what follows is needed only where logits are wanted
            x, att = p.outputs(x), p.outputs(att)
        p.matmul(xb, layer.attn_output, att)
        p.add(x, xb)

        p.rms_norm(xb, x, layer.ffn_norm, epsilon)
        p.matmul(gate, layer.ffn_gate, xb)
        p.matmul(up, layer.ffn_up, xb)
        p.swiglu(gate, up)
        p.matmul(xb, layer.ffn_down, gate)
        p.add(x, xb)

    p.rms_norm(xb, x, w.output_norm, epsilon)
    p.matmul(logits, w.output, xb)
    return logits
