"""Which SIMD target is chosen; and the tests of vectors and kernels again on every target this machine can run."""

import pytest
from support.cross import PATIENCE
from support.targets import ALL_TARGETS, OLD_PROCESSOR, TestRun, why_not
from tinyllm_engine.errors import EngineError
from tinyllm_engine.simd import target as simd


@pytest.fixture
def processor(monkeypatch):
    """Pretends that the processor has these features."""
    return lambda *names: monkeypatch.setattr(simd, "target_features", lambda: set(names))


@pytest.mark.parametrize("target", simd.TARGETS)
def test_the_best_target_whose_features_are_there(target, processor):
    processor("sse2", *simd.TARGETS[target])
    assert simd.choose_target() == target


def test_one_missing_feature_is_enough_to_go_without(processor):
    processor(*simd.TARGETS["avx2"] - {"fma"})
    assert simd.choose_target() == "portable"
    with pytest.raises(EngineError, match="TINYLLM_SIMD=avx2: this processor lacks fma"):
        simd.choose_target("avx2")


def test_a_forced_target(processor):
    processor(*simd.TARGETS["avx512"])
    assert simd.choose_target("avx2") == "avx2"
    assert simd.choose_target("portable") == "portable"
    with pytest.raises(EngineError, match=r"TINYLLM_SIMD: expected one of avx512, .*; found 'sse9'"):
        simd.choose_target("sse9")


VECTORS = ("test_simd.py", "test_simd_codes.py", "test_simd_half.py", "test_simd_lookup.py")
# Of the kernels one for each way of going through rows, with tables, and attention: the vectors they are made of are
# tested by themselves.
KERNELS = (
    "test_kernels.py::test_products[Q8_0]",
    "test_kernels.py::test_products[IQ2_S]",
    "test_kernels.py::test_attention[f16-f16-9-3-64-64]",
)
FEW_KERNELS = KERNELS[:1]  # the old processor has the portable code, compiled in another way


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The tests on each other target, all begun at once: they mostly compile."""
    folder = tmp_path_factory.mktemp("targets")
    started = {
        target: TestRun(target, folder / target, *VECTORS, *(FEW_KERNELS if target == OLD_PROCESSOR else KERNELS))
        for target in ALL_TARGETS
        if why_not(target) is None
    }
    yield started
    for run in started.values():
        run.end()


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("target", ALL_TARGETS)
def test_vectors_and_kernels(target, runs):
    if (reason := why_not(target)) is not None:
        pytest.skip(reason)
    code, output = runs[target].result()
    assert code == 0, output
