"""A flag that one thread sets and native code reads, without the interpreter in between."""

import numpy as np


class Cancel:
    """Stops a running forward pass or generation from another thread.

    >>> cancel = Cancel()
    >>> cancel.set()
    >>> [event.reason for event in generate(runner.sequence(), prompt, SamplingParams(), cancel=cancel)]
    ['cancelled']

    `address` is the address of an int32 that compiled kernels poll; it stays valid as long as the object lives.
    """

    def __init__(self) -> None:
        self._flag = np.zeros(1, np.int32)

    @property
    def address(self) -> int:
        return self._flag.ctypes.data

    def set(self) -> None:
        """Stops what runs with this flag, and what begins with it until `clear`."""
        self._flag[0] = 1

    def clear(self) -> None:
        """Makes it new again."""
        self._flag[0] = 0

    def is_set(self) -> bool:
        """Whether it is stopping what runs."""
        return bool(self._flag[0])
