"""The SIMD targets that this machine cannot run: what they compile to, and their arithmetic with the instruction that
is missing here replaced by its definition. (Those that it can run are in test_targets.)"""

import re

import pytest
from support import cross, played
from tinyllm_engine import simd
from tinyllm_engine.simd.target import TARGETS, emits_sdot

pytestmark = pytest.mark.timeout(cross.PATIENCE)

# Of the kernels those that cover each kind of product; the others differ in unpacking only.
KERNELS = {
    "avx512": ("matvec.matvec_q8_0", "matmul.matmul_q6_k", "cached_keys.scores_f16", "cached_keys.scores_q8_0"),
    "avxvnni": ("matvec.matvec_q4_0", "matmul.matmul_q8_0"),
    "neon": ("matvec.matvec_q4_0", "matmul.matmul_q6_k", "matvec.matvec_f16"),
}
CASES = [(target, kernel) for target, kernels in KERNELS.items() for kernel in kernels]
# (makes float32 of f16, multiplies bytes, multiplies and adds float32)
INSTRUCTIONS = {
    "avx512": ("vcvtph2ps", "vpdpbusd", "vfmadd"),
    "avxvnni": ("vcvtph2ps", "vpdpbusd", "vfmadd"),
    "neon": (r"fcvtl|fcvt\ts\d+, h", "sdot", "fmla"),
}
LIBRARY_CONVERSIONS = re.compile(r"\b__(gnu_[fh]2[fh]_ieee|extendhfsf2|truncsfhf2)\b")


def need_compiler(triple):
    if not cross.can_compile(triple):
        pytest.skip(f"LLVM makes no code for {triple} here")


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    """(target, kernel) -> its assembly"""
    known = {}

    def of(target, kernel):
        need_compiler(cross.PROCESSORS[target].triple)
        if (target, kernel) not in known:
            for name, text in cross.assembly(target, tmp_path_factory.mktemp(target), *KERNELS[target]).items():
                known[target, name] = text
        return known[target, kernel]

    return of


def inner_loops(text):
    """The instructions of each loop that has no other loop in it: list of lists of lines."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\t.")]
    labels = {line.split(":")[0]: number for number, line in enumerate(lines) if re.match(r"\S+:", line)}
    loops = []
    for end, line in enumerate(lines):
        jump = re.match(r"(?:j\w+|b\.\w+|b|cbn?z|tbn?z)\s.*?(\.?L\w+)$", line)
        if jump and labels.get(jump[1], end) < end:
            loops.append((labels[jump[1]], end))
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    return [lines[first : last + 1] for first, last in inner]


def lines_with(lines, instruction):
    return [line for line in lines if re.search(instruction, line)]


@pytest.mark.parametrize(("target", "kernel"), CASES)
def test_inner_loops_use_what_the_processor_has(target, kernel, assembly):
    text = assembly(target, kernel)
    convert, multiply_bytes, multiply = INSTRUCTIONS[target]
    hot = multiply if kernel.endswith("f16") else multiply_bytes
    loop = max(inner_loops(text), key=lambda lines: len(lines_with(lines, hot)))
    assert len(lines_with(loop, hot)) >= 4
    assert not [line for line in loop if re.match(r"call|blr?\s", line)]
    if kernel.endswith("f16"):
        assert len(lines_with(loop, convert)) >= 2
    assert re.search(convert, text)  # scales are f16 everywhere
    assert not LIBRARY_CONVERSIONS.search(text)
    assert "vpmadd" not in text


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS["avx512"] if kernel.startswith("matmul")])
def test_panels_of_avx512_fill_its_registers(kernel, assembly):
    products = lines_with(assembly("avx512", kernel).splitlines(), "vpdpbusd")
    assert products
    assert all("%zmm" in line for line in products)


@pytest.mark.parametrize("kernel", KERNELS["avxvnni"])
def test_avxvnni_needs_no_avx512(kernel, assembly):
    """The same instruction is encoded in another way."""
    text = assembly("avxvnni", kernel)
    assert "%zmm" not in text
    assert all("{vex}" in line for line in lines_with(text.splitlines(), "vpdpbusd"))


# --- arithmetic -------------------------------------------------------------------------------------------------------

DOTS = (
    *(f"test_simd_codes.py::test_{name}" for name in ("dot_s8", "sums_of_eight_rows", "narrow_sums", "codes_to_f32")),
    "test_simd_lookup.py::test_lookup16",
)
PLAYED = {
    "avx512": (
        *DOTS,
        "test_simd.py::test_vectors",
        "test_kernels.py::test_products[Q8_0]",
        "test_kernels.py::test_embeddings[IQ4_XS]",
    ),
    "avxvnni": DOTS,
    "neon": DOTS,
}


@pytest.mark.parametrize("target", PLAYED)
@pytest.mark.skipif(not simd.HARDWARE_F16, reason="these targets convert f16 by an instruction, which is missing here")
def test_arithmetic(target):
    code, output = cross.run_tests("played", played.environment(target), *PLAYED[target])
    assert code == 0, output


# --- which ARM processors have dot products -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triple", "processor", "features", "expected"),
    [
        ("arm64-apple-darwin22.6.0", "apple-m1", "", True),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", "+crc,+fp-armv8,+lse,+neon", True),
        ("aarch64-unknown-linux-gnu", "cortex-a72", "+crc,+fp-armv8,+neon", False),
        ("aarch64-unknown-linux-gnu", "generic", "+fp-armv8,+neon", False),
        ("aarch64-pc-windows-msvc", "generic", "+crc,+dotprod", True),
    ],
)
def test_dot_products_go_by_the_model_of_the_processor(triple, processor, features, expected):
    """LLVM lists no feature at all on macOS, and not this one on Linux."""
    need_compiler(triple)
    assert emits_sdot(triple, processor, features) is expected


def test_the_played_processors_have_what_their_targets_need():
    assert set(cross.PROCESSORS) == set(TARGETS) - {"avx2", "portable"}
    for target, processor in cross.PROCESSORS.items():
        assert TARGETS[target] <= set(processor.features)
