"""Kernels compiled for ARM against their twins, run in an emulator where there is one."""

import pytest
from support import cross, emulated_neon

# Each kind of product, of cache and of row operation; not attention, which calls its steps by address, and what stands
# there in memory is code of this machine.
TESTS = (
    "test_products[Q6_K]",
    "test_products[Q8_0]",
    "test_products[IQ4_XS]",
    "test_embeddings[IQ3_XXS]",
    "test_products[F16]",
    "test_norms_and_activations[9-96-3]",
    "test_append[1-3-1000-f16]",
)


@pytest.mark.timeout(cross.PATIENCE)
@pytest.mark.skipif(emulated_neon.missing_tools() is not None, reason=str(emulated_neon.missing_tools()))
def test_kernels():
    tests = [f"test_kernels.py::{test}" for test in TESTS]
    code, output = cross.run_tests("emulated_neon", cross.environment("neon"), *tests)
    assert code == 0, output
