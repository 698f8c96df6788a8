"""The forward pass of a decoder-only transformer. It reads like arithmetic; each line records one op of a program.

`forward` is the frame that all models share; below it stands one function for each kind of part a layer is made of.
"""

from __future__ import annotations

from tinyllm_engine.model import Model
from tinyllm_engine.parts.attention import Attention, Projection
from tinyllm_engine.parts.base import Linear, Norm
from tinyllm_engine.parts.delta_net import GatedDeltaNet
from tinyllm_engine.parts.experts import Experts
from tinyllm_engine.parts.feed_forward import FeedForward
from tinyllm_engine.parts.latent_attention import AbsorbedHeads, LatentAttention
from tinyllm_engine.parts.layer_inputs import LayerInput, LayerInputs
from tinyllm_engine.parts.mamba import Mamba
from tinyllm_engine.parts.mamba2 import Mamba2
from tinyllm_engine.parts.plamo2 import Plamo2
from tinyllm_engine.parts.short_convolution import ShortConvolution
from tinyllm_engine.parts.streams import LayerStreams, Streams
from tinyllm_engine.parts.two_paths import TwoPaths
from tinyllm_engine.program import Buffer
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.recurrent_ops import Columns
from tinyllm_engine.weights import FeedForwardPart, Layer, Mixer, Weights


def forward(p: Recorder, model: Model) -> Buffer:
    """Records one pass over the rows of the batch; returns the buffer of logits, float32 [outputs, vocabulary]."""
    w, n_embd = model.weights, model.config.embedding_length
    y = p.buffer("y", n_embd)  # what a part adds to x

    for rope in w.ropes:
        p.rope_table(rope)
    x = embedded(p, w, n_embd)  # the residual stream
    inputs = None if w.layer_inputs is None else layer_inputs(p, w.layer_inputs, x)
    if w.streams is not None and inputs is not None:
        return by_streams(p, w, w.streams, x, inputs)

    for il, layer in enumerate(w.layers):
        xb = normed(p, x, layer.attn_norm)
        hb = normed(p, x, layer.ffn_norm, "hb") if layer.parallel and layer.ffn_norm is not None else xb
        mixed = [(mix(p, part, xb, il), part.output) for part in layer.mixers]
        if il == len(w.layers) - 1:  # what follows is needed only where logits are wanted
            x, mixed = p.outputs(x), [(p.outputs(heads), output) for heads, output in mixed]
            hb = p.outputs(hb) if layer.parallel else hb
            inputs = None if inputs is None else p.outputs(inputs)
        for heads, output in mixed:
            p.matmul(y, output, heads)
            p.add(x, normed(p, y, layer.attn_post_norm, "yb"))

        if layer.feed_forward is not None:
            if not layer.parallel:
                hb = normed(p, x, layer.ffn_norm)
            feed_forward(p, layer.feed_forward, y, hb, x)
            p.add(x, normed(p, y, layer.ffn_post_norm, "yb"))
        if inputs is not None and layer.input is not None:
            p.add(x, read_input(p, layer.input, x, inputs, il, y))
        if layer.output_scale != 1:
            p.scale(x, layer.output_scale)

    return head(p, w, x)


def head(p: Recorder, w: Weights, x: Buffer) -> Buffer:
    """The logits of rows of the residual stream."""
    logits = p.buffer("logits", w.output.outputs, outputs=True)
    p.matmul(logits, w.output, normed(p, x, w.output_norm))
    if w.final_softcap:
        p.softcap(logits, w.final_softcap)
    return logits


def embedded(p: Recorder, w: Weights, n_embd: int) -> Buffer:
    """What the tokens are before the first layer: [n_embd] for every row."""
    x = p.buffer("x", n_embd)
    p.embed(x, w.token_embd)
    for change in w.embedding_adapters:
        p.embed_low_rank(x, change)
    if w.embedding_scale != 1:
        p.scale(x, w.embedding_scale)
    if w.position_embd is not None:
        place = p.buffer("place", n_embd)
        p.embed_positions(place, w.position_embd)
        p.add(x, place)
    return normed(p, x, w.embedding_norm, "x0")


def layer_inputs(p: Recorder, part: LayerInputs, x: Buffer) -> Buffer:
    """What the layers read of each token by themselves: [blocks * length] for every row."""
    own, mixed = (p.buffer(name, part.blocks * part.length) for name in ("layer_inputs", "layer_projections"))
    p.embed(own, part.table)
    p.scale(own, part.scale)
    p.matmul(mixed, part.projection, x)
    p.norm_heads(mixed, part.blocks, part.norm)
    p.add(own, mixed)
    p.scale(own, 2**-0.5)
    return own


def read_input(p: Recorder, part: LayerInput, x: Buffer, inputs: Buffer, il: int, y: Buffer) -> Buffer:
    """What the part makes of its slice of the inputs, to be added to x; y: [n_embd] to work in."""
    length = part.gate.outputs
    gate, own = p.buffer("input_gate", length), p.buffer("layer_input", length)
    p.matmul(gate, part.gate, x)
    p.copy_heads(own, 0, inputs, il * length, length, 1)
    p.activate(gate, own, "gelu")
    p.matmul(y, part.projection, gate)
    return normed(p, y, part.norm, "yb")


def normed(p: Recorder, x: Buffer, norm: Norm | None, name: str = "xb") -> Buffer:
    """The norm of x in a buffer of this name; x itself where there is no norm."""
    if norm is None:
        return x
    xb = p.buffer(name, len(norm.weight))
    p.norm(xb, x, norm)
    return xb


# --- several residual streams -----------------------------------------------------------------------------------------


def by_streams(p: Recorder, w: Weights, part: Streams, x: Buffer, inputs: Buffer) -> Buffer:
    """`forward` where layers work on the first of several streams, which all take part in what they find."""
    n_embd, n = w.token_embd.dims[0], part.count
    xs, one, y = p.buffer("streams", n * n_embd), p.buffer("stream", n_embd), p.buffer("y", n_embd)
    p.copy_heads(xs, 0, x, 0, n_embd, 1)
    for s, linear in enumerate(part.begin, 1):
        p.matmul(one, linear, x)
        p.match_magnitude(one, x)
        p.copy_heads(xs, s * n_embd, one, 0, n_embd, 1)

    for il, layer in enumerate(w.layers):
        if layer.streams is not None and layer.input is not None:
            stream_layer(p, layer, layer.streams, layer.input, xs, inputs, il, n)

    p.copy_heads(x, 0, xs, 0, n_embd, 1)
    total = p.buffer("total", n_embd)
    p.copy_heads(total, 0, xs, 0, n_embd, 1)
    for s, linear in enumerate(part.end, 1):
        p.copy_heads(one, 0, xs, s * n_embd, n_embd, 1)
        p.matmul(y, linear, one)
        p.match_magnitude(y, x)
        p.add(total, y)
    p.scale(total, 1 / n)
    return head(p, w, p.outputs(total))


def stream_layer(
    p: Recorder, layer: Layer, part: LayerStreams, own: LayerInput, xs: Buffer, inputs: Buffer, il: int, n: int
) -> None:
    n_embd = part.left.inputs
    x, y = p.buffer("stream", n_embd), p.buffer("y", n_embd)
    predicted, shares = p.buffer("predicted", n * n_embd), p.buffer("shares", n)
    mixing = p.buffer("mixing", n * n)

    p.copy_heads(x, 0, xs, 0, n_embd, 1)
    p.matmul(mixing, part.predict, modalities(p, part, x))
    p.predict_streams(predicted, xs, mixing, n)
    p.copy_heads(x, 0, predicted, 0, n_embd, 1)

    xb = normed(p, x, layer.attn_norm)
    low, side = p.buffer("low", part.left.outputs), p.buffer("side", n_embd)
    p.matmul(low, part.left, xb)
    p.matmul(y, part.right, low)
    p.norm(side, y, part.low_norm)
    p.add(side, xb)
    for mixer in layer.mixers:
        p.matmul(y, mixer.output, mix(p, mixer, xb, il))
        p.add(x, normed(p, y, layer.attn_post_norm, "yb"))
    p.add(x, side)
    p.scale(x, 2**-0.5)
    if layer.feed_forward is not None:
        feed_forward(p, layer.feed_forward, y, normed(p, x, layer.ffn_norm), x)
        p.add(x, normed(p, y, layer.ffn_post_norm, "yb"))

    p.matmul(shares, part.correct, modalities(p, part, x))
    p.correct_streams(xs, predicted, x, shares, n)
    p.copy_heads(x, 0, xs, 0, n_embd, 1)
    p.divide(x, part.divisor)
    p.add_to_streams(xs, read_input(p, own, x, inputs, il, y), n)


def modalities(p: Recorder, part: LayerStreams, x: Buffer) -> Buffer:
    routed = p.buffer("routed", part.router.outputs)
    p.matmul(routed, part.router, normed(p, x, part.router_norm, "router x"))
    p.softcap(routed, 1.0)  # which is the hyperbolic tangent
    return routed


# --- how rows see each other: all but the last product of a part ------------------------------------------------------


def mix(p: Recorder, part: Mixer, xb: Buffer, il: int) -> Buffer:
    """What the part's `output` multiplies, for every row of xb [n_embd]; `il` is the layer's place in the cache."""
    match part:
        case Attention():
            return attention(p, part, xb, il)
        case LatentAttention():
            return latent_attention(p, part, xb, il)
        case Projection():
            return xb
        case ShortConvolution():
            return short_convolution(p, part, xb, il)
        case Mamba():
            return mamba(p, part, xb, il)
        case Mamba2():
            return mamba2(p, part, xb, il)
        case Plamo2():
            return plamo2(p, part, xb, il)
        case GatedDeltaNet():
            return delta_net(p, part, xb, il)


def attention(p: Recorder, part: Attention, xb: Buffer, il: int) -> Buffer:
    q, att = p.buffer("q", part.heads * part.key_length), p.buffer("att", part.heads * part.value_length)

    gate = projected_gate(p, part, q, xb)
    k, v = keys_and_values(p, part, xb)
    if part.clamp:
        for rows in (q, k, v):
            if rows is not None:
                p.clamp(rows, part.clamp)
    if not part.norm_after_rope:
        q, k = normed_heads(p, part, q, k)
    if part.rope is not None:
        p.rope(q, part.heads, part.rope)
        if k is not None:
            p.rope(k, part.kv_heads, part.rope)
    if part.norm_after_rope:
        q, k = normed_heads(p, part, q, k)
    if part.temperature is not None:
        p.temperature(q, part.temperature)
    if k is not None and v is not None:
        p.append(il, k, v)
    p.attention(att, q, il if part.source is None else part.source, part.heads, part.scoring)
    if gate is not None:
        p.sigmoid_gate(att, gate)
    return normed(p, att, part.sub_norm, "att_norm")


def keys_and_values(p: Recorder, part: Attention, xb: Buffer) -> tuple[Buffer, Buffer] | tuple[None, None]:
    """Before keys are normed and rotate. None for a block that uses those of another one."""
    if part.k is None:
        return None, None
    k, v = p.buffer("k", part.kv_heads * part.key_length), p.buffer("v", part.kv_heads * part.value_length)
    p.matmul(k, part.k, xb)
    if part.v is None:
        p.copy_heads(v, 0, k, 0, part.value_length, part.kv_heads)
    else:
        p.matmul(v, part.v, xb)
    if part.v_norm is not None:
        p.norm_heads(v, part.kv_heads, part.v_norm)
    return k, v


def projected_gate(p: Recorder, part: Attention, q: Buffer, xb: Buffer) -> Buffer | None:
    """The queries, and the gate that lies behind each or is made like them."""
    if not part.gated:
        p.matmul(q, part.q, xb)
        if part.gate is None:
            return None
        gate = p.buffer("att_gate", part.gate.outputs)
        p.matmul(gate, part.gate, xb)
        return gate
    gate, both = p.buffer("att_gate", part.q.outputs // 2), p.buffer("q_and_gate", part.q.outputs)
    p.matmul(both, part.q, xb)
    p.split_heads(q, gate, both, part.heads)
    return gate


def normed_heads(p: Recorder, part: Attention, q: Buffer, k: Buffer | None) -> tuple[Buffer, Buffer | None]:
    if part.norm_rows:
        return normed(p, q, part.q_norm, "qb"), None if k is None else normed(p, k, part.k_norm, "kb")
    if part.q_norm is not None:
        p.norm_heads(q, part.heads, part.q_norm)
    if part.k_norm is not None and k is not None:
        p.norm_heads(k, part.kv_heads, part.k_norm)
    return q, k


def latent_attention(p: Recorder, part: LatentAttention, xb: Buffer, il: int) -> Buffer:
    q = p.buffer("q", part.heads * part.key_length)
    latent, k_rope = p.buffer("latent", part.latent.outputs), p.buffer("k_rope", part.rotating)

    qa = xb
    if part.q_a is not None:
        qa = p.buffer("qa", part.q_a.outputs)
        p.matmul(qa, part.q_a, xb)
    p.matmul(q, part.q, normed(p, qa, part.q_norm, "qa_norm"))
    p.matmul(latent, part.latent, xb)
    p.matmul(k_rope, part.k_rope, xb)
    latent = normed(p, latent, part.latent_norm, "latent_norm")
    p.rope(q, part.heads, part.rope, part.resting)
    p.rope(k_rope, 1, part.rope)
    if part.temperature is not None:
        p.temperature(q, part.temperature)
    if isinstance(part.heads_of, AbsorbedHeads):
        return latent_heads(p, part, part.heads_of, q, latent, k_rope, il)
    return whole_heads(p, part, part.heads_of, q, latent, k_rope, il)


def latent_heads(
    p: Recorder, part: LatentAttention, of: AbsorbedHeads, q: Buffer, latent: Buffer, k_rope: Buffer, il: int
) -> Buffer:
    """All heads share one key, the latent vector and what rotates; its value is the latent vector."""
    length = part.latent.outputs
    shared = length + part.rotating
    q_latent, k = p.buffer("q_latent", part.heads * shared), p.buffer("k_latent", shared)
    att, out = p.buffer("att_latent", part.heads * length), p.buffer("att", part.heads * part.value_length)

    p.head_matmul(q_latent, of.k_b, q)
    p.copy_heads(q_latent, length, q, part.resting, part.rotating, part.heads)
    p.copy_heads(k, 0, latent, 0, length, 1)
    p.copy_heads(k, length, k_rope, 0, part.rotating, 1)
    p.append(il, k, latent)
    p.attention(att, q_latent, il, part.heads, part.scoring)
    p.head_matmul(out, of.v_b, att)
    return out


def whole_heads(
    p: Recorder, part: LatentAttention, kv_b: Linear, q: Buffer, latent: Buffer, k_rope: Buffer, il: int
) -> Buffer:
    """Each head has a key and a value of its own; what rotates in keys is the same in all."""
    kv, k = p.buffer("kv", kv_b.outputs), p.buffer("k", part.heads * part.key_length)
    v, att = (p.buffer(name, part.heads * part.value_length) for name in ("v", "att"))

    p.matmul(kv, kv_b, latent)
    p.copy_heads(k, 0, kv, 0, part.resting, part.heads)
    p.copy_heads(k, part.resting, k_rope, 0, part.rotating, part.heads)
    p.copy_heads(v, 0, kv, part.resting, part.value_length, part.heads)
    p.append(il, k, v)
    p.attention(att, q, il, part.heads, part.scoring)
    return att


def short_convolution(p: Recorder, part: ShortConvolution, xb: Buffer, il: int) -> Buffer:
    b, c, x, y = (p.buffer(name, part.x.outputs) for name in ("conv_b", "conv_c", "conv_x", "conv_y"))

    p.matmul(b, part.b, xb)
    p.matmul(c, part.c, xb)
    p.matmul(x, part.x, xb)
    p.gated_convolve(y, b, c, x, part.taps, il)
    return y


def mamba(p: Recorder, part: Mamba, xb: Buffer, il: int) -> Buffer:
    x, z, dt, u, y = (p.buffer(name, part.x.outputs) for name in ("ssm_x", "ssm_z", "ssm_dt", "ssm_u", "ssm_y"))
    rank = p.buffer("ssm_rank", part.dt_rank.outputs)
    b, c = p.buffer("ssm_b", part.b.outputs), p.buffer("ssm_c", part.c.outputs)

    p.matmul(x, part.x, xb)
    p.matmul(z, part.z, xb)
    p.convolve(u, x, part.taps, part.conv_bias, il)
    p.matmul(rank, part.dt_rank, u)
    p.matmul(b, part.b, u)
    p.matmul(c, part.c, u)
    p.matmul(dt, part.dt, normed(p, rank, part.dt_norm, "ssm_rank_norm"))
    b, c = normed(p, b, part.b_norm, "ssm_b_norm"), normed(p, c, part.c_norm, "ssm_c_norm")
    p.mamba(y, u, b, c, dt, z, part, il)
    return y


def mamba2(p: Recorder, part: Mamba2, xb: Buffer, il: int) -> Buffer:
    z, y = p.buffer("ssm_z", part.inner_size), p.buffer("ssm_y", part.inner_size)
    xbc, convolved = p.buffer("ssm_xbc", part.xbc.outputs), p.buffer("ssm_convolved", part.xbc.outputs)
    dt = p.buffer("ssm_dt", part.heads)

    p.matmul(z, part.z, xb)
    p.matmul(xbc, part.xbc, xb)
    p.matmul(dt, part.dt, xb)
    p.convolve(convolved, xbc, part.taps, part.conv_bias, il)
    c_first = part.inner_size + part.groups * part.state_length
    x, b, c = (Columns(convolved, first) for first in (0, part.inner_size, c_first))
    p.mamba2(y, x, b, c, dt, z, part, il)
    if part.norm is None or part.groups == 1:
        return normed(p, y, part.norm, "ssm_norm")
    p.norm_heads(y, part.groups, part.norm)
    return y


def plamo2(p: Recorder, part: Plamo2, xb: Buffer, il: int) -> Buffer:
    zx = p.buffer("ssm_zx", part.zx.outputs)
    z, x, u, y = (p.buffer(name, part.output.inputs) for name in ("ssm_z", "ssm_x", "ssm_u", "ssm_y"))
    b, c = p.buffer("ssm_b", part.b.outputs), p.buffer("ssm_c", part.c.outputs)
    rank, dt = p.buffer("ssm_rank", part.dt_rank.outputs), p.buffer("ssm_dt", part.dt.outputs)

    p.matmul(zx, part.zx, xb)
    p.split_heads(z, x, zx, part.dt.outputs)
    p.convolve(u, x, part.taps, None, il)
    p.matmul(b, part.b, u)
    p.matmul(c, part.c, u)
    p.matmul(rank, part.dt_rank, u)
    p.matmul(dt, part.dt, normed(p, rank, part.dt_norm, "ssm_rank_norm"))
    b, c = normed(p, b, part.b_norm, "ssm_b_norm"), normed(p, c, part.c_norm, "ssm_c_norm")
    p.mamba2(y, Columns(u), Columns(b), Columns(c), dt, z, part, il)
    return y


def delta_net(p: Recorder, part: GatedDeltaNet, xb: Buffer, il: int) -> Buffer:
    qkv, convolved = p.buffer("net_qkv", part.qkv.outputs), p.buffer("net_convolved", part.qkv.outputs)
    z, o = p.buffer("net_z", part.z.outputs), p.buffer("net_o", part.z.outputs)
    alpha, beta = p.buffer("net_alpha", part.heads), p.buffer("net_beta", part.heads)

    p.matmul(qkv, part.qkv, xb)
    p.matmul(z, part.z, xb)
    p.matmul(alpha, part.alpha, xb)
    p.matmul(beta, part.beta, xb)
    p.convolve(convolved, qkv, part.taps, None, il)
    p.delta_net(o, convolved, z, alpha, beta, part, il)
    return o


# --- each row by itself -----------------------------------------------------------------------------------------------


def feed_forward(p: Recorder, part: FeedForwardPart, y: Buffer, xb: Buffer, x: Buffer) -> None:
    """y = the part of xb, the norm of x, all [n_embd]"""
    match part:
        case FeedForward():
            dense(p, part, y, xb)
        case Experts():
            experts(p, part, y, xb, xb)
        case TwoPaths():
            two_paths(p, part, y, xb, x)


def dense(p: Recorder, part: FeedForward, y: Buffer, xb: Buffer) -> None:
    up = p.buffer("up", part.up.outputs)
    gate = None if part.gate is None else p.buffer("gate", part.gate.outputs)
    hidden = up if gate is None else gate

    if gate is not None and part.gate is not None:
        p.matmul(gate, part.gate, xb)
    p.matmul(up, part.up, xb)
    if part.sparsity:
        p.keep_top(hidden, part.sparsity)
    p.activate(hidden, None if gate is None else up, part.activation)
    if part.divisor is not None:
        p.divide(hidden, part.divisor)
    p.matmul(y, part.down, normed(p, hidden, part.sub_norm, "hidden_norm"))


def two_paths(p: Recorder, part: TwoPaths, y: Buffer, xb: Buffer, x: Buffer) -> None:
    path = p.buffer("path", part.network.down.outputs)
    dense(p, part.network, path, xb)
    p.norm(y, path, part.network_after)
    asking = normed(p, x, part.router_before, "router x")
    experts(p, part.experts, path, normed(p, x, part.experts_before, "hb"), asking)
    p.add(y, normed(p, path, part.experts_after, "yb"))


def experts(p: Recorder, part: Experts, y: Buffer, xb: Buffer, asking: Buffer) -> None:
    """asking: what the router reads"""
    scores, weighted = p.buffer("scores", part.router.outputs), part.weighted_inputs

    p.matmul(scores, part.router, asking)
    choice = p.route(scores, part.routing)
    inner, result = xb, y
    if part.narrow is not None:
        inner, result = (p.buffer(name, part.narrow.outputs) for name in ("narrow x", "narrow y"))
        p.matmul(inner, part.narrow, xb)
    xs = p.to_experts(inner, choice, (part.up,) if part.gate is None else (part.gate, part.up), weighted)
    gate = None if part.gate is None else p.expert_matmul("expert gate", part.gate, xs, choice)
    up = p.expert_matmul("expert up", part.up, xs, choice)
    hidden = up if gate is None else gate
    p.activate(hidden, None if gate is None else up, part.activation)
    ys = p.expert_matmul("expert y", part.down, hidden, choice)
    p.from_experts(result, ys, choice, not weighted)
    if part.widen is not None:
        p.matmul(y, part.widen, result)

    if part.shared is not None:
        shared = p.buffer("shared", part.shared.down.outputs)
        dense(p, part.shared, shared, xb)
        if part.shared_gate is not None:
            weight = p.buffer("shared weight", 1)
            p.matmul(weight, part.shared_gate, xb)
            p.gate_rows(shared, weight)
        p.add(y, shared)
