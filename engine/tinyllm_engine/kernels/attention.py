"""Attention over the paged cache, with a softmax that runs along: no buffer of heads x context anywhere.

Up to four queries at a time meet one page of 64 keys. Their scores are computed (`cached_keys`), turned into weights
relative to the page's own maximum, and the page's weighted values are summed (`cached_values`). A query keeps (maximum,
sum of weights, weighted values) of what it has seen; two such states are merged by scaling both to the common maximum.
Pages are merged in order into a run of 256 keys, runs are merged in order into the result.

A page of a type that has exact parts (see cached_types) is read from there by the rows that are in it, and by all
rows if it is the first of their sequence. All others read it as it is quantized, even when its exact part is there.

A row sees the keys from its window's begin to itself. Scores may be bent to a limit, and fall with the distance of the
key (ALiBi); a head may have a sink, one more score that takes its share of the weights and has no value.

Decode splits (head of K and V, run) over the threads; prefill splits (16 batch rows, head of K and V) and skips what
the causal mask hides. Both do the same operations in the same order for a query, so its result has the same bits
whatever the number of threads and whatever batch it came in.
"""

import numpy as np

from tinyllm_engine.jit import inlined, kernel, layout, native, record, shared
from tinyllm_engine.kernels.cached_blocks import query_bytes, ready_query, turn
from tinyllm_engine.kernels.cached_values import KEEP, STATE, TAKE, merge_values
from tinyllm_engine.kernels.elementwise import softcap8
from tinyllm_engine.simd import (
    add,
    atomic_load_i32,
    call_step,
    exp,
    exp_of_negative,
    first_lane,
    horizontal_max,
    horizontal_sum,
    keep_first,
    load_f32,
    load_f32x8,
    load_i64,
    maximum,
    mul,
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
    "k_pages",
    "v_pages",
    "k_page_bytes",  # of all heads; what they hold is in cached_types
    "v_page_bytes",
    "k_exact",  # the pages' exact parts; 0: K has none
    "v_exact",
    "k_exact_bytes",
    "v_exact_bytes",
    "k_unpack",  # step that makes float32 of a page of K, for all rows of a tile; 0: scores come from the page itself
    "v_unpack",
    "scores",  # step: scores of queries with a page of K (see cached_keys)
    "values",  # step: weighted values of a page of V (see cached_values)
    "exact_unpack",  # the same three for exact parts
    "exact_scores",
    "exact_values",
    "k_coded",  # 1: queries are quantized, for K is
    "v_turned",  # 1: values, and so what comes out, are turned (see cached_blocks)
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
    """float32 values of scratch memory a thread needs: a page of K or V, scores, queries and their states."""
    queries = max(4, TILE_ROWS * (heads // kv_heads))
    one_query = PAGE + k_size + 2 * (v_size + STATE // 4)
    return PAGE * max(k_size, v_size) + max(4 * PAGE, k_size) + queries * one_query + 64


@inlined
def behind_scores(k_size):
    """Bytes behind the scores of the last queries: steps keep scaled weights there, or a quantized query."""
    return 4 * max(4 * PAGE, k_size)


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


@inlined
def is_exact(index, position):
    """Whether the row at `position` reads a page's exact part, if there is one."""
    return index == 0 or index == position // PAGE


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
        weight = exp_of_negative(sub(load_f32x8(scores + 4 * key), shift))
        store(scores + 4 * key, weight)
        total = add(total, weight)
    merge_state(state, top, horizontal_sum(total))


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
def write_result(out, state, sums, size, sinks, head, turned):
    """out = weighted values / sum of weights, the sink's included"""
    if turned:
        turn(sums, size)
    if sinks != 0:
        merge_state(state, load_f32(sinks + 4 * head), np.float32(1.0))
        for i in range(0, 4 * size, 32):
            store(sums + i, mul(load_f32x8(sums + i), splat_at_f32x8(state + KEEP)))
    inverse = splat_f32x8(np.float32(1.0) / load_f32(state + 4))
    for i in range(0, 4 * size, 32):
        store(out + i, mul(load_f32x8(sums + i), inverse))


@inlined
def exact_part(parts, page_bytes, kv_heads, page, head):
    return parts + page * page_bytes + head * (page_bytes // kv_heads)


# --- decode: one row ---------------------------------------------------------------------------------------------


@shared
def attend_run(a, head, run, runs, position, memory):
    """The queries that share K and V head `head`, against one run of pages; leaves their partial results."""
    group = a.heads // a.kv_heads
    table = load_i64(a.tables)
    part_bytes = 4 * (2 + a.v_size)
    scores = memory
    states = scores + 16 * PAGE + behind_scores(a.k_size)
    sums = states + 4 * STATE
    queries, query_size = sums + 16 * a.v_size, query_bytes(a.k_coded, a.k_size)
    all_keys = a.k_pages + head * (a.k_page_bytes // a.kv_heads)
    all_values = a.v_pages + head * (a.v_page_bytes // a.kv_heads)
    begin = window_begin(position, a.window)
    first_page, last_page = max(run * RUN, begin // PAGE), min(position // PAGE + 1, (run + 1) * RUN)
    together = 3 if (group + 2) // 3 * 3 < (group + 3) // 4 * 4 else 4  # whichever leaves less room empty
    for first in range(0, group, together):
        count = min(together, group - first)
        query = head * group + first
        for t in range(4):
            q = a.q + 4 * (query + min(t, count - 1)) * a.k_size
            ready_query(a.k_coded, q, a.k_size, a.scale, queries + t * query_size)
            clear_query(states + t * STATE, sums + 4 * t * a.v_size, a.v_size)
        for index in range(first_page, last_page):
            page = load_i64(table + 8 * index)
            keys, values = all_keys + page * a.k_page_bytes, all_values + page * a.v_page_bytes
            scores_step, values_step = a.scores, a.values
            if is_exact(index, position):
                if a.k_exact != 0:
                    keys, scores_step = exact_part(a.k_exact, a.k_exact_bytes, a.kv_heads, page, head), a.exact_scores
                if a.v_exact != 0:
                    values, values_step = exact_part(a.v_exact, a.v_exact_bytes, a.kv_heads, page, head), a.exact_values
            next_keys = all_keys + load_i64(table + 8 * min(index + 1, position // PAGE)) * a.k_page_bytes
            distance = position - index * PAGE
            hidden, visible = begin - index * PAGE, min(PAGE, distance + 1)
            call_step(scores_step, (count, queries, keys, a.k_size, scores, values))
            for t in range(count):
                bend_scores(a, query + t, scores + 4 * t * PAGE, distance)
                softmax_page(scores + 4 * t * PAGE, hidden, visible, states + t * STATE)
            call_step(values_step, (count, scores, values, visible, a.v_size, states, sums, next_keys))
        for t in range(count):
            part = a.parts + ((query + t) * runs + run) * part_bytes
            store_f32(part, load_f32(states + t * STATE))
            store_f32(part + 4, load_f32(states + t * STATE + 4))
            for i in range(0, a.v_size, 8):
                store(part + 8 + 4 * i, load_f32x8(sums + 4 * (t * a.v_size + i)))


@kernel(ATTEND)
def attend_one(thread, threads, pointer):
    a = record(pointer)
    position = load_i64(a.positions)
    runs = position // (PAGE * RUN) + 1
    items = a.kv_heads * runs
    memory = a.scratch + thread * a.scratch_bytes
    for item in range(items * thread // threads, items * (thread + 1) // threads):
        if atomic_load_i32(load_i64(a.cancel)) != 0:
            return
        attend_run(a, item // runs, item % runs, runs, position, memory)


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
        write_result(a.out + 4 * head * a.v_size, memory, memory + STATE, a.v_size, a.sinks, head, a.v_turned)


# --- prefill: many rows ------------------------------------------------------------------------------------------


@shared
def weigh(a, row, query, queries, head, first_key, scores, state):
    """Scores of a tile's query with the keys of a page become weights."""
    group, index = a.heads // a.kv_heads, min(query, queries - 1)
    position = load_i64(a.positions + 8 * (row + index // group))
    bend_scores(a, head * group + index % group, scores, position - first_key)
    hidden = window_begin(position, a.window) - first_key
    softmax_page(scores, hidden, min(PAGE, position + 1 - first_key), state)


@shared
def seen_by_four(a, row, query, queries, first_key):
    """How many keys of a page some of four queries of a tile see; 0: none of them sees any."""
    group = a.heads // a.kv_heads
    earliest = load_i64(a.positions + 8 * (row + query // group))
    latest = load_i64(a.positions + 8 * (row + min(query + 3, queries - 1) // group))
    return 0 if window_begin(earliest, a.window) - first_key >= PAGE else max(0, min(PAGE, latest + 1 - first_key))


@shared
def attend_tile(a, row, rows, head, memory):
    """`rows` batch rows that go together, all heads that share K and V head `head`.

    Query number i of a tile is that of row i // group: rows in order, and in a row the heads that share K and V.
    All of them meet a page's keys before any meets its values, so that one of the two is in the nearest cache.
    """
    group = a.heads // a.kv_heads
    queries = rows * group
    unpacked = memory
    scores = unpacked + 4 * PAGE * max(a.k_size, a.v_size)
    padded = (queries + 3) // 4 * 4
    states = scores + 4 * PAGE * padded + behind_scores(a.k_size)
    totals = states + STATE * padded
    sums = totals + STATE * padded
    total_sums = sums + 4 * padded * a.v_size
    ready, query_size = total_sums + 4 * padded * a.v_size, query_bytes(a.k_coded, a.k_size)
    for query in range(padded):
        index = min(query, queries - 1)
        q = a.q + 4 * ((row + index // group) * a.heads + head * group + index % group) * a.k_size
        ready_query(a.k_coded, q, a.k_size, a.scale, ready + query * query_size)
        clear_query(totals + STATE * query, total_sums + 4 * query * a.v_size, a.v_size)
    table = load_i64(a.tables + 8 * row)
    begin = window_begin(load_i64(a.positions + 8 * row), a.window)
    last = load_i64(a.positions + 8 * (row + rows - 1))
    for index in range(begin // (PAGE * RUN) * RUN, last // PAGE + 1):
        if index % RUN == 0:
            for query in range(padded):
                clear_query(states + STATE * query, sums + 4 * query * a.v_size, a.v_size)
        page, first_key = load_i64(table + 8 * index), index * PAGE
        keys = a.k_pages + page * a.k_page_bytes + head * (a.k_page_bytes // a.kv_heads)
        values = a.v_pages + page * a.v_page_bytes + head * (a.v_page_bytes // a.kv_heads)
        scores_step, values_step, k_unpack, v_unpack = a.scores, a.values, a.k_unpack, a.v_unpack
        if is_exact(index, last):
            if a.k_exact != 0:
                keys = exact_part(a.k_exact, a.k_exact_bytes, a.kv_heads, page, head)
                scores_step, k_unpack = a.exact_scores, a.exact_unpack
            if a.v_exact != 0:
                values = exact_part(a.v_exact, a.v_exact_bytes, a.kv_heads, page, head)
                values_step, v_unpack = a.exact_values, a.exact_unpack
        if k_unpack != 0:
            call_step(k_unpack, (keys, PAGE * a.k_size, unpacked))
            keys = unpacked
        for query in range(0, queries, 4):
            if seen_by_four(a, row, query, queries, first_key) > 0:
                q, out = ready + query * query_size, scores + 4 * PAGE * query
                call_step(scores_step, (4, q, keys, a.k_size, out, keys))
                for t in range(4):
                    weigh(a, row, query + t, queries, head, first_key, out + 4 * t * PAGE, states + (query + t) * STATE)
        if v_unpack != 0:
            call_step(v_unpack, (values, min(PAGE, last + 1 - first_key) * a.v_size, unpacked))
            values = unpacked
        for query in range(padded - 4, -1, -4):  # from the last on: the step writes behind the weights it is given
            visible = seen_by_four(a, row, query, queries, first_key)
            if visible > 0:
                weights, out = scores + 4 * PAGE * query, sums + 4 * query * a.v_size
                call_step(values_step, (4, weights, values, visible, a.v_size, states + STATE * query, out, values))
        if index % RUN == RUN - 1 or index == last // PAGE:
            for query in range(queries):
                at = 4 * query * a.v_size
                merge_run(totals + STATE * query, total_sums + at, states + STATE * query, sums + at, a.v_size)
    for query in range(queries):
        query_head = head * group + query % group
        out = a.out + 4 * ((row + query // group) * a.heads + query_head) * a.v_size
        state, values = totals + STATE * query, total_sums + 4 * query * a.v_size
        write_result(out, state, values, a.v_size, a.sinks, query_head, a.v_turned)


@inlined
def tile_count(count, group, kv_heads, threads):
    """So many tiles that the threads end together: the last of few may otherwise keep one busy alone.

    A tile costs each of its threads the unpacking of the pages, about half of what four queries cost.
    """
    fewest = (count + TILE_ROWS - 1) // TILE_ROWS
    best, least = fewest, 0
    for tiles in range(fewest, min(count, fewest + threads) + 1):
        fours = ((count + tiles - 1) // tiles * group + 3) // 4
        cost = (tiles * kv_heads + threads - 1) // threads * (1 + 2 * fours)
        if tiles == fewest or cost < least:
            best, least = tiles, cost
    return best


@inlined
def go_together(a, row, other):
    """Whether two rows see the same pages in the same way: those of one sequence, exact or not."""
    if load_i64(a.tables + 8 * row) != load_i64(a.tables + 8 * other):
        return False
    if a.k_exact == 0 and a.v_exact == 0:
        return True
    return load_i64(a.positions + 8 * row) // PAGE == load_i64(a.positions + 8 * other) // PAGE


@kernel(ATTEND)
def attend_many(thread, threads, pointer):
    """Tiles go round the threads, the late and long ones as evenly as the early ones."""
    a = record(pointer)
    count = load_i64(a.count)
    tiles = tile_count(count, a.heads // a.kv_heads, a.kv_heads, threads)
    memory = a.scratch + thread * a.scratch_bytes
    item = 0
    for tile in range(tiles):
        row, end = count * tile // tiles, count * (tile + 1) // tiles
        for head in range(a.kv_heads):
            item += 1
            if item % threads != thread:
                continue
            if atomic_load_i32(load_i64(a.cancel)) != 0:
                return
            start = row
            while start < end:  # a tile may hold rows of several sequences, and of several pages
                rows = 1
                while start + rows < end and go_together(a, start, start + rows):
                    rows += 1
                attend_tile(a, start, rows, head, memory)
                start += rows
