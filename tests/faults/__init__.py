"""`python -m tests.faults`: what is left of a chat whose program, disk or machine fails."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)  # `support`, as for the tests
