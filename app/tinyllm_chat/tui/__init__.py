"""The full-screen chat. Importing it sets what Textual reads from the environment when it is first imported."""

from __future__ import annotations

import os

# How long a lone Escape may still become the start of an escape sequence. Textual's 100 ms would be felt on every stop.
os.environ.setdefault("ESCDELAY", "25")
