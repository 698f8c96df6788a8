"""Every operation on vectors does what NumPy does. test_targets runs this for other targets than the one in use."""

import numpy as np
import pytest
from numba import njit
from support.vectors import applied, at, codes
from tinyllm_engine import simd as s
from tinyllm_engine.cached_types import bf16_bits, of_bf16

F32 = np.float32
LANES = s.LANES
random = np.random.default_rng(11)
native = njit(error_model="numpy")


def floats(*shape, scale=10.0):
    return random.normal(0, scale, shape).astype(F32)


# --- loads, stores, splats --------------------------------------------------------------------------------------------


def test_scalars():
    @native
    def copy(source, target):
        s.store_i64(target, s.load_i64(source))
        s.store_f32(target + 8, s.load_f32(source + 8))

    @native
    def small(source):
        return s.load_u8(source), s.load_i8(source), s.load_u16(source), s.load_u32(source)

    source = random.integers(0, 256, (4, 12), dtype=np.uint8)
    assert np.array_equal(applied(copy, np.zeros_like(source), source), source)
    assert small(at(np.full(4, 255, np.uint8))) == (255, -1, 2**16 - 1, 2**32 - 1)


def test_vectors():
    wide = 32 + 16 + 32 + 4 * LANES + 4 * LANES

    @native
    def copy(source, target):
        s.store(target, s.load_i8x32(source))
        s.store(target + 32, s.load_i8x16(source + 32))
        s.store(target + 48, s.load_f32x8(source + 48))
        s.store(target + 80, s.load_i8w(source + 80))
        s.store(target + 80 + 4 * LANES, s.load_f32w(source + 80 + 4 * LANES))

    source = random.integers(0, 256, (4, wide), dtype=np.uint8)
    assert np.array_equal(applied(copy, np.zeros_like(source), source), source)


def test_splats_and_zeros():
    @native
    def splat(source, out):
        x = s.load_f32(source)
        s.store(out, s.splat_f32x8(x))
        s.store(out + 32, s.splat_at_f32x8(source))
        s.store(out + 64, s.splat_f32w(x))
        s.store(out + 64 + 4 * LANES, s.splat_at_f32w(source))
        s.store(out + 64 + 8 * LANES, s.splat4_at(source))

    @native
    def zero(out):
        s.store(out, s.zero_i32x8())
        s.store(out + 32, s.zero_f32x8())
        s.store(out + 64, s.zero_i32w())
        s.store(out + 64 + 4 * LANES, s.zero_f32w())
        s.store(out + 64 + 8 * LANES, s.zero_narrow())

    x = floats(5, 1)
    out = applied(splat, floats(5, 16 + 3 * LANES), x)
    assert np.array_equal(out, np.broadcast_to(x, out.shape))
    narrow_bytes = s.NARROW.lanes * 2 if s.NARROW.element == "i16" else 4 * LANES
    out = np.full((1, 64 + 8 * LANES + narrow_bytes), 255, np.uint8)
    assert not applied(zero, out).any()


def test_doubles_become_the_nearest_floats():
    @native
    def narrow(source, out):
        s.store(out, s.load_f64x8(source))

    x = random.normal(0, 10, (5, 8))
    x[0, :4] = 1e300, -1e-300, 1 + 2.0**-24, 1 + 3 * 2.0**-24
    with np.errstate(over="ignore"):
        expected = x.astype(F32)
    assert np.array_equal(applied(narrow, np.zeros((5, 8), F32), x), expected)


def test_prefetch_is_a_hint_and_pause_a_pause():
    @native
    def hint(address):
        s.prefetch(address)
        s.pause()
        return address

    assert hint(-1) == -1  # wherever that is: no access happens


def test_join8():
    @native
    def join(halves, singles, out):
        h = [s.load_u16(halves + 2 * i) for i in range(8)]
        f = [s.load_f32(singles + 4 * i) for i in range(8)]
        s.store(out, s.join8_halves(h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]))
        s.store(out + 32, s.join8_floats(f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]))

    halves, singles = floats(1, 8).astype(np.float16), floats(1, 8)
    out = applied(join, np.zeros((1, 16), F32), halves, singles)
    assert np.array_equal(out, np.concatenate((halves.astype(F32), singles), axis=1))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_float_arithmetic():
    @native
    def arithmetic(a, b, out):
        x, y = s.load_f32x8(a), s.load_f32x8(b)
        s.store(out, s.add(x, y))
        s.store(out + 32, s.sub(x, y))
        s.store(out + 64, s.mul(x, y))
        s.store(out + 96, s.divide(x, y))
        s.store(out + 128, s.maximum(x, y))
        s.store(out + 160, s.minimum(x, y))

    a, b = floats(20, 8), floats(20, 8)
    out = applied(arithmetic, np.zeros((20, 6, 8), F32), a, b)
    expected = (a + b, a - b, a * b, a / b, np.maximum(a, b), np.minimum(a, b))
    assert np.array_equal(out, np.stack(expected, axis=1))


def test_fma_rounds_once():
    @native
    def multiply_add(a, b, c, out):
        s.store(out, s.fma(s.load_f32x8(a), s.load_f32x8(b), s.load_f32x8(c)))

    a, b = random.uniform(1, 2, (2, 50, 8)).astype(F32)
    c = -(a * b)  # what is left is the rounding error of a * b: nothing else would find it
    expected = (a.astype(np.float64) * b + c).astype(F32)
    assert expected.any()
    assert np.array_equal(applied(multiply_add, np.zeros_like(a), a, b, c), expected)


def test_integer_arithmetic():
    @native
    def arithmetic(a, b, out):
        x, y = s.load_i8x32(a), s.load_i8x32(b)
        s.store(out, s.add(x, y))
        s.store(out + 32, s.sub(x, y))
        s.store(out + 64, s.bit_or(x, y))
        s.store(out + 96, s.bit_xor(x, y))

    a, b = codes(0, 255, 9, 32), codes(0, 255, 9, 32)
    out = applied(arithmetic, np.zeros((9, 4, 32), np.int8), a, b)
    assert np.array_equal(out, np.stack((a + b, a - b, a | b, a ^ b), axis=1))


def tree_sum(x):
    """Halves are added until one value is left: the order that every target has to keep."""
    while x.shape[-1] > 1:
        low, high = np.split(x, 2, axis=-1)
        x = low + high
    return x


def test_horizontal():
    @native
    def across(narrow, wide, out):
        s.store_f32(out, s.horizontal_sum(s.load_f32x8(narrow)))
        s.store_f32(out + 4, s.horizontal_max(s.load_f32x8(narrow)))
        s.store_f32(out + 8, s.first_lane(s.load_f32x8(narrow)))
        s.store_f32(out + 12, s.horizontal_sum(s.load_f32w(wide)))

    narrow, wide = floats(30, 8), floats(30, LANES)
    out = applied(across, np.zeros((30, 4), F32), narrow, wide)
    expected = (tree_sum(narrow), narrow.max(axis=1, keepdims=True), narrow[:, :1], tree_sum(wide))
    assert np.array_equal(out, np.concatenate(expected, axis=1))


def test_largest_magnitude():
    @native
    def largest(x, out):
        v = s.load_f32x8(x), s.load_f32x8(x + 32), s.load_f32x8(x + 64), s.load_f32x8(x + 96)
        s.store_f32(out, s.largest_magnitude(v[0], v[1], v[2], v[3]))

    x = floats(40, 32)
    x[32:] = 0
    x[np.arange(32), np.arange(32)] *= 100  # the largest in every place
    x[33, 5], x[34, 6], x[35, 7], x[36, 31] = np.inf, -np.inf, np.nan, -1e-45
    x[37] = np.nan
    x[38, :2] = np.inf, np.nan
    assert np.array_equal(applied(largest, np.zeros((40, 1), F32), x)[:, 0], np.abs(x).max(axis=1), equal_nan=True)


def test_round_to_int_takes_ties_to_even():
    @native
    def rounded(source, integers, bytes_out):
        q = s.round_to_int(s.load_f32x8(source))
        s.store(integers, q)
        s.store_as_i8(bytes_out, q)
        s.store_i32(integers + 32, s.horizontal_sum(q))
        s.store(integers + 36, s.to_f32(q))

    edges = [np.nextafter(F32(0.5), F32(0)), np.nextafter(F32(-0.5), F32(0)), F32(-0.0), F32(0)]
    x = np.append(np.arange(-127.5, 127.5, 0.5), edges).astype(F32)
    x = np.append(x, np.zeros(-len(x) % 8, F32)).reshape(-1, 8)
    for row in x:
        integers, narrow, source = np.zeros(17, np.int32), np.zeros(8, np.int8), row.copy()
        rounded(at(source), at(integers), at(narrow))
        expected = np.rint(row).astype(np.int32)
        assert np.array_equal(integers[:8], expected)
        assert np.array_equal(narrow, expected)
        assert integers[8] == expected.sum()
        assert np.array_equal(integers[9:].view(F32), expected)


@native
def exponential(source, out):
    s.store(out, s.exp(s.load_f32x8(source)))


def exp_of(*x):
    row = np.zeros((1, 8), F32)
    row[0, : len(x)] = x
    return applied(exponential, np.zeros((1, 8), F32), row)[0, : len(x)]


def test_exp_is_right_to_the_last_place():
    @native
    def many(source, count, out):
        for i in range(0, count, 8):
            exponential(source + 4 * i, out + 4 * i)

    x = np.concatenate((np.linspace(-87.33, 88.37, 400_000), random.normal(0, 1e-3, 1000))).astype(F32)
    out = np.zeros_like(x)
    many(at(x), len(x), at(out))
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(out - exact) / np.spacing(exact.astype(F32))).max() <= 1.5


def test_exp_at_its_ends():
    assert exp_of(0.0, -0.0).tolist() == [1, 1]
    assert exp_of(-87.34, -88, -1000, -np.inf).tolist() == [0] * 4
    assert np.isfinite(exp_of(89, 1000, np.inf)).all()
    assert (exp_of(89, 1000, np.inf) >= exp_of(88.37)).all()


def test_exponentials_of_what_is_not_positive():
    @native
    def one(x, out):
        s.store(out, s.exp_of_negative(s.load_f32x8(x)))

    x, out = -np.abs(floats(60, 8, scale=30.0)), np.zeros(8, F32)
    x[0], x[1] = 0.0, [-0.0, -1e-30, -86.9, -87.0, -200.0, -3e38, -np.inf, np.nan]
    for row in x:
        one(at(row), at(out))
        exact = np.where(row > -87, np.exp(row.astype(np.float64)), 0.0)
        np.testing.assert_allclose(out, exact, rtol=3e-7, atol=0)


def test_sums_of_exponentials():
    @native
    def single(x, highest, out):
        s.store(out, s.sum_exp_f32x16(x, highest))

    @native
    def double(x, highest, scale):
        return s.horizontal_sum(s.add(s.zero_f64x8(), s.sum_exp_f64x16(x, highest, scale)))

    x, out = -np.abs(floats(40, 16, scale=20.0)), np.zeros(8, F32)
    x[0], x[1, 3], x[2] = 0.0, -np.inf, -3e38
    for row in x:
        exact = np.exp(row.astype(np.float64) - 1)
        single(at(row), F32(1), at(out))
        np.testing.assert_allclose(out, exact.reshape(2, 8).sum(0), rtol=0, atol=2e-7)
        assert double(at(row), 1.0, 0.5) == pytest.approx(np.sqrt(exact).sum(), rel=1e-13, abs=1e-300)


def test_items_of_arrays():
    @native
    def moved(f32, f64, i32):
        s.set_f32(f32, 0, s.item_f32(f32, 2))
        s.set_f64(f64, 0, s.item_f64(f64, 2))
        s.set_i32(i32, 0, np.int32(s.item_i32(i32, 2) + 1))

    arrays = [np.array([0, 1, -7], dtype) for dtype in (np.float32, np.float64, np.int32)]
    moved(*map(at, arrays))
    assert [array[0] for array in arrays] == [-7, -7, -6]


def test_keep_first():
    @native
    def kept(source, count, out):
        s.store(out, s.keep_first(s.load_f32x8(source), s.load_i64(count)))

    counts = np.arange(-9, 70)[:, None]
    x = floats(len(counts), 8)
    out = applied(kept, np.zeros_like(x), x, counts)
    assert np.array_equal(out, np.where(np.arange(8) < counts, x, -np.inf))


def test_where_positive():
    @native
    def chosen(source, yes, no, out):
        s.store(out, s.where_positive(s.load_f32x8(source), s.load_f32x8(yes), s.load_f32x8(no)))

    x, yes, no = floats(3, 8), floats(3, 8), floats(3, 8)
    x[0, :4] = 0, -0.0, np.nan, np.inf
    out = applied(chosen, np.zeros_like(x), x, yes, no)
    assert np.array_equal(out, np.where(x > 0, yes, no))


# --- atoms ------------------------------------------------------------------------------------------------------------


def test_atoms():
    @native
    def count_up(word):
        before = s.atomic_add(word, 3)
        s.atomic_store(word + 8, s.atomic_load(word))
        return before, s.atomic_load_i32(word + 16)

    words = np.array([2**40, 0, 2**32 + 7], np.int64)
    assert count_up(at(words)) == (2**40, 7)
    assert words[:2].tolist() == [2**40 + 3] * 2


# --- what the cache needs ---------------------------------------------------------------------------------------------


def test_bf16():
    @native
    def convert(x, out):
        s.store_bf16x8(out, s.load_f32x8(x))
        s.store_bf16(out + 16, s.load_f32(x))
        s.store(out + 18, s.load_bf16x8(out))

    x = floats(50, 8)
    x[0] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3.4e38, 1
    x[1] = (np.arange(8, dtype=np.uint32) * 0x4000 + 0x3F800000).view(F32)  # ties go to even
    out = applied(convert, np.zeros((50, 50), np.uint8), x)
    expected = bf16_bits(x)
    assert np.array_equal(np.ascontiguousarray(out[:, :16]).view(np.uint16), expected)
    assert np.array_equal(np.ascontiguousarray(out[:, 16:18]).view(np.uint16)[:, 0], expected[:, 0])
    assert np.array_equal(np.ascontiguousarray(out[:, 18:]).view(F32), of_bf16(expected), equal_nan=True)


@pytest.mark.parametrize("distance", [1, 2, 4])
def test_butterflies(distance):
    butterfly = getattr(s, f"butterfly{distance}")

    @native
    def apply(x, out):
        s.store(out, butterfly(s.load_f32x8(x)))

    x = floats(20, 8)
    pairs = x.reshape(20, -1, 2, distance)
    expected = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
    assert np.array_equal(applied(apply, np.zeros_like(x), x), expected.reshape(20, 8))


def test_small_codes_to_floats_and_back():
    @native
    def convert(x, out):
        s.store(out, s.load_i8x8(x))
        low, high = s.load_signed_nibbles(x)
        s.store(out + 32, low)
        s.store(out + 64, high)

    codes8 = random.integers(-128, 128, (40, 8), dtype=np.int8)
    out = applied(convert, np.zeros((40, 24), F32), codes8)
    low = (codes8 << 4) >> 4
    assert np.array_equal(out, np.concatenate((codes8, low, codes8 >> 4), axis=1).astype(F32))


def test_packing_of_codes():
    @native
    def pack(x, out):
        joined = s.join_i32x8(
            s.round_to_int(s.load_f32x8(x)),
            s.round_to_int(s.load_f32x8(x + 32)),
            s.round_to_int(s.load_f32x8(x + 64)),
            s.round_to_int(s.load_f32x8(x + 96)),
        )
        s.store(out, joined)
        s.store_nibbles_by_eights(out + 32, joined)

    x = random.integers(-8, 8, (30, 32)).astype(F32)
    out = applied(pack, np.zeros((30, 48), np.uint8), x)
    pairs = (x.astype(np.int8).view(np.uint8) & 15).reshape(30, -1, 2, 8)
    assert np.array_equal(out[:, :32], x.astype(np.int8).view(np.uint8))
    assert np.array_equal(out[:, 32:], (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(30, 16))
