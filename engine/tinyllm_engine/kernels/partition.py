"""Which part of a row of outputs belongs to which thread.

All kernels split the same length in the same way, at multiples of 32 elements. So an elementwise kernel that follows
another one needs no barrier between them: each thread reads only what it wrote itself.
"""

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.jit import inlined


@inlined
def first_owned(length, thread, threads):
    """First element owned by `thread`; the range ends where the next thread's begins."""
    units = (length + UNIT - 1) // UNIT
    return min(length, units * thread // threads * UNIT)
