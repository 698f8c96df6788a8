"""Floats of 16 bits: every half becomes its float, every float the nearest half, on hardware or in plain arithmetic."""

import numpy as np
import pytest
from numba import njit
from tinyllm_engine import simd as s
from tinyllm_engine.simd import memory

F32 = np.float32
native = njit(error_model="numpy")


def at(array):
    return array.ctypes.data


ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(params=["of the target", "portable"])
def conversion(request, monkeypatch):
    if request.param == "portable":
        monkeypatch.setattr(memory, "HARDWARE_F16", False)


def same_floats(found, expected):
    """Bit for bit, but that a NaN is a NaN."""
    nan = np.isnan(expected)
    bits = f"u{expected.dtype.itemsize}"
    return np.array_equal(nan, np.isnan(found)) and np.array_equal(found.view(bits)[~nan], expected.view(bits)[~nan])


@pytest.mark.usefixtures("conversion")
def test_every_half_becomes_its_float():
    @native
    def widen(source, count, vectors, scalars, from_bits):
        for i in range(0, count, 8):
            s.store(vectors + 4 * i, s.load_f16x8(source + 2 * i))
        for i in range(count):
            s.store_f32(scalars + 4 * i, s.load_f16(source + 2 * i))
            s.store_f32(from_bits + 4 * i, s.half_bits_to_f32(s.load_u16(source + 2 * i)))

    results = np.zeros((3, len(ALL_HALVES)), F32)
    widen(at(ALL_HALVES), len(ALL_HALVES), *(at(result) for result in results))
    for result in results:
        assert same_floats(result, ALL_HALVES.view(np.float16).astype(F32))


@pytest.mark.usefixtures("conversion")
def test_every_float_becomes_the_nearest_half():
    """Every half, the point between it and the next one, and the floats on both sides of that point."""

    @native
    def narrow(source, count, vectors, scalars):
        for i in range(0, count, 8):
            s.store_f16x8(vectors + 2 * i, s.load_f32x8(source + 4 * i))
        for i in range(count):
            s.store_half(scalars + 2 * i, s.load_f32(source + 4 * i))

    halves = ALL_HALVES.view(np.float16)[:0x7C00].astype(F32)
    middles = np.append((halves[1:] + halves[:-1]) / 2, F32(65520))  # from the last one on, infinity is nearest
    edges = np.array([np.inf, np.nan, 1e30, 1e-30, 1e-45, 2.0**-25], F32)
    positive = np.concatenate(
        (halves, middles, np.nextafter(middles, F32(0)), np.nextafter(middles, F32(np.inf)), edges)
    )
    x = np.concatenate((positive, -positive))
    x = np.append(x, np.zeros(-len(x) % 8, F32))
    results = np.zeros((2, len(x)), np.float16)
    narrow(at(x), len(x), *(at(result) for result in results))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    for result in results:
        assert same_floats(result, expected)


@pytest.mark.usefixtures("conversion")
def test_no_half_is_converted_by_a_library_call():
    """The compiler's own conversions are functions that not every process has."""

    @native
    def both(source, target):
        s.store_f16x8(target, s.load_f16x8(source))
        s.store_half(target, s.load_f16(source))

    both(at(np.zeros(8, np.float16)), at(np.zeros(8, np.float16)))
    (assembly,) = both.inspect_asm().values()
    for name in ("h2f", "f2h", "hfsf", "sfhf"):
        assert name not in assembly


def test_bf16_is_the_upper_half_of_a_float():
    @native
    def widen(source, count, out):
        for i in range(0, count, 8):
            s.store(out + 4 * i, s.load_bf16x8(source + 2 * i))

    out = np.zeros(len(ALL_HALVES), F32)
    widen(at(ALL_HALVES), len(ALL_HALVES), at(out))
    assert np.array_equal(out.view(np.uint32), ALL_HALVES.astype(np.uint32) << 16)
