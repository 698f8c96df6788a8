"""What killed instances leave behind: files they were writing, and locks that nobody holds any more."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from tinyllm_chat.chat.files import HOST, TEMPORARY
from tinyllm_chat.chat.locks import LOCK_ENDING, process_start, remove_stale

STALE_SECONDS = 600.0  # after which nobody is still writing a temporary file

_NAME = re.compile(TEMPORARY.format(host="([0-9a-f]+)", pid=r"(\d+)", random="[0-9a-f]+").replace(".", r"\."))


def sweep(folders: Iterable[Path]) -> None:
    """Removes what instances that are gone have left in these folders. What cannot be removed stays."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(LOCK_ENDING):
                    remove_stale(Path(entry.path))
                elif (found := _NAME.fullmatch(entry.name)) and _is_abandoned(entry, found[1], int(found[2])):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


def _is_abandoned(entry: os.DirEntry[str], host: str, pid: int) -> bool:
    if host == HOST:
        return pid != os.getpid() and process_start(pid) is None
    with contextlib.suppress(OSError):
        return abs(time.time() - entry.stat().st_mtime) > STALE_SECONDS
    return False
