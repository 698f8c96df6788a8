"""Mapped files that lose their pages while they are read.

A file that is cut short, or a disk that fails, makes the processor stop at the next read of the mapping: SIGBUS, which
ends the process, in whatever thread and without a word. Python cannot handle it, since its own handlers run later. So
a small native handler lays zeros over the rest of the mapping, notes that it did, and lets the reader go on; whoever
reads asks `Guard.lost` afterwards and throws away what came of it. A fault anywhere else is what it was before.

Linux only: on Windows a mapped file cannot be cut short, and elsewhere the signal ends the process as before.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import struct
import sys
import threading
import weakref
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

SLOTS = 256  # mappings guarded at the same time; those beyond are not
START, END, LOST = range(3)  # of a slot: addresses, end 0 for a free one, and whether zeros were laid over it

_FAULT_ADDRESS = 16  # of si_addr in siginfo_t
_SIGACTION_WORDS = 32  # at least what struct sigaction has
_SA_SIGINFO = 4
_MAP_FIXED = 16
_HANDLER = "on_bus_error"


class Guard:
    """While it lives, reading what `memory` (uint8, a whole mapping) has lost gives zeros and makes `lost` true."""

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        slots = _slots()
        self._slot: int | None = None if slots is None else slots.take(memory.ctypes.data, memory.nbytes)
        self._slots = slots
        if slots is not None and self._slot is not None:
            self._end = weakref.finalize(self, slots.give_back, self._slot)
            self._end.atexit = False

    @property
    def lost(self) -> bool:
        """Whether something was read that is no longer there."""
        return self._slots is not None and self._slot is not None and bool(self._slots.table[self._slot, LOST])

    def close(self) -> None:
        """Before the mapping goes: another one may get its addresses."""
        if self._slot is not None:
            self._end()


class _Slots:
    """What the handler looks at, and the handler: installed once and never removed."""

    def __init__(self) -> None:
        self.table = np.zeros((SLOTS, 3), np.int64)
        self._lock = threading.Lock()
        self._install()

    def take(self, start: int, nbytes: int) -> int | None:
        """The slot of a mapping; None where all are taken."""
        with self._lock:
            free = np.flatnonzero(self.table[:, END] == 0)
            if not free.size:
                return None
            slot = int(free[0])
            # END last: a slot counts from then on.
            self.table[slot, LOST], self.table[slot, START] = 0, start
            self.table[slot, END] = -(-(start + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
            return slot

    def give_back(self, slot: int) -> None:
        self.table[slot, END] = 0

    def _install(self) -> None:
        c = ctypes.CDLL(None, use_errno=True)
        previous, action = np.zeros(_SIGACTION_WORDS, np.int64), np.zeros(_SIGACTION_WORDS, np.int64)
        functions = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (c.mmap, c.sigaction)]
        engine, handler = _compiled(_handler(self.table.ctypes.data, previous.ctypes.data, *functions), _HANDLER)
        self._kept = previous, engine
        # struct sigaction: handler, mask of 128 bytes (empty), flags.
        action[0] = handler
        action.view(np.uint8)[136:140] = np.frombuffer(struct.pack("=i", _SA_SIGINFO), np.uint8)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (action, previous)]
        if c.sigaction(int(signal.SIGBUS), *pointers):
            self.table[:, END] = -1  # nothing is guarded then


@cache
def _slots() -> _Slots | None:
    return _Slots() if sys.platform == "linux" and sys.maxsize > 1 << 32 else None


def _compiled(module: Any, name: str) -> tuple[Any, int]:
    """Machine code of a module: what owns it, and the address of one of its functions."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    machine = binding.Target.from_triple(module.triple).create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine, engine.get_function_address(name)


def _handler(table: int, previous: int, map_address: int, sigaction: int) -> Any:
    """A module with void HANDLER(int, siginfo_t *, void *), made of constants and two calls that such a one may make.

    It goes through the slots for one that the fault lies in, and lays zeros from its page on to the slot's end.
    """
    from llvmlite import binding, ir

    module = ir.Module("vanishing")
    module.triple = binding.get_process_triple()
    i32, i64 = ir.IntType(32), ir.IntType(64)
    handler = ir.Function(module, ir.FunctionType(ir.VoidType(), [i32, i64, i64]), _HANDLER)
    b = ir.IRBuilder(handler.append_basic_block("entry"))
    entry, looking = b.block, handler.append_basic_block("looking")
    inside, elsewhere = handler.append_basic_block("inside"), handler.append_basic_block("elsewhere")
    following, done = handler.append_basic_block("following"), handler.append_basic_block("done")
    laid = handler.append_basic_block("laid")

    def word(address: Any, offset: int) -> Any:
        return b.inttoptr(b.add(address, i64(offset)), i64.as_pointer())

    def call(address: int, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return b.call(b.inttoptr(i64(address), kind.as_pointer()), arguments)

    fault = b.load(word(handler.args[1], _FAULT_ADDRESS))
    b.branch(looking)

    b.position_at_end(looking)
    slot = b.phi(i64)
    slot.add_incoming(i64(table), entry)
    end = b.load(word(slot, 8 * END))
    after_start = b.icmp_unsigned(">=", fault, b.load(word(slot, 8 * START)))
    b.cbranch(b.and_(after_start, b.icmp_unsigned("<", fault, end)), inside, following)

    b.position_at_end(following)
    next_slot = b.add(slot, i64(24))
    slot.add_incoming(next_slot, following)
    b.cbranch(b.icmp_unsigned("<", next_slot, i64(table + 24 * SLOTS)), looking, elsewhere)

    b.position_at_end(inside)
    page = b.and_(fault, i64(-mmap.PAGESIZE))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    arguments = page, b.sub(end, page), i32(mmap.PROT_READ), i32(flags), i32(-1), i64(0)
    b.cbranch(b.icmp_unsigned("==", call(map_address, i64, *arguments), page), laid, elsewhere)

    b.position_at_end(laid)
    b.store(i64(1), word(slot, 8 * LOST))
    b.branch(done)

    b.position_at_end(elsewhere)  # the fault comes again, and does what it would have done
    call(sigaction, i32, i32(int(signal.SIGBUS)), i64(previous), i64(0))
    b.branch(done)

    b.position_at_end(done)
    b.ret_void()
    return module
