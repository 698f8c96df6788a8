"""`python -m tests.soak`: a chat that goes on for thousands of turns, and what it costs at the end and at the start."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)  # `support`, as for the tests
