"""Which part of a row of outputs belongs to which thread.

All kernels split the same length in the same way, at multiples of 32 elements. So an elementwise kernel that follows
another one needs no barrier between them: each thread reads only what it wrote itself.
"""

from tinyllm_engine.agreed import UNIT
from tinyllm_engine.jit import inlined


@inlined
def owned(length, thread, threads):
    """The first element owned by `thread`, and the one behind its last: where the next thread's part begins."""
    units = (length + UNIT - 1) // UNIT
    return min(length, units * thread // threads * UNIT), min(length, units * (thread + 1) // threads * UNIT)
