"""Attention over the paged cache, with a softmax that runs along: no buffer of heads x context anywhere.

Four queries at a time meet one page of 64 keys. Scores are computed for 16 keys at once (K lies transposed in its
page), turned into weights relative to the page's own maximum, and the page's weighted values are summed. A query keeps
(maximum, sum of weights, weighted values) of what it has seen; two such states are merged by scaling both to the common
maximum. Pages are merged in order into a run of 256 keys, runs are merged in order into the result.

A row sees the keys from its window's begin to itself. Scores may be bent to a limit, and fall with the distance of the
key (ALiBi); a head may have a sink, one more score that takes its share of the weights and has no value.

Decode splits (head of K and V, run) over the threads; prefill splits (16 batch rows, head of K and V) and skips what
the causal mask hides. Both do the same operations in the same order for a query, so its result has the same bits
whatever the number of threads and whatever batch it came in.
"""

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record, shared
from tinyllm_engine.kernels.elementwise import softcap8
from tinyllm_engine.simd import (
    add,
    atomic_load_i32,
    exp,
    first_lane,
    fma,
    horizontal_max,
    horizontal_sum,
    keep_first,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_i64,
    maximum,
    mul,
    prefetch,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    sub,
    zero_f32x8,
)

PAGE = 64
TILE_ROWS = 16  # batch rows that share the unpacking of a page
RUN = 4  # pages
MINUS_INFINITY = np.float32(-np.inf)
# What is known of a query: the maximum of its scores, the sum of its weights, and the two factors by which the last
# merge scales the values so far and the new ones. float32, in this order.
STATE = 16
KEEP, TAKE = 8, 12

ATTEND = layout(
    "q",  # float32 [count, heads, k_size], already rotated
    "heads",
    "kv_heads",
    "k_size",
    "v_size",
    "scale:f",
    "window",  # keys that a row sees, itself included; 0: all; -n: those of its own chunk of n
    "softcap:f",  # scores become softcap * tanh(score / softcap); 0: they stay
    "slopes",  # float32 [heads]: what a score loses per key of distance, or 0
    "sinks",  # float32 [heads], or 0
    "k_pages",  # page p, head h: [k_size][64]
    "v_pages",  # page p, head h: [64][v_size]
    "k_page_bytes",
    "v_page_bytes",
    "positions",  # int64 [count]
    "tables",  # int64 [count]: address of the row's page table
    "count",
    "cancel",
    "parts",  # decode: float32 [heads][runs][2 + v_size]: maximum, sum of weights, weighted values
    "scratch",
    "scratch_bytes",
    "out",  # float32 [count, heads, v_size]
)


def max_runs(context_length: int) -> int:
    """Runs that a sequence of this length can have."""
    return -(-context_length // (PAGE * RUN))


def scratch_floats(heads: int, kv_heads: int, k_size: int, v_size: int) -> int:
    """float32 values of scratch memory a thread needs: a page of K, one of V, scores, and the state of each query."""
    queries = max(4, TILE_ROWS * (heads // kv_heads))
    return PAGE * (k_size + v_size) + 4 * PAGE + 2 * queries * (v_size + STATE // 4) + 64


@inlined
def fetch_line(ahead, line):
    """Asks for a cache line of what comes next; nothing where there is none."""
    if ahead is not None:
        prefetch(ahead + 64 * line)


@native
def scores4(q0, q1, q2, q3, keys, size, scale, load8, element_bytes, scores, ahead):
    """scores[t][key] = scale * q_t . k for 4 queries and the 64 keys of a page.

    ahead: what the cache is asked for meanwhile, as many bytes as the page of keys has; or None
    """
    factor = splat_f32x8(scale)
    for key in range(0, PAGE, 16):
        a0, a1, b0, b1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, d0, d1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            if key % 32 == 0:
                fetch_line(ahead, i + key // 32 * size)
            k0, k1 = load8(at), load8(at + 8 * element_bytes)
            q = splat_at_f32x8(q0 + 4 * i)
            a0, a1 = fma(k0, q, a0), fma(k1, q, a1)
            q = splat_at_f32x8(q1 + 4 * i)
            b0, b1 = fma(k0, q, b0), fma(k1, q, b1)
            q = splat_at_f32x8(q2 + 4 * i)
            c0, c1 = fma(k0, q, c0), fma(k1, q, c1)
            q = splat_at_f32x8(q3 + 4 * i)
            d0, d1 = fma(k0, q, d0), fma(k1, q, d1)
        out = scores + 4 * key
        store(out, mul(a0, factor))
        store(out + 32, mul(a1, factor))
        store(out + 4 * PAGE, mul(b0, factor))
        store(out + 4 * PAGE + 32, mul(b1, factor))
        store(out + 8 * PAGE, mul(c0, factor))
        store(out + 8 * PAGE + 32, mul(c1, factor))
        store(out + 12 * PAGE, mul(d0, factor))
        store(out + 12 * PAGE + 32, mul(d1, factor))


@native
def scores3(q0, q1, q2, keys, size, scale, load8, element_bytes, scores, ahead):
    """The same for 3 queries."""
    factor = splat_f32x8(scale)
    for key in range(0, PAGE, 32):
        a0, a1, a2, a3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        b0, b1, b2, b3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, c2, c3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            fetch_line(ahead, i + key // 32 * size)
            a, b, c = splat_at_f32x8(q0 + 4 * i), splat_at_f32x8(q1 + 4 * i), splat_at_f32x8(q2 + 4 * i)
            k = load8(at)
            a0, b0, c0 = fma(k, a, a0), fma(k, b, b0), fma(k, c, c0)
            k = load8(at + 8 * element_bytes)
            a1, b1, c1 = fma(k, a, a1), fma(k, b, b1), fma(k, c, c1)
            k = load8(at + 16 * element_bytes)
            a2, b2, c2 = fma(k, a, a2), fma(k, b, b2), fma(k, c, c2)
            k = load8(at + 24 * element_bytes)
            a3, b3, c3 = fma(k, a, a3), fma(k, b, b3), fma(k, c, c3)
        out = scores + 4 * key
        store4(out, mul(a0, factor), mul(a1, factor), mul(a2, factor), mul(a3, factor))
        store4(out + 4 * PAGE, mul(b0, factor), mul(b1, factor), mul(b2, factor), mul(b3, factor))
        store4(out + 8 * PAGE, mul(c0, factor), mul(c1, factor), mul(c2, factor), mul(c3, factor))


@inlined
def store4(out, a, b, c, d):
    store(out, a)
    store(out + 32, b)
    store(out + 64, c)
    store(out + 96, d)


@native
def scores1(q, keys, size, scale, load8, element_bytes, scores, ahead):
    """The same for one query."""
    factor = splat_f32x8(scale)
    for key in range(0, PAGE, 32):
        s0, s1, s2, s3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for i in range(size):
            at = keys + (i * PAGE + key) * element_bytes
            fetch_line(ahead, i + key // 32 * size)
            element = splat_at_f32x8(q + 4 * i)
            s0 = fma(load8(at), element, s0)
            s1 = fma(load8(at + 8 * element_bytes), element, s1)
            s2 = fma(load8(at + 16 * element_bytes), element, s2)
            s3 = fma(load8(at + 24 * element_bytes), element, s3)
        store4(scores + 4 * key, mul(s0, factor), mul(s1, factor), mul(s2, factor), mul(s3, factor))


@native
def merge_state(state, top, total):
    """Folds (maximum, sum of weights) into a state, and leaves the factors of its values and of the new ones there."""
    old = load_f32(state)
    new = max(old, top)
    keep, take = first_lane(exp(splat_f32x8(old - new))), first_lane(exp(splat_f32x8(top - new)))
    store_f32(state, new)
    store_f32(state + 4, load_f32(state + 4) * keep + total * take)
    store_f32(state + KEEP, keep)
    store_f32(state + TAKE, take)


@inlined
def window_begin(position, window):
    """The first key that the row at `position` sees."""
    if window < 0:
        return position - position % -window
    return max(0, position + 1 - window) if window > 0 else 0


@native
def bend_page(scores, softcap, slope, distance):
    """Limits a page's scores, and takes off what its keys' distances cost; `distance` is that of the page's first."""
    if softcap != 0:
        for key in range(0, PAGE, 8):
            store(scores + 4 * key, softcap8(load_f32x8(scores + 4 * key), softcap))
    if slope != 0:
        for key in range(PAGE):
            at = scores + 4 * key
            store_f32(at, load_f32(at) - slope * np.float32(distance - key))


@inlined
def bend_scores(a, head, scores, distance):
    if a.softcap != 0 or a.slopes != 0:
        slope = load_f32(a.slopes + 4 * head) if a.slopes != 0 else np.float32(0.0)
        bend_page(scores, a.softcap, slope, distance)


@native
def softmax_page(scores, hidden, visible, state):
    """Turns the scores of one query into weights and folds them into its state.

    Keys before `hidden` and from `visible` on get weight 0.
    """
    if visible <= max(0, hidden):
        for key in range(0, PAGE, 8):
            store(scores + 4 * key, zero_f32x8())
        store_f32(state + KEEP, np.float32(1.0))
        store_f32(state + TAKE, np.float32(0.0))
        return
    for key in range(hidden):
        store_f32(scores + 4 * key, MINUS_INFINITY)
    tops = splat_f32x8(MINUS_INFINITY)
    for key in range(0, PAGE, 8):
        s = load_f32x8(scores + 4 * key)
        if visible < PAGE:
            s = keep_first(s, visible - key)
            store(scores + 4 * key, s)
        tops = maximum(tops, s)
    top = horizontal_max(tops)
    shift, total = splat_f32x8(top), zero_f32x8()
    for key in range(0, PAGE, 8):
        weight = exp(sub(load_f32x8(scores + 4 * key), shift))
        store(scores + 4 * key, weight)
        total = add(total, weight)
    merge_state(state, top, horizontal_sum(total))


@inlined
def merge_values(out, values, state):
    """Folds 8 new values into those so far, by the factors of the query's state."""
    kept = mul(load_f32x8(out), splat_at_f32x8(state + KEEP))
    store(out, fma(values, splat_at_f32x8(state + TAKE), kept))


@native
def values3(weights, values, keys, size, load8, element_bytes, states, out, stride, ahead):
    """The same for 3 queries."""
    for i in range(0, size // 32 * 32, 32):
        a0, a1, a2, a3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        b0, b1, b2, b3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, c2, c3 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for key in range(keys):
            at, w = values + (key * size + i) * element_bytes, weights + 4 * key
            fetch_line(ahead, key + 2 * i)
            a, b, c = splat_at_f32x8(w), splat_at_f32x8(w + 4 * PAGE), splat_at_f32x8(w + 8 * PAGE)
            v = load8(at)
            a0, b0, c0 = fma(v, a, a0), fma(v, b, b0), fma(v, c, c0)
            v = load8(at + 8 * element_bytes)
            a1, b1, c1 = fma(v, a, a1), fma(v, b, b1), fma(v, c, c1)
            v = load8(at + 16 * element_bytes)
            a2, b2, c2 = fma(v, a, a2), fma(v, b, b2), fma(v, c, c2)
            v = load8(at + 24 * element_bytes)
            a3, b3, c3 = fma(v, a, a3), fma(v, b, b3), fma(v, c, c3)
        merge4(out + 4 * i, a0, a1, a2, a3, states)
        merge4(out + 4 * i + stride, b0, b1, b2, b3, states + STATE)
        merge4(out + 4 * i + 2 * stride, c0, c1, c2, c3, states + 2 * STATE)
    for i in range(size // 32 * 32, size, 8):
        for t in range(3):
            values8(
                weights + 4 * t * PAGE,
                values,
                keys,
                size,
                i,
                load8,
                element_bytes,
                states + t * STATE,
                out + t * stride,
            )


@inlined
def merge4(out, a, b, c, d, state):
    merge_values(out, a, state)
    merge_values(out + 32, b, state)
    merge_values(out + 64, c, state)
    merge_values(out + 96, d, state)


@native
def values8(weights, values, keys, size, i, load8, element_bytes, state, out):
    """The 8 elements from `i` on, for one query."""
    total = zero_f32x8()
    for key in range(keys):
        total = fma(load8(values + (key * size + i) * element_bytes), splat_at_f32x8(weights + 4 * key), total)
    merge_values(out + 4 * i, total, state)


@native
def values4(weights, values, keys, size, load8, element_bytes, states, out, stride, ahead):
    """Folds a page's weighted values into those of 4 queries, which lie `stride` bytes apart."""
    for i in range(0, size // 16 * 16, 16):
        a0, a1, b0, b1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        c0, c1, d0, d1 = zero_f32x8(), zero_f32x8(), zero_f32x8(), zero_f32x8()
        for key in range(keys):
            at = values + (key * size + i) * element_bytes
            fetch_line(ahead, key + 4 * i)
            v0, v1 = load8(at), load8(at + 8 * element_bytes)
            w = splat_at_f32x8(weights + 4 * key)
            a0, a1 = fma(v0, w, a0), fma(v1, w, a1)
            w = splat_at_f32x8(weights + 4 * PAGE + 4 * key)
            b0, b1 = fma(v0, w, b0), fma(v1, w, b1)
            w = splat_at_f32x8(weights + 8 * PAGE + 4 * key)
            c0, c1 = fma(v0, w, c0), fma(v1, w, c1)
            w = splat_at_f32x8(weights + 12 * PAGE + 4 * key)
            d0, d1 = fma(v0, w, d0), fma(v1, w, d1)
        o = out + 4 * i
        merge_values(o, a0, states)
        merge_values(o + 32, a1, states)
        merge_values(o + stride, b0, states + STATE)
        merge_values(o + stride + 32, b1, states + STATE)
        merge_values(o + 2 * stride, c0, states + 2 * STATE)
        merge_values(o + 2 * stride + 32, c1, states + 2 * STATE)
        merge_values(o + 3 * stride, d0, states + 3 * STATE)
        merge_values(o + 3 * stride + 32, d1, states + 3 * STATE)
    if size % 16 != 0:
        for t in range(4):
            values8(
                weights + 4 * t * PAGE, values, keys, size, size - 8, load8, element_bytes,
                states + t * STATE, out + t * stride,
            )  # fmt: skip


@native
def values1(weights, values, keys, size, load8, element_bytes, state, out, ahead):
    """The same for one query."""
    for i in range(0, size // 16 * 16, 16):
        a0, a1 = zero_f32x8(), zero_f32x8()
        for key in range(keys):
            at = values + (key * size + i) * element_bytes
            fetch_line(ahead, key + 4 * i)
            w = splat_at_f32x8(weights + 4 * key)
            a0, a1 = fma(load8(at), w, a0), fma(load8(at + 8 * element_bytes), w, a1)
        merge_values(out + 4 * i, a0, state)
        merge_values(out + 4 * i + 32, a1, state)
    if size % 16 != 0:
        values8(weights, values, keys, size, size - 8, load8, element_bytes, state, out)


@native
def clear_query(state, sums, size):
    store_f32(state, MINUS_INFINITY)
    store_f32(state + 4, np.float32(0.0))
    for i in range(0, size, 8):
        store(sums + 4 * i, zero_f32x8())


@native
def merge_run(total_state, total_sums, state, sums, size):
    """Folds the state of a run into the total of its query; a run in which nothing was visible changes nothing."""
    top = load_f32(state)
    if top == MINUS_INFINITY:
        return
    merge_state(total_state, top, load_f32(state + 4))
    for i in range(0, 4 * size, 32):
        merge_values(total_sums + i, load_f32x8(sums + i), total_state)


@native
def write_result(out, state, sums, size, sinks, head):
    """out = weighted values / sum of weights, the sink's included"""
    if sinks != 0:
        merge_state(state, load_f32(sinks + 4 * head), np.float32(1.0))
        for i in range(0, 4 * size, 32):
            store(sums + i, mul(load_f32x8(sums + i), splat_at_f32x8(state + KEEP)))
    inverse = splat_f32x8(np.float32(1.0) / load_f32(state + 4))
    for i in range(0, 4 * size, 32):
        store(out + i, mul(load_f32x8(sums + i), inverse))


# --- decode: one row ---------------------------------------------------------------------------------------------


@shared
def attend_run(a, head, run, runs, position, memory, load8, element_bytes):
    """The queries that share K and V head `head`, against one run of pages; leaves their partial results."""
    group = a.heads // a.kv_heads
    table = load_i64(a.tables)
    part_bytes = 4 * (2 + a.v_size)
    scores, states = memory, memory + 16 * PAGE
    sums = states + 4 * STATE
    begin = window_begin(position, a.window)
    first_page, last_page = max(run * RUN, begin // PAGE), min(position // PAGE + 1, (run + 1) * RUN)
    together = 3 if (group + 2) // 3 * 3 < (group + 3) // 4 * 4 else 4  # whichever leaves less room empty
    for first in range(0, group, together):
        count = min(together, group - first)
        query = head * group + first
        q0 = a.q + 4 * query * a.k_size
        q1 = q0 + 4 * a.k_size * min(1, count - 1)
        q2 = q0 + 4 * a.k_size * min(2, count - 1)
        q3 = q0 + 4 * a.k_size * min(3, count - 1)
        for t in range(4):
            clear_query(states + t * STATE, sums + 4 * t * a.v_size, a.v_size)
        for index in range(first_page, last_page):
            page = load_i64(table + 8 * index)
            keys = a.k_pages + page * a.k_page_bytes + head * a.k_size * PAGE * element_bytes
            values = a.v_pages + page * a.v_page_bytes + head * a.v_size * PAGE * element_bytes
            following = load_i64(table + 8 * min(index + 1, position // PAGE)) * a.k_page_bytes
            next_keys = a.k_pages + following + head * a.k_size * PAGE * element_bytes
            distance = position - index * PAGE
            hidden, visible = begin - index * PAGE, min(PAGE, distance + 1)
            if count == 1:
                scores1(q0, keys, a.k_size, a.scale, load8, element_bytes, scores, values)
            elif count < 4:
                scores3(q0, q1, q2, keys, a.k_size, a.scale, load8, element_bytes, scores, values)
            else:
                scores4(q0, q1, q2, q3, keys, a.k_size, a.scale, load8, element_bytes, scores, values)
            for t in range(count):
                bend_scores(a, query + t, scores + 4 * t * PAGE, distance)
                softmax_page(scores + 4 * t * PAGE, hidden, visible, states + t * STATE)
            if count == 1:
                values1(scores, values, visible, a.v_size, load8, element_bytes, states, sums, next_keys)
            elif count < 4:
                values3(scores, values, visible, a.v_size, load8, element_bytes, states, sums, 4 * a.v_size, next_keys)
            else:
                values4(scores, values, visible, a.v_size, load8, element_bytes, states, sums, 4 * a.v_size, next_keys)
        for t in range(count):
            part = a.parts + ((query + t) * runs + run) * part_bytes
            store_f32(part, load_f32(states + t * STATE))
            store_f32(part + 4, load_f32(states + t * STATE + 4))
            for i in range(0, a.v_size, 8):
                store(part + 8 + 4 * i, load_f32x8(sums + 4 * (t * a.v_size + i)))


@shared
def attend_one(thread, threads, pointer, load8, element_bytes):
    a = record(pointer)
    position = load_i64(a.positions)
    runs = position // (PAGE * RUN) + 1
    items = a.kv_heads * runs
    memory = a.scratch + thread * a.scratch_bytes
    for item in range(items * thread // threads, items * (thread + 1) // threads):
        if atomic_load_i32(load_i64(a.cancel)) != 0:
            return
        attend_run(a, item // runs, item % runs, runs, position, memory, load8, element_bytes)


@kernel(ATTEND)
def merge_runs(thread, threads, pointer):
    """Merges the runs of each head in order."""
    a = record(pointer)
    runs = load_i64(a.positions) // (PAGE * RUN) + 1
    part_bytes = 4 * (2 + a.v_size)
    memory = a.scratch + thread * a.scratch_bytes
    for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
        clear_query(memory, memory + STATE, a.v_size)
        for run in range(runs):
            part = a.parts + (head * runs + run) * part_bytes
            merge_run(memory, memory + STATE, part, part + 8, a.v_size)
        write_result(a.out + 4 * head * a.v_size, memory, memory + STATE, a.v_size, a.sinks, head)


# --- prefill: many rows ------------------------------------------------------------------------------------------


@shared
def unpack_page(keys, values, k_size, v_size, stored, load8, element_bytes, k_out, v_out):
    """A page of K and V as float32; rows of V from `stored` on are cleared (they may hold anything)."""
    for i in range(0, k_size * PAGE, 8):
        store(k_out + 4 * i, load8(keys + i * element_bytes))
    for i in range(0, stored * v_size, 8):
        store(v_out + 4 * i, load8(values + i * element_bytes))
    for i in range(stored * v_size, PAGE * v_size, 8):
        store(v_out + 4 * i, zero_f32x8())


@inlined
def query_address(a, row, query, queries, head, group):
    """Query number `query` of a tile: its rows in order, and in a row the heads that share one of K and V."""
    index = min(query, queries - 1)
    return a.q + 4 * ((row + index // group) * a.heads + head * group + index % group) * a.k_size


@shared
def weigh(a, row, query, queries, head, first_key, scores, state):
    """Scores of a tile's query with the keys of a page become weights."""
    group, index = a.heads // a.kv_heads, min(query, queries - 1)
    position = load_i64(a.positions + 8 * (row + index // group))
    bend_scores(a, head * group + index % group, scores, position - first_key)
    hidden = window_begin(position, a.window) - first_key
    softmax_page(scores, hidden, min(PAGE, position + 1 - first_key), state)


@shared
def attend_tile(a, row, rows, head, memory, load8, element_bytes):
    """`rows` batch rows of one sequence, all heads that share K and V head `head`."""
    group = a.heads // a.kv_heads
    queries = rows * group
    k_page, v_page = memory, memory + 4 * PAGE * a.k_size
    scores = v_page + 4 * PAGE * a.v_size
    padded = (queries + 3) // 4 * 4
    states = scores + 16 * PAGE
    totals = states + STATE * padded
    sums = totals + STATE * padded
    total_sums = sums + 4 * padded * a.v_size
    for query in range(padded):
        clear_query(totals + STATE * query, total_sums + 4 * query * a.v_size, a.v_size)
    table = load_i64(a.tables + 8 * row)
    begin = window_begin(load_i64(a.positions + 8 * row), a.window)
    last = load_i64(a.positions + 8 * (row + rows - 1))
    for index in range(begin // (PAGE * RUN) * RUN, last // PAGE + 1):
        if index % RUN == 0:
            for query in range(padded):
                clear_query(states + STATE * query, sums + 4 * query * a.v_size, a.v_size)
        page, first_key = load_i64(table + 8 * index), index * PAGE
        keys = a.k_pages + page * a.k_page_bytes + head * a.k_size * PAGE * element_bytes
        values = a.v_pages + page * a.v_page_bytes + head * a.v_size * PAGE * element_bytes
        stored = min(PAGE, last + 1 - first_key)
        unpack_page(keys, values, a.k_size, a.v_size, stored, load8, element_bytes, k_page, v_page)
        for query in range(0, queries, 4):
            earliest = load_i64(a.positions + 8 * (row + query // group))
            latest = load_i64(a.positions + 8 * (row + min(query + 3, queries - 1) // group))
            visible = min(PAGE, latest + 1 - first_key)
            if visible <= 0 or window_begin(earliest, a.window) - first_key >= PAGE:
                continue
            q0 = query_address(a, row, query, queries, head, group)
            q1 = query_address(a, row, query + 1, queries, head, group)
            q2 = query_address(a, row, query + 2, queries, head, group)
            q3 = query_address(a, row, query + 3, queries, head, group)
            scores4(q0, q1, q2, q3, k_page, a.k_size, a.scale, load_f32x8, 4, scores, None)
            state, out = states + STATE * query, sums + 4 * query * a.v_size
            for t in range(4):
                weigh(a, row, query + t, queries, head, first_key, scores + 4 * t * PAGE, state + t * STATE)
            values4(scores, v_page, visible, a.v_size, load_f32x8, 4, state, out, 4 * a.v_size, None)
        if index % RUN == RUN - 1 or index == last // PAGE:
            for query in range(queries):
                at = 4 * query * a.v_size
                merge_run(totals + STATE * query, total_sums + at, states + STATE * query, sums + at, a.v_size)
    for query in range(queries):
        query_head = head * group + query % group
        out = a.out + 4 * ((row + query // group) * a.heads + query_head) * a.v_size
        write_result(out, totals + STATE * query, total_sums + 4 * query * a.v_size, a.v_size, a.sinks, query_head)


@shared
def attend_many(thread, threads, pointer, load8, element_bytes):
    """Tiles go round the threads, the late and long ones as evenly as the early ones."""
    a = record(pointer)
    count = load_i64(a.count)
    memory = a.scratch + thread * a.scratch_bytes
    item = 0
    for start in range(0, count, TILE_ROWS):
        end = min(count, start + TILE_ROWS)
        for head in range(a.kv_heads):
            item += 1
            if item % threads != thread:
                continue
            if atomic_load_i32(load_i64(a.cancel)) != 0:
                return
            row = start
            while row < end:  # a tile may hold rows of several sequences
                rows = 1
                while row + rows < end and load_i64(a.tables + 8 * (row + rows)) == load_i64(a.tables + 8 * row):
                    rows += 1
                attend_tile(a, row, rows, head, memory, load8, element_bytes)
                row += rows


@kernel(ATTEND)
def attend_one_f16(thread, threads, pointer):
    attend_one(thread, threads, pointer, load_f16x8, 2)


@kernel(ATTEND)
def attend_one_f32(thread, threads, pointer):
    attend_one(thread, threads, pointer, load_f32x8, 4)


@kernel(ATTEND)
def attend_many_f16(thread, threads, pointer):
    attend_many(thread, threads, pointer, load_f16x8, 2)


@kernel(ATTEND)
def attend_many_f32(thread, threads, pointer):
    attend_many(thread, threads, pointer, load_f32x8, 4)
