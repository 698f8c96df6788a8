"""Who may write a chat: a lock file that names the process which has it. Needs no file locking of the system."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.files import open_private, read_file, temporary

LOCK_ENDING = ".lock"
FILE_LIMIT = 1 << 16  # bytes; what a lock says is far shorter


class LockFile:
    """A held lock. It dies with its process: another one sees that the process is gone and takes over."""

    def __init__(self, path: Path, nonce: str) -> None:
        self.path = path
        self._nonce = nonce

    @classmethod
    def acquire(cls, path: Path) -> LockFile | None:
        """The lock, or None while a living process has it. Raises OSError if the folder cannot be written."""
        nonce = secrets.token_hex(8)
        owner = {
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "host": socket.gethostname(),
            "nonce": nonce,
        }
        content = json.dumps(owner).encode()
        for _ in range(8):
            if _create(path, content):
                return cls(path, nonce)
            if not remove_stale(path):
                return None
        return None

    def release(self) -> None:
        """Gives the lock back; a lock that another process took in the meantime stays."""
        found = _read(self.path)
        if found is not None and found.get("nonce") == self._nonce:
            with contextlib.suppress(OSError):
                self.path.unlink()


def is_held(path: Path) -> bool:
    """True while a living process has the lock."""
    found = _read(path)
    return found is not None and _is_alive(found)


def process_start(pid: int) -> str | None:
    """When a process was started, in the system's own words; None if there is no such process (any more)."""
    if sys.platform == "linux":
        return _linux_process_start(pid)
    if sys.platform == "win32":
        return _windows_process_start(pid)
    try:
        listed = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"  # as good as alive: never take a chat away from a process that may be there
    return listed.stdout.strip() or None


def _linux_process_start(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else "unknown"
    except OSError:
        return "unknown"
    # The command's name stands in parentheses and may hold anything; state is the first field after it.
    fields = stat[stat.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _windows_process_start(pid: int) -> str | None:
    import ctypes
    from ctypes import wintypes

    query_limited_information, still_active = 0x1000, 259
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    kernel.OpenProcess.restype = wintypes.HANDLE
    handle = wintypes.HANDLE(kernel.OpenProcess(query_limited_information, False, pid))
    if not handle:
        access_denied = 5
        return "unknown" if ctypes.get_last_error() == access_denied else None  # type: ignore[attr-defined, unused-ignore]
    try:
        exit_code = wintypes.DWORD()
        times = [wintypes.FILETIME() for _ in range(4)]
        if kernel.GetExitCodeProcess(handle, ctypes.byref(exit_code)) and exit_code.value != still_active:
            return None
        if not kernel.GetProcessTimes(handle, *(ctypes.byref(time) for time in times)):
            return "unknown"
        return str(times[0].dwHighDateTime << 32 | times[0].dwLowDateTime)
    finally:
        kernel.CloseHandle(handle)


def _create(path: Path, content: bytes) -> bool:
    """Makes the lock file appear with its content in it; False if there is one."""
    unfinished = temporary(path.parent)
    try:
        _create_in_place(unfinished, content)
        os.link(unfinished, path)
        return True
    except FileExistsError:
        return False
    except OSError:
        # No hard links here: the name appears before its content, and a reader in between sees an empty lock.
        return _create_in_place(path, content)
    finally:
        unfinished.unlink(missing_ok=True)


def _create_in_place(path: Path, content: bytes) -> bool:
    try:
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:  # a full disk: an empty lock would be anybody's
        path.unlink(missing_ok=True)
        raise
    return True


def _read(path: Path) -> dict[str, Any] | None:
    """What the lock file says; None if there is none, {} if it says nothing that makes sense."""
    try:
        found = json.loads(read_file(path, FILE_LIMIT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_alive(owner: dict[str, Any]) -> bool:
    pid, started = owner.get("pid"), owner.get("started")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 2**31:
        return False
    if owner.get("host") != socket.gethostname():
        return True  # another machine on a shared home: not to be seen from here
    now = process_start(pid)
    return now is not None and (now == started or "unknown" in (now, started))


def remove_stale(path: Path) -> bool:
    """Takes away the lock of a dead process; False if a living one has it. Of several that try, one moves it."""
    stale = _read(path)
    if stale is None:
        return True
    if _is_alive(stale):
        return False
    moved = temporary(path.parent)
    try:
        os.rename(path, moved)
    except OSError:
        return True
    if _read(moved) != stale:
        # Another process was faster: what was moved is its new lock, which goes back.
        with contextlib.suppress(OSError):
            os.rename(moved, path)
            return True
    moved.unlink(missing_ok=True)
    return True
