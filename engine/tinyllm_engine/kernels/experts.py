"""Mixtures of experts: which experts a row goes to, the rows of each expert side by side, and what comes back.

A router scores every expert for every row. `route` chooses the best and weighs them, `group_rows` gives each pair of
row and chosen expert a place among the rows of its expert (see stacks), the gather kernels fill the places, and
`mix_rows` adds up what the experts made of a row. A place depends on the other rows of the batch, the sum of a row
does not: it follows the order in which its experts were chosen, so it has the same bits in every batch.
"""

import math

import numpy as np

from tinyllm_engine.agreed import SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS
from tinyllm_engine.jit import kernel, layout, native, record
from tinyllm_engine.kernels.partition import owned
from tinyllm_engine.kernels.stacks import GROUP_BYTES
from tinyllm_engine.simd import (
    add,
    fma,
    load_f32,
    load_f32x8,
    load_i8x32,
    load_i64,
    mul,
    splat_at_f32x8,
    splat_f32x8,
    store,
    store_f32,
    store_i64,
    zero_f32x8,
)

MINUS_INFINITY, NOT_A_NUMBER = np.float32(-np.inf), np.float32(np.nan)
SMALLEST_SUM = np.float32(6.103515625e-5)  # of weights that are divided by their sum: the smallest normal half

ROUTE = layout(
    "scores",  # float32 [count, experts]
    "experts",
    "used",  # experts a row goes to
    "gating",  # SOFTMAX, ...: makes weights of scores
    "ranking",  # the same: makes of scores what decides
    "bias",  # float32 [experts], added to what decides, or 0
    "sections",  # experts lie in so many sections, of which only the best are looked at; 1: in all
    "sections_used",
    "normalized",  # whether a row's weights are divided by their sum
    "weight_scale:f",
    "count",
    "chosen",  # int64 [count, used], the best first; of equal ones that of the lowest number
    "weights",  # float32 [count, used]
    "scratch",  # per thread: float32 [2 * experts + sections]
    "scratch_bytes",
)

GROUP_ROWS = layout(
    "chosen",
    "used",
    "experts",
    "count",
    "tile",  # an expert's rows begin at a multiple of this
    "counts",  # int64 [experts], scratch
    "groups",  # as stacks describes them
    "places",  # int64 [count, used]: the row of each pair
    "rows",  # address where the number of rows goes, the unused ones between groups included
)

# out[places[row, k]] = x[row], or weights[row, k] * x[row]
GATHER_ROWS = layout("x", "columns", "used", "places", "weights", "count", "out")

# The same for quantized rows.
GATHER_CODES = layout(
    "columns",
    "used",
    "places",
    "count",
    "codes",
    "scales",
    "sums",
    "half_sums",
    "out_codes",
    "out_scales",
    "out_sums",
    "out_half_sums",
)

# out[row] = sum over k of weights[row, k] * x[places[row, k]]; without weights their plain sum
MIX_ROWS = layout("x", "columns", "used", "places", "weights", "count", "out")

# x[row] *= sigmoid(gate[row])
GATE_ROWS = layout("x", "columns", "gate", "count")


def scratch_floats(experts: int, sections: int) -> int:
    """float32 values of scratch memory that `route` needs per thread."""
    return 2 * experts + sections


def most_groups(experts: int, rows: int, used: int) -> int:
    """Experts that so many rows can meet."""
    return min(experts, rows * used)


# --- choosing ---------------------------------------------------------------------------------------------------------


@native
def softmax(values, out, count):
    """out = e^values / their sum."""
    top = MINUS_INFINITY
    for i in range(count):
        top = max(top, load_f32(values + 4 * i))
    total = 0.0
    for i in range(count):
        value = np.float32(math.exp(np.float64(load_f32(values + 4 * i) - top)))
        store_f32(out + 4 * i, value)
        total += np.float64(value)
    inverse = np.float32(1.0 / total)
    for i in range(count):
        store_f32(out + 4 * i, load_f32(out + 4 * i) * inverse)


@native
def gated(scores, out, count, gating):
    """What `gating` makes of all experts' scores; those of SOFTMAX_OF_CHOSEN stay until some are chosen."""
    if gating == SOFTMAX:
        softmax(scores, out, count)
        return
    for i in range(count):
        x = np.float64(load_f32(scores + 4 * i))
        if gating == SIGMOID:
            store_f32(out + 4 * i, np.float32(1.0 / (1.0 + math.exp(-x))))
        elif gating == SQRT_SOFTPLUS:
            store_f32(out + 4 * i, np.float32(math.sqrt(x if x > 20.0 else math.log1p(math.exp(x)))))
        else:
            store_f32(out + 4 * i, np.float32(x))


@native
def rankable(value):
    """Not a number comes last, so that a row always finds as many experts as it needs."""
    return value if value == value else MINUS_INFINITY


@native
def take_best(values, count):
    """The number of the largest value not taken yet, the lowest of equal ones; taken ones are not a number."""
    found, top = -1, MINUS_INFINITY
    for i in range(count):
        value = load_f32(values + 4 * i)
        if value > top or (found < 0 and value == value):
            found, top = i, value
    store_f32(values + 4 * found, NOT_A_NUMBER)
    return found


@native
def keep_best_sections(values, totals, count, sections, used):
    """Minus infinity in all but the best sections; a section counts as much as its two best values together."""
    size = count // sections
    for section in range(sections):
        first, second = MINUS_INFINITY, MINUS_INFINITY
        for i in range(section * size, section * size + size):
            value = load_f32(values + 4 * i)
            if value > first:
                first, second = value, first
            elif value > second:
                second = value
        store_f32(totals + 4 * section, rankable(first + second))
    for _ in range(used):
        take_best(totals, sections)
    for section in range(sections):
        total = load_f32(totals + 4 * section)
        if total == total:
            for i in range(section * size, section * size + size):
                store_f32(values + 4 * i, MINUS_INFINITY)


@native
def weigh(weights, used, gating, normalized, scale):
    """The weights of the chosen experts, from what was gated of their scores."""
    if gating == SOFTMAX_OF_CHOSEN:
        softmax(weights, weights, used)
    factor = scale
    if normalized != 0:
        total = np.float32(0.0)
        for k in range(used):
            total += load_f32(weights + 4 * k)
        factor = scale / max(total, SMALLEST_SUM)
    for k in range(used):
        store_f32(weights + 4 * k, load_f32(weights + 4 * k) * factor)


@kernel(ROUTE)
def route(thread, threads, pointer):
    """Threads take turns by row."""
    a = record(pointer)
    values = a.scratch + thread * a.scratch_bytes
    ranked = values + 4 * a.experts
    totals = ranked + 4 * a.experts
    for row in range(thread, load_i64(a.count), threads):
        scores = a.scores + 4 * row * a.experts
        chosen, weights = a.chosen + 8 * row * a.used, a.weights + 4 * row * a.used
        gated(scores, values, a.experts, a.gating)
        gated(scores, ranked, a.experts, a.ranking)
        for i in range(a.experts):
            bias = load_f32(a.bias + 4 * i) if a.bias != 0 else np.float32(0.0)
            store_f32(ranked + 4 * i, rankable(load_f32(ranked + 4 * i) + bias))
        if a.sections > 1:
            keep_best_sections(ranked, totals, a.experts, a.sections, a.sections_used)
        for k in range(a.used):
            expert = take_best(ranked, a.experts)
            store_i64(chosen + 8 * k, expert)
            store_f32(weights + 4 * k, load_f32(values + 4 * expert))
        weigh(weights, a.used, a.gating, a.normalized, a.weight_scale)


@kernel(GROUP_ROWS)
def group_rows(thread, threads, pointer):
    """Counts, then places; experts in the order of their numbers, an expert's rows in the order of the batch."""
    if thread != 0:
        return
    a = record(pointer)
    pairs = load_i64(a.count) * a.used
    for expert in range(a.experts):
        store_i64(a.counts + 8 * expert, 0)
    for pair in range(pairs):
        at = a.counts + 8 * load_i64(a.chosen + 8 * pair)
        store_i64(at, load_i64(at) + 1)
    groups, first = 0, 0
    for expert in range(a.experts):
        rows = load_i64(a.counts + 8 * expert)
        if rows > 0:
            group = a.groups + 8 + groups * GROUP_BYTES
            store_i64(group, expert)
            store_i64(group + 8, first)
            store_i64(group + 16, rows)
            store_i64(a.counts + 8 * expert, first)
            first += (rows + a.tile - 1) // a.tile * a.tile
            groups += 1
    store_i64(a.groups, groups)
    store_i64(a.rows, first)
    for pair in range(pairs):
        at = a.counts + 8 * load_i64(a.chosen + 8 * pair)
        place = load_i64(at)
        store_i64(a.places + 8 * pair, place)
        store_i64(at, place + 1)


# --- moving rows ------------------------------------------------------------------------------------------------------


@kernel(GATHER_ROWS)
def gather_rows(thread, threads, pointer):
    """Each thread its own columns."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        x = a.x + 4 * row * a.columns
        for pair in range(row * a.used, (row + 1) * a.used):
            out = a.out + 4 * load_i64(a.places + 8 * pair) * a.columns
            factor = splat_f32x8(load_f32(a.weights + 4 * pair) if a.weights != 0 else np.float32(1.0))
            for k in range(first, last, 8):
                store(out + 4 * k, mul(load_f32x8(x + 4 * k), factor))


@kernel(GATHER_CODES)
def gather_codes(thread, threads, pointer):
    """Each thread its own columns, a block of 32 at a time."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    blocks = a.columns // 32
    for row in range(load_i64(a.count)):
        for pair in range(row * a.used, (row + 1) * a.used):
            place = load_i64(a.places + 8 * pair)
            for block in range(first // 32, last // 32):
                x, out = row * blocks + block, place * blocks + block
                store(a.out_codes + 32 * out, load_i8x32(a.codes + 32 * x))
                store_f32(a.out_scales + 4 * out, load_f32(a.scales + 4 * x))
                store_f32(a.out_sums + 4 * out, load_f32(a.sums + 4 * x))
                store_i64(a.out_half_sums + 8 * out, load_i64(a.half_sums + 8 * x))


@kernel(MIX_ROWS)
def mix_rows(thread, threads, pointer):
    """Each thread its own columns; the terms in the order in which the experts were chosen."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        for k in range(first, last, 8):
            total = zero_f32x8()
            for pair in range(row * a.used, (row + 1) * a.used):
                x = load_f32x8(a.x + 4 * (load_i64(a.places + 8 * pair) * a.columns + k))
                total = fma(x, splat_at_f32x8(a.weights + 4 * pair), total) if a.weights != 0 else add(x, total)
            store(a.out + 4 * (row * a.columns + k), total)


@kernel(GATE_ROWS)
def gate_rows(thread, threads, pointer):
    """Each thread its own columns."""
    a = record(pointer)
    first, last = owned(a.columns, thread, threads)
    for row in range(load_i64(a.count)):
        gate = np.float32(1.0 / (1.0 + math.exp(-np.float64(load_f32(a.gate + 4 * row)))))
        factor = splat_f32x8(gate)
        for k in range(first, last, 8):
            at = a.x + 4 * (row * a.columns + k)
            store(at, mul(load_f32x8(at), factor))
