"""Operations on codes and their products, as test_simd has those on numbers."""

import numpy as np
import pytest
from numba import njit
from support.vectors import applied, at, codes
from tinyllm_engine import simd as s

F32 = np.float32
LANES = s.LANES
random = np.random.default_rng(11)
native = njit(error_model="numpy")


def floats(*shape, scale=10.0):
    return random.normal(0, scale, shape).astype(F32)


# --- codes ------------------------------------------------------------------------------------------------------------


def test_nibbles_and_joins():
    @native
    def unpack(source, out):
        low, high = s.load_i8x16(source), s.load_i8x16(source + 16)
        s.store(out, s.nibbles(low))
        s.store(out + 32, s.join_i8x16(low, high))

    packed = codes(0, 255, 5, 32)
    out = applied(unpack, np.zeros((5, 64), np.int8), packed)
    bytes_ = packed[:, :16].view(np.uint8)
    assert np.array_equal(out, np.concatenate((bytes_ & 15, bytes_ >> 4, packed.view(np.uint8)), axis=1).view(np.int8))


def test_bits_to_bytes():
    @native
    def expand(source, out):
        s.store(out, s.bits_to_bytes(s.load_u32(source)))

    packed = codes(0, 255, 6, 4).view(np.uint8)
    out = applied(expand, np.zeros((6, 32), np.uint8), packed)
    assert np.array_equal(out, 255 * np.unpackbits(packed, axis=1, bitorder="little"))


@native
def operate(source, byte, out):
    x = s.load_i8x32(source)
    b = s.load_i8(byte)
    s.store(out, s.and_byte(x, b))
    s.store(out + 32, s.xor_byte(x, b))
    s.store(out + 64, s.subtract_byte(x, b))


@pytest.mark.parametrize("constant", [0, 1, 15, 127, -128, -1])
def test_operations_with_one_byte(constant):
    x, byte = codes(0, 255, 5, 32), np.full((5, 1), constant, np.int8)
    out = applied(operate, np.zeros((5, 3, 32), np.int8), x, byte)
    assert np.array_equal(out, np.stack((x & byte, x ^ byte, x - byte), axis=1))


def test_shifts_move_words():
    @native
    def shift(source, count, out):
        x, n = s.load_i8x32(source), s.load_i8(count)
        s.store(out, s.shift_right_words(x, n))

    x, counts = codes(0, 255, 16, 32), np.arange(16, dtype=np.int8)[:, None]
    out = applied(shift, np.zeros((16, 16), np.uint16), x, counts)
    assert np.array_equal(out, x.view(np.uint16) >> counts.astype(np.uint16))


def test_rows_become_columns():
    @native
    def spread(words, lanes, out):
        s.scatter_words(out, 12, s.load_i8x32(words))
        s.transpose_store(out + 4, 12, s.load_f32x8(lanes))

    words, lanes = codes(0, 255, 3, 32), floats(3, 8)
    out = np.zeros((3, 8, 3), np.int32)
    for row in range(3):
        spread(at(words[row]), at(lanes[row]), at(out[row]))
    assert np.array_equal(out[..., 0], words.view(np.int32))
    assert np.array_equal(out[..., 1], lanes.view(np.int32))
    assert not out[..., 2].any()


def test_codes_to_f32():
    @native
    def quarters(source, out):
        x = s.load_i8x32(source)
        s.store(out, s.first_codes(x))
        s.store(out + 32, s.second_codes(x))
        s.store(out + 64, s.third_codes(x))
        s.store(out + 96, s.fourth_codes(x))

    x = codes(0, 255, 9, 32)
    out = applied(quarters, np.zeros((9, 32), F32), x)
    assert np.array_equal(out, x.view(np.uint8) if s.SIGNED_BIAS else x)


# --- integer dot products ---------------------------------------------------------------------------------------------


def sums_of_four(weights, x):
    products = weights.astype(np.int64) * x.astype(np.int64)
    return products.reshape(*products.shape[:-1], -1, 4).sum(axis=-1)


def activations(*shape):
    """int8 [*shape]: the extreme codes -127 and 127 in every pairing with those of `codes`."""
    x = random.integers(-127, 128, shape).astype(np.int8)
    x[0], x[-1] = 127, 127
    x[1], x[-2] = -127, -127
    return x


def weights_u(top, *shape):
    """int8 [*shape]: codes 0..top; two rows of zeros at the start, two of the highest code at the end."""
    weights = codes(0, top, *shape)
    weights[1], weights[-2] = 0, top
    return weights


WIDTHS = [
    pytest.param((s.zero_i32x8, s.load_i8x32, 32), id="row"),
    pytest.param((s.zero_i32w, s.load_i8w, 4 * LANES), id="panel"),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_dot_s8(width):
    """Where the hardware wants unsigned codes, weights come with 128 added, and so do the sums: 128 times that of x."""
    zero, load, count = width
    dot_s8 = s.dot_s8

    @native
    def twice(weights, x, out):
        s.store(out, dot_s8(dot_s8(zero(), load(weights), load(x)), load(weights), load(x)))

    weights, x = codes(-128, 127, 40, count), activations(40, count)
    weights[1], weights[-2] = -128, 127
    stored = weights ^ np.int8(-128) if s.SIGNED_BIAS else weights
    out = applied(twice, np.zeros((40, count // 4), np.int32), stored, x)
    assert np.array_equal(out, 2 * sums_of_four(weights.astype(np.int64) + s.SIGNED_BIAS, x))


@pytest.mark.parametrize(("top", "widen_first"), [(31, False), (63, True), (127, True)])
def test_sums_of_eight_rows(top, widen_first):
    """row_products, pairs, fours, halves: the sums of elements 0-15, of 16-31, and of all, a lane for each row."""

    @native
    def products(weights, x):
        if widen_first:
            return s.widen(s.row_products(s.load_i8x32(weights), s.load_i8x32(x)))
        return s.row_products(s.load_i8x32(weights), s.load_i8x32(x))

    @native
    def four(weights, x):
        low = s.sum_pairs(products(weights, x), products(weights + 32, x))
        return s.sum_fours(low, s.sum_pairs(products(weights + 64, x), products(weights + 96, x)))

    @native
    def eight(weights, x, out):
        low, high = four(weights, x), four(weights + 128, x)
        if widen_first:
            s.store(out, s.low_halves(low, high))
            s.store(out + 32, s.high_halves(low, high))
            s.store(out + 64, s.sum_halves(low, high))
        else:
            s.store(out, s.low_halves(s.widen(low), s.widen(high)))
            s.store(out + 32, s.high_halves(s.widen(low), s.widen(high)))
            s.store(out + 64, s.sum_halves(s.widen(low), s.widen(high)))

    weights, x = weights_u(top, 20, 8, 32), activations(20, 32)
    out = applied(eight, np.zeros((20, 3, 8), np.int32), weights, x)
    sums = sums_of_four(weights, x[:, None]).reshape(20, 8, 2, 4).sum(axis=-1).transpose(0, 2, 1)
    assert np.array_equal(out[:, :2], sums)
    assert np.array_equal(out[:, 2], sums.sum(axis=1))


@pytest.mark.parametrize(("top", "steps"), [(15, 8), (31, 4), (63, 2), (127, 1)])
def test_narrow_sums(top, steps):
    """They hold as many steps as the panels take before they are widened."""

    @native
    def panel(weights, x, out):
        acc = s.zero_i32w()
        for _ in range(3):
            narrow = s.zero_narrow()
            for step in range(steps):
                narrow = s.narrow_dot(narrow, s.load_i8w(weights + 4 * LANES * step), s.splat4_at(x + 4 * step))
            acc = s.widen_add(acc, narrow)
        s.store(out, acc)

    weights, x = weights_u(top, 20, steps, LANES, 4), activations(20, steps, 1, 4)
    out = applied(panel, np.zeros((20, LANES), np.int32), weights, x)
    assert np.array_equal(out, 3 * (weights.astype(np.int64) * x).sum(axis=(1, 3)))
