"""The real model that some tests need, if this machine has it."""

from __future__ import annotations

import os
from pathlib import Path

from tinyllm_chat.chat.paths import Paths

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WITHOUT_SMOLLM2 = (
    f"{SMOLLM2_FILE} is neither in TINYLLM_TEST_MODEL nor in the models folder (tinyllm-chat pull smollm2)"
)


def smollm2_path() -> Path | None:
    """SmolLM2-135M-Instruct Q4_1: the file that TINYLLM_TEST_MODEL names, else the one that the program pulled."""
    named = os.environ.get("TINYLLM_TEST_MODEL")
    candidates = ([Path(named)] if named else []) + [Paths.default().models / SMOLLM2_FILE]
    return next((path for path in candidates if path.is_file()), None)
