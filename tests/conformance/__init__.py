"""`python -m tests.conformance`: what the engine computes beside what is recorded of others, in three tables."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)  # `support`, as for the tests
