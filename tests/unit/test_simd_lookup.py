"""Tables in machine code, and every way in which codes are looked up. test_targets runs this for other targets too."""

import numpy as np
import pytest
from numba import njit
from support.vectors import applied, codes
from tinyllm_engine import simd as s
from tinyllm_engine.quants.lookup4 import E8M0_HALVES, UE4M3_HALVES

native = njit(error_model="numpy")
random = np.random.default_rng(12)
BYTES = np.arange(256, dtype=np.uint8).reshape(8, 32)


@s.table
def squares():
    return np.arange(300, dtype=np.int32) ** 2


@s.table
def primes():
    return np.array([2, 3, 5, 7], np.int32)


def test_tables_lie_beside_the_code():
    @native
    def nth(i):
        return s.load_u32(squares() + 4 * i), s.load_u32(squares() + 4 * i), s.load_u32(primes() + 4 * (i & 3))

    assert [nth(i) for i in (0, 7, 299)] == [(0, 0, 2), (49, 49, 7), (89401, 89401, 7)]


def test_groups_from_several_addresses():
    @native
    def gather(numbers, source, out):
        n = s.load_i64(numbers), s.load_i64(numbers + 8), s.load_i64(numbers + 16), s.load_i64(numbers + 24)
        s.store(out, s.load_four_eights(source + n[0], source + n[1], source + n[2], source + n[3]))
        s.store(out + 32, s.load_four_fours(source + n[0], source + n[1], source + n[2], source + n[3]))

    source, numbers = random.integers(0, 256, (6, 40), np.uint8), random.integers(0, 33, (6, 4))
    out = applied(gather, np.zeros((6, 48), np.uint8), numbers, source)
    for row, found in enumerate(out):
        groups = [source[row, n : n + 8] for n in numbers[row]]
        assert np.array_equal(found[:32], np.concatenate(groups))
        assert np.array_equal(found[32:], np.concatenate([group[:4] for group in groups]))


def test_lookup16():
    @native
    def look(entries, numbers, out):
        s.store(out, s.lookup16(s.load_i8x16_twice(entries), s.load_i8x32(numbers)))

    entries = codes(0, 255, 40, 16)
    numbers = random.integers(0, 16, (40, 32)).astype(np.int8)
    numbers[:16] = np.arange(16)[:, None]
    found = applied(look, np.zeros((40, 32), np.int8), entries, numbers)
    assert np.array_equal(found, np.take_along_axis(entries, numbers.astype(np.intp), axis=1))


def test_nibbles_by_eights():
    @native
    def unpack(source, out):
        s.store(out, s.nibbles_by_eights(s.load_i8x16(source)))

    packed = random.integers(0, 256, (5, 2, 8), np.uint8)
    out = applied(unpack, np.zeros((5, 32), np.uint8), packed)
    assert np.array_equal(out, np.concatenate([packed & 15, packed >> 4], axis=2).reshape(5, 32))


def test_two_bit_codes():
    @native
    def unpack(source, out):
        s.store(out, s.load_two_bit_codes(source))

    packed = BYTES.reshape(32, 8)
    out = applied(unpack, np.zeros((32, 32), np.uint8), packed)
    assert np.array_equal(out.reshape(32, 8, 4), packed[..., None] >> np.array([0, 2, 4, 6], np.uint8) & 3)


def test_first_digits():
    @native
    def digits(source, out):
        s.store(out, s.first_digits(s.load_i8x32(source)))

    out = applied(digits, np.zeros((8, 32), np.uint8), BYTES)
    assert np.array_equal(out, BYTES.astype(int) * 3 // 256)


def test_four_bytes_repeated():
    @native
    def repeat(source, out):
        s.store(out, s.load_i8x4_repeated(source))

    source = random.integers(0, 256, (3, 4), np.uint8)
    assert np.array_equal(applied(repeat, np.zeros((3, 16), np.uint8), source), np.tile(source, 4))


@native
def multiply(source, factors, out):
    s.store(out, s.mul(s.load_i8x32(source), s.load_i8x32(factors)))


@pytest.mark.parametrize("factor", [0, 1, 3, 81, 255])
def test_products_of_bytes_keep_the_low_bits(factor):
    factors = np.full((8, 32), factor, np.uint8)
    assert np.array_equal(applied(multiply, np.zeros((8, 32), np.uint8), BYTES, factors), BYTES * factors)


@pytest.mark.parametrize(("convert", "expected"), [(s.e8m0_halves, E8M0_HALVES), (s.ue4m3_halves, UE4M3_HALVES)])
def test_floats_of_eight_bits(convert, expected):
    @native
    def floats(source, out):
        s.store(out, convert(s.bits_of(s.load8_words(source, 4), 0, 8)))

    out = applied(floats, np.zeros((32, 8), np.float32), np.arange(256, dtype=np.int32).reshape(32, 8))
    assert np.array_equal(out.reshape(-1), expected)
