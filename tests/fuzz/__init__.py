"""`python -m tests.fuzz`: files made to break the program, each read in a process that may die of it."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)  # `support`, as for the tests
