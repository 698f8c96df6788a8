"""The kernels against their twins, and their promise: the same bits for any number of threads and any batch."""

import numpy as np
import pytest
from support.recording import TYPES, random_norm, random_tensor, recording
from tinyllm_engine.cached_types import (
    CACHED_TYPES,
    k_slots,
    pack_k,
    pack_v,
    read_k,
    read_v,
    turned,
    v_slots,
    write_k,
    write_v,
)
from tinyllm_engine.config import RopeConfig
from tinyllm_engine.errors import EngineError
from tinyllm_engine.jit import Kernel
from tinyllm_engine.kernels import (
    append,
    attention,
    elementwise,
    embed,
    experts,
    heads,
    matmul,
    matvec,
    norm,
    quantize,
    rope,
)
from tinyllm_engine.kv_cache import LayerShape
from tinyllm_engine.memory import array_at
from tinyllm_engine.parts.attention import Scoring, Temperature
from tinyllm_engine.parts.base import Linear
from tinyllm_engine.parts.feed_forward import XIELU
from tinyllm_engine.recorder import ALONE, GATED
from tinyllm_engine.rope import Rope
from tinyllm_engine.twin import BLOCK, TWINS, Written, split_name
from tinyllm_engine.twins import KernelMismatchError, check

pytestmark = pytest.mark.filterwarnings("error:Cannot cache")  # it would be compiled at every start

MODULES = (append, attention, elementwise, embed, experts, heads, matmul, matvec, norm, quantize, rope)
KERNELS = [value for module in MODULES for value in vars(module).values() if isinstance(value, Kernel)]
THREADS = (1, 2, 3, 4)


def types_of(stem):
    names = [type_name.upper() for k in KERNELS for name, type_name in [split_name(k.name)] if name == stem]
    return sorted(names, key=list(TYPES).index)


def test_every_kernel_has_a_twin():
    assert len(KERNELS) > 20
    assert {split_name(kernel.name)[0] for kernel in KERNELS} <= set(TWINS)


def test_a_type_is_multiplied_embedded_and_batched_or_not_at_all():
    assert types_of("matvec") == types_of("matmul") == types_of("embed")


# --- weights ----------------------------------------------------------------------------------------------------------


def shapes(kind):
    """(outputs, inputs): outputs that fill no panel, inputs that are more than one chunk of columns, a single block."""
    unit = max(kind.block_elements, BLOCK)
    return [(37, -(-576 // unit) * unit), (100, 2048 + unit), (3, unit)]


def multiplied(weight, x, threads=1, first=0, bias=True, add=True, scale=0.5, fuse=True):
    """float32 [n, outputs]: x W^T by kernels, checked against the twins on the way.

    first: number of x's first row, which decides what is added to its product
    """
    n, (columns, outputs) = len(x), weight.dims
    random = np.random.default_rng(2)
    linear = Linear(weight, random.normal(0, 1, outputs).astype(np.float32) if bias else None, scale)
    with recording(n, threads) as r:
        source = r.recorder.buffer("source", columns)
        product, total = r.recorder.buffer("product", outputs), r.recorder.buffer("total", outputs)
        source.array[:n] = x
        total.array[:] = first + np.arange(len(total.array))[:, None] + random.normal(0, 1, outputs)
        padding = total.array[n:].copy()
        r.recorder.matmul(product, linear, source)
        if add:
            r.recorder.add(total, product)
        r.check(fuse)
        assert np.array_equal(total.array[n:], padding)  # rows that are not in force stay as they were
        return (total if add else product).array[:n].copy()


def test_columns_of_a_panel_of_floats_need_no_block():
    """Attention outputs of three heads of 16: float weights come in any multiple of 8 columns."""
    weight = random_tensor(TYPES["F32"], 48, 40)
    x = np.random.default_rng(1).normal(0, 1, (5, 48)).astype(np.float32)
    multiplied(weight, x, threads=2)
    multiplied(weight, x[:1], threads=2)


@pytest.mark.parametrize("type_name", types_of("matmul"))
def test_products(type_name):
    """All rows at once on one thread; then other batches and more threads, which must give the same bits."""
    kind = TYPES[type_name]
    for outputs, columns in shapes(kind):
        weight = random_tensor(kind, columns, outputs)
        x = np.random.default_rng(1).normal(0, 1, (9, columns)).astype(np.float32)
        x[1, :32] = 0  # a block whose scale is 0
        x[2], x[3] = 1, -1  # all codes at their ends
        expected = multiplied(weight, x)
        for rows, threads in ((2, 1), (4, 3), (5, 2), (9, 4)):
            assert np.array_equal(multiplied(weight, x[:rows], threads), expected[:rows]), (outputs, columns, rows)
        for row in (0, 2):
            one = multiplied(weight, x[row : row + 1], 1, row)
            if kind.block_elements > 1:  # a single row of float weights is summed in another order
                assert np.array_equal(one[0], expected[row]), (outputs, columns)
            for threads in (2, 3, 4):
                found = multiplied(weight, x[row : row + 1], threads, row)
                assert np.array_equal(found, one), (outputs, columns, threads)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("bias", "add", "scale"), [(False, False, 1.0), (True, False, 3.0), (False, True, 1.0)])
def test_what_is_added_to_a_product(rows, bias, add, scale):
    weight = random_tensor(TYPES["Q8_0"], 576, 40)
    x = np.random.default_rng(1).normal(0, 1, (rows, 576)).astype(np.float32)
    fused, plain = (multiplied(weight, x, 2, 0, bias, add, scale, fuse) for fuse in (True, False))
    assert np.array_equal(fused, plain)


@pytest.mark.parametrize("type_name", types_of("embed"))
def test_embeddings(type_name):
    kind = TYPES[type_name]
    weight = random_tensor(kind, columns := shapes(kind)[0][1], 11)
    for rows, threads in ((1, 1), (1, 3), (7, 1), (7, 4)):
        with recording(rows, threads) as r:
            r.state.tokens[:] = np.resize([10, 0, 1, 5, 5, 9, 2], rows)
            out = r.filled("out", columns)
            r.recorder.embed(out, weight)
            r.check()
            assert np.array_equal(out.array[0], weight.dequantize(10, 11)[0])


# --- rows of activations ----------------------------------------------------------------------------------------------


ROWS = [(1, 32), (1, 576), (2, 1056), (9, 96)]  # rows, columns


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_norms_and_activations(rows, columns, threads):
    matrix = random_tensor(TYPES["Q8_0"], columns, 32)
    for fuse in (False, True):
        with recording(rows, threads) as r:
            x, y, out = r.filled("x", columns, scale=3), r.filled("y", columns), r.filled("out", 32)
            x.array[:] += 2  # a mean that is not 0
            for kind in ("rms", "layer"):
                r.recorder.norm(y, x, random_norm(kind, columns))
                r.recorder.matmul(out, Linear(matrix), y)
            for activation, gated in [*((name, True) for name in GATED), *((name, False) for name in ALONE)]:
                gate = r.filled(f"{activation} {gated}", columns, scale=3)
                r.recorder.activate(gate, x if gated else None, activation)
                r.recorder.matmul(out, Linear(matrix), gate)
            r.recorder.add(x, y)
            r.check(fuse)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_changes_in_place(rows, columns, threads):
    divisor = np.random.default_rng(4).normal(1, 0.1, columns).astype(np.float32)
    with recording(rows, threads) as r:
        r.set_rows(rows, position=60)
        x = r.filled("x", columns, scale=3)
        r.recorder.scale(x, 0.7)
        r.recorder.clamp(x, 2.5)
        r.recorder.divide(x, divisor)
        r.recorder.temperature(x, Temperature(scale=0.1, period=32))
        r.recorder.activate(x, None, XIELU(alpha_n=0.6, alpha_p=0.8, beta=0.5, epsilon=-1e-6))
        r.check()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5])
def test_softcap(rows, threads):
    """Of logits, of which there may be any number; what is not finite stays so that it is found."""
    with recording(rows, threads) as r:
        for columns in (7, 101, 1000):
            x = r.filled(f"x{columns}", columns, scale=60)
            r.recorder.softcap(x, 30.0)
            r.check()
            assert np.abs(x.array[:rows]).max() <= 30
            x.array[0, :3] = np.nan, np.inf, -np.inf
            with np.errstate(invalid="ignore"):
                r.recorder.softcap(x, 30.0)
                r.team.run(r.program().freeze())
            assert np.isnan(x.array[0, :3]).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("heads", "size"), [(3, 64), (2, 80), (5, 8)])
def test_norms_of_heads(heads, size, kind, threads):
    for rows in (1, 5):
        with recording(rows, threads) as r:
            x = r.filled("x", heads * size, scale=3)
            r.recorder.norm_heads(x, heads, random_norm(kind, size))
            r.recorder.norm_heads(x, heads, random_norm(kind, size * heads))
            r.check()


def test_rows_of_extremes():
    """Zeros, the smallest and the largest numbers, and a gate so negative that e^-gate is no float32."""
    with recording(8, 2) as r:
        gate, up = r.filled("gate", 64), r.filled("up", 64)
        out = r.filled("out", 32)
        gate.array[0] = 0
        gate.array[1] = 1e-38
        gate.array[2], up.array[2] = 1e9, 1e9
        gate.array[3] = -200
        gate.array[4, ::2] = 90
        r.recorder.activate(gate, up, "silu")
        r.recorder.matmul(out, Linear(random_tensor(TYPES["Q8_0"], 64, 32)), gate)
        r.recorder.norm(up, gate, random_norm("rms", 64))
        r.check()
        assert np.isfinite(out.array).all()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("normed", [False, True])
def test_what_is_not_finite_stays_so(rows, bad, normed):
    """However it came in: a product with it must not look like a result. Other rows are none of its business."""
    with recording(rows, 2) as r:
        x, y, out = r.filled("x", 64), r.filled("y", 64), r.filled("out", 32)
        x.array[0, 37] = bad
        if normed:
            r.recorder.norm(y, x, random_norm("rms", 64))
        r.recorder.matmul(out, Linear(random_tensor(TYPES["Q4_0"], 64, 32)), y if normed else x)
        program = r.program(fuse=True)
        r.team.run(program.freeze())
        assert not np.isfinite(out.array[0]).any()
        assert np.isfinite(out.array[1:rows]).all()


@pytest.mark.parametrize("first", [0, 3, 6])
def test_rows_that_have_outputs(first):
    with recording(7, 2) as r:
        x = r.filled("x", 40)
        r.set_rows(7, first_output=first)
        out = r.recorder.outputs(x)
        r.check()
        assert np.array_equal(out.array[: 7 - first], x.array[first:7])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("heads", "size", "pairs"), [(3, 64, 32), (2, 80, 16), (5, 96, 48)])
def test_rope(heads, size, pairs, interleaved, threads):
    turning = Rope(RopeConfig(2 * pairs, 10000.0, "none", 1.0, 4096, attn_factor=1.25, ext_factor=0.0), interleaved)
    for rows, position in ((1, 0), (5, 131_000)):
        with recording(rows, threads) as r:
            r.set_rows(rows, position=position)
            x = r.filled("x", heads * size)
            before = x.array.reshape(-1, heads, size).copy()
            r.recorder.rope_table(turning)
            r.recorder.rope(x, heads, turning)
            r.check()
            after = x.array.reshape(-1, heads, size)
            assert np.array_equal(after[..., 2 * pairs :], before[..., 2 * pairs :])
            turned = np.linalg.norm(after[:rows, :, : 2 * pairs], axis=-1)
            np.testing.assert_allclose(turned, 1.25 * np.linalg.norm(before[:rows, :, : 2 * pairs], axis=-1), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5])
def test_parts_of_heads(rows, threads):
    """The end of each head rotates and goes to another place; what belongs to all heads goes to each."""
    turning = Rope(RopeConfig(16, 10000.0, "none", 1.0, 4096, attn_factor=1.0, ext_factor=0.0), interleaved=True)
    with recording(rows, threads) as r:
        x, shared, out = r.filled("x", 3 * 40), r.filled("shared", 16), r.filled("out", 3 * 56)
        before = x.array.reshape(-1, 3, 40)[:rows].copy()
        r.recorder.rope_table(turning)
        r.recorder.rope(x, 3, turning, first=24)
        r.recorder.copy_heads(out, 8, x, 16, 24, heads=3)
        r.recorder.copy_heads(out, 40, shared, 0, 16, heads=3)
        r.check()
        after, copied = x.array.reshape(-1, 3, 40)[:rows], out.array.reshape(-1, 3, 56)[:rows]
        assert np.array_equal(after[..., :24], before[..., :24])
        assert np.array_equal(copied[..., 8:32], after[..., 16:])
        assert np.array_equal(copied[..., 40:], np.broadcast_to(shared.array[:rows, None], (rows, 3, 16)))


# --- the cache and attention ------------------------------------------------------------------------------------------

CONTEXT = 1001
EDGES = (0, 1, 62, 63, 64, 65, 255, 256, 257, 511, 512, 1000)  # of pages of 64 keys, of runs of 256
# (heads, heads of K and V, size of K, size of V): groups of 1, 2, 3, 4 and 8
BLOCK_HEADS = [(3, 3, 64, 64), (4, 2, 64, 96), (9, 3, 64, 64), (4, 1, 96, 32), (8, 1, 128, 64)]
HEADS = [*BLOCK_HEADS, (4, 2, 80, 80), (2, 1, 40, 24), (3, 3, 8, 8)]
TYPE_PAIRS = [("f32", "f32"), ("f16", "f16"), ("bf16", "q8_0"), ("q8_0", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")]


def in_cache(r):
    """K and V, uint8 [pages, heads, bytes of a head]: the cache's own memory. Then their exact parts, or None."""
    cache, (shape,) = r.cache, r.cache.layers
    places = (
        (cache.k_address(0), cache.k_type.head_bytes(shape.k_size)),
        (cache.v_address(0), cache.v_type.head_bytes(shape.v_size)),
        (cache.exact.k_address(0), cache.k_type.exact_bytes(shape.k_size)),
        (cache.exact.v_address(0), cache.v_type.exact_bytes(shape.v_size)),
    )
    return [array_at(at, np.uint8, cache.pages, shape.heads, size) if at else None for at, size in places]


def fill_all(r, byte):
    for memory in in_cache(r):
        if memory is not None:
            memory[:] = byte


def take_pages(r):
    """All pages, in no order; what no token has written in them is not a number, or has a scale that is none."""
    r.pages.grow(CONTEXT)
    r.pages.table[:] = np.random.default_rng(6).permutation(r.pages.table)
    fill_all(r, 255)


def fill_cache(r, k, v, first=0):
    """K and V float32 [tokens, heads, size] as tokens of the sequence, the first of them at position `first`."""
    keys, values, exact_keys, exact_values = in_cache(r)
    for rows, memory, part, kind, pack, turning, read, write, slots in (
        (k, keys, exact_keys, r.cache.k_type, pack_k, False, read_k, write_k, k_slots),
        (v, values, exact_values, r.cache.v_type, pack_v, True, read_v, write_v, v_slots),
    ):
        positions, size = first + np.arange(len(rows)), rows.shape[-1]
        written_kind = CACHED_TYPES[kind.exact] if kind.exact else kind
        for index in np.unique(positions // 64):
            whole, here = np.zeros((64, *rows.shape[1:]), np.float32), positions // 64 == index
            whole[positions[here] % 64] = rows[here]
            whole = np.swapaxes(whole, 0, 1)
            written = np.isin(slots(written_kind, size), positions[here] % 64)
            page = (memory if part is None else part)[r.pages.table[index]]
            turned_before = turned(whole) if kind.exact and turning else whole
            page[:, written] = pack(written_kind, turned_before)[:, written]
            if kind.exact and positions[here][-1] % 64 == 63:
                memory[r.pages.table[index]] = write(kind, read(written_kind, page, size))


@pytest.mark.parametrize("kind", CACHED_TYPES)
@pytest.mark.parametrize(("rows", "threads", "position"), [(1, 1, 64), (1, 3, 1000), (70, 4, 60)])
def test_append(kind, rows, threads, position):
    shape = LayerShape(3, 64, 96) if CACHED_TYPES[kind].is_quantized else LayerShape(3, 80, 88)
    with recording(rows, threads, shape, CONTEXT, kind) as r:
        take_pages(r)
        fill_all(r, 1)
        r.set_rows(rows, position=position)
        k, v = r.filled("k", 3 * shape.k_size, scale=100), r.filled("v", 3 * shape.v_size)
        k.array[0, :4] = 1e-7, 65519, 65520, -1e30  # a subnormal half, the largest, and two that become infinity
        v.array[0, :32] = 0  # a block whose scale is 0
        r.recorder.append(0, k, v)
        r.check()
        found = [None if memory is None else memory.copy() for memory in in_cache(r)]
        fill_all(r, 1)
        fill_cache(
            r, k.array[:rows].reshape(rows, 3, shape.k_size), v.array[:rows].reshape(rows, 3, shape.v_size), position
        )
        for memory, expected in zip(found, in_cache(r), strict=True):
            assert expected is None or np.array_equal(memory, expected)


def attended(rows, threads, heads, types, positions, **scoring):
    """float32 [len(positions), heads * v_size]: rows at these increasing positions, so many in a batch, checked."""
    q_heads, kv_heads, k_size, v_size = heads
    random = np.random.default_rng(8)
    k, v = random.normal(0, 2, (CONTEXT, kv_heads, k_size)), random.normal(0, 1, (CONTEXT, kv_heads, v_size))
    queries = random.normal(0, 1, (CONTEXT, q_heads * k_size))
    results = []
    with recording(rows, threads, LayerShape(kv_heads, k_size, v_size), CONTEXT, types[0], v_type=types[1]) as r:
        take_pages(r)
        fill_cache(r, k[: max(positions) + 1], v[: max(positions) + 1])
        q, out = r.filled("q", q_heads * k_size), r.filled("out", q_heads * v_size)
        r.recorder.attention(out, q, 0, q_heads, Scoring(k_size**-0.5, **scoring))
        program = r.program()
        for first in range(0, len(positions), rows):
            batch = list(positions[first : first + rows])
            r.set_rows(len(batch))
            r.state.positions[: len(batch)] = batch
            q.array[: len(batch)] = queries[batch]
            check(program, r.team)
            results.append(out.array[: len(batch)].copy())
    return np.concatenate(results)


HEADS_OF_TYPES = [
    (types, heads) for types in TYPE_PAIRS for heads in (BLOCK_HEADS if {"q8_0", "q4_0"} & set(types) else HEADS)
]


@pytest.mark.parametrize(("types", "heads"), HEADS_OF_TYPES, ids=lambda values: "-".join(map(str, values)))
def test_attention(types, heads):
    expected = attended(1, 1, heads, types, EDGES)
    for rows, threads in ((1, 3), (5, 1), (len(EDGES), 2), (len(EDGES), 4)):
        assert np.array_equal(attended(rows, threads, heads, types, EDGES), expected), (rows, threads)


SCORINGS = {
    "no further than itself": {"window": 1},
    "a window within a page": {"window": 40},
    "a window over a run": {"window": 300},
    "chunks": {"window": -100},
    "bent": {"softcap": 2.0},
    "falling": {"slopes": np.array([0.5, 0.1, 0.02, 0.0], np.float32)},
    "a sink": {"sinks": np.array([-30, 0, 3, 1e4], np.float32)},
}
SCORINGS["all of it"] = SCORINGS["a window over a run"] | SCORINGS["bent"] | SCORINGS["falling"] | SCORINGS["a sink"]


SCORED = [(scoring, heads, ("f32", "f32")) for scoring in SCORINGS for heads in ((4, 4, 16, 16), (4, 2, 80, 40))]
SCORED += [(scoring, (4, 2, 64, 32), ("q8_0", "q4_0")) for scoring in SCORINGS]


@pytest.mark.parametrize(("scoring", "heads", "types"), SCORED, ids=str)
def test_ways_of_scoring(scoring, heads, types):
    positions, how = (*EDGES[:9], *range(300, 312), 1000), SCORINGS[scoring]
    expected = attended(1, 1, heads, types, positions, **how)
    for rows, threads in ((1, 3), (5, 2), (len(positions), 3)):
        assert np.array_equal(attended(rows, threads, heads, types, positions, **how), expected), (rows, threads)


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_attention_of_a_long_batch(kind):
    """Neighbouring rows, several tiles of them, over the edges of pages and of a run."""
    positions = range(230, 275)
    heads = (9, 3, 64, 64)
    types = kind, kind
    assert np.array_equal(attended(45, 2, heads, types, positions), attended(1, 1, heads, types, positions))


def test_attention_of_two_sequences_in_a_batch():
    """Rows of a batch may belong to different sequences: each sees its own keys."""
    shape, size = LayerShape(2, 64, 64), 256
    random = np.random.default_rng(9)
    k, v = random.normal(0, 1, (2, 70, 2, 64)), random.normal(0, 1, (2, 70, 2, 64))
    with recording(8, 2, shape, CONTEXT, "f32") as r:
        take_pages(r)
        tables = r.pages.table[:4].reshape(2, 2).copy()
        for table, keys, values in zip(tables, k, v, strict=True):
            r.pages.table[:2] = table
            fill_cache(r, keys, values)
        q, out = r.filled("q", size), r.filled("out", size)
        r.recorder.attention(out, q, 0, 4, Scoring(0.125))
        r.state.tables[:] = [tables[0].ctypes.data] * 3 + [tables[1].ctypes.data] * 5
        r.state.positions[:] = [5, 6, 7, 62, 63, 64, 65, 66]
        r.check()


def test_a_wrong_kernel_is_found(monkeypatch):
    """The check names the op, the place and by how much it is wrong."""

    def wrong_add(a):
        out = a.floats("out", a.n, a.columns)
        expected = out + a.floats("x", a.n, a.columns)
        expected[2, 5] += 1
        yield Written("out", out, expected, 1e-3)

    monkeypatch.setitem(TWINS, "add_rows", wrong_add)
    with recording(4, 1) as r:
        x, y = r.filled("x", 32), r.filled("y", 32)
        r.recorder.norm(y, x, random_norm("rms", 32))
        r.recorder.add(x, y)
        with pytest.raises(
            KernelMismatchError,
            match=r"op 1 of 2, add_rows: out\[2, 5\]: expected .*; 1 of 128 are wrong, by up to 1$",
        ):
            r.check()


def test_a_kernel_without_a_twin_is_named(monkeypatch):
    monkeypatch.delitem(TWINS, "add_rows")
    with recording(4, 1) as r:
        r.recorder.add(r.filled("x", 32), r.filled("y", 32))
        with pytest.raises(EngineError, match="op 0: the kernel add_rows has no twin"):
            r.check()
