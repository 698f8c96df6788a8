"""The log file: what a bug report needs and a screen cannot show."""

from __future__ import annotations

import io
import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tinyllm_chat.chat.files import make_private_folder, open_private

FILE_BYTES = 1 << 20
KEPT_FILES = 3


class _PrivateFileHandler(RotatingFileHandler):
    def _open(self) -> io.TextIOWrapper:
        descriptor = open_private(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def start_logging(log_file: Path, level: int = logging.INFO) -> logging.Handler | None:
    """Sends this program's messages to `log_file` (0600, rotated by size), other packages' from warnings on.

    Returns the handler, or None where the file cannot be written: then nothing is logged, and nothing is printed.
    """
    # A full disk must not write tracebacks of the logger over the screen.
    logging.raiseExceptions = False
    handler: logging.Handler | None
    try:
        make_private_folder(log_file.parent)
        handler = _PrivateFileHandler(log_file, maxBytes=FILE_BYTES, backupCount=KEPT_FILES, encoding="utf-8")
    except OSError:
        logging.getLogger().addHandler(logging.NullHandler())
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    for package in ("tinyllm_chat", "tinyllm_engine"):
        logging.getLogger(package).setLevel(level)
    logging.captureWarnings(True)
    return handler
