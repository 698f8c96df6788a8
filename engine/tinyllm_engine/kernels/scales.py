"""Scales and minima in whichever form a type stores them; the form is chosen when a kernel is compiled."""

import numpy as np
from numba import types
from numba.extending import overload

from tinyllm_engine.simd import half_bits_to_f32, zero_f32x8, zero_i32x8
from tinyllm_engine.simd.target import I32X8


def as_f32(value):
    """A scale as float32: from the bits of an f16, or as it is; None becomes 0."""


def first_half(value):
    """The scale of a part's first 16 elements: of the pair, or the one they share."""


def second_half(value):
    """The scale of a part's last 16 elements."""


def cleared(value):
    """Zeros of the kind of a vector, or of a pair of vectors; None stays None."""


@overload(as_f32)
def _as_f32(value):
    if isinstance(value, types.NoneType):
        return lambda value: np.float32(0.0)
    if value == types.uint16:
        return lambda value: half_bits_to_f32(value)
    return lambda value: value


@overload(first_half)
def _first_half(value):
    if isinstance(value, types.BaseTuple):
        return lambda value: value[0]
    return lambda value: value


@overload(second_half)
def _second_half(value):
    if isinstance(value, types.BaseTuple):
        return lambda value: value[1]
    return lambda value: value


@overload(cleared)
def _cleared(value):
    if isinstance(value, types.NoneType):
        return lambda value: None
    if isinstance(value, types.BaseTuple):
        return lambda value: (cleared(value[0]), cleared(value[1]))
    if value == I32X8:
        return lambda value: zero_i32x8()
    return lambda value: zero_f32x8()
