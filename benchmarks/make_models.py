"""Writes the model files that are measured.

    python benchmarks/make_models.py FOLDER [--smollm2 FILE] [--types Q4_0 Q4_K Q6_K Q8_0 F16]

TinyLlama-1.1B-random-TYPE.gguf have the shape of TinyLlama-1.1B and random weights: the speed is that of the real
model, the text is noise. As in llama-quantize's mixes, norms are F32, the embedding has the type of the blocks, and the
output too, but Q6_K in the files of 4 bits. With the Q4_1 file of SmolLM2-135M-Instruct (`tinyllm-chat pull smollm2`),
SmolLM2-135M-Instruct.TYPE.gguf are its weights dequantized and quantized again to Q8_0, Q4_0 and F16, the embedding
staying Q8_0 (F16 in the F16 file). Files that are there already stay as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "engine"), str(ROOT / "tests")]

from support import requantize  # noqa: E402
from tinyllm_engine.quants import QUANT_TYPES  # noqa: E402

OUTPUT_TYPES = {"Q4_0": "Q6_K", "Q4_K": "Q6_K", "Q6_K": "Q6_K", "Q8_0": "Q8_0", "F16": "F16"}  # by type of the blocks
SMOLLM2_TYPES = ("Q8_0", "Q4_0", "F16")
CHUNK = 1 << 24  # bytes of weights made at a time
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    """What a llama file says about its tensors; by default what TinyLlama-1.1B's says."""

    blocks: int = 22
    width: int = 2048
    heads: int = 32
    kv_heads: int = 4
    feed_forward: int = 5632
    vocabulary: int = 32000
    context: int = 2048

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """(name, outputs, inputs) of all matrices of the blocks, in file order."""
        kv = self.kv_heads * self.head_size
        for block in range(self.blocks):
            yield f"blk.{block}.attn_q.weight", self.width, self.width
            yield f"blk.{block}.attn_k.weight", kv, self.width
            yield f"blk.{block}.attn_v.weight", kv, self.width
            yield f"blk.{block}.attn_output.weight", self.width, self.width
            yield f"blk.{block}.ffn_gate.weight", self.feed_forward, self.width
            yield f"blk.{block}.ffn_up.weight", self.feed_forward, self.width
            yield f"blk.{block}.ffn_down.weight", self.width, self.feed_forward

    def norms(self) -> Iterator[str]:
        for block in range(self.blocks):
            yield f"blk.{block}.attn_norm.weight"
            yield f"blk.{block}.ffn_norm.weight"
        yield "output_norm.weight"


@dataclass(frozen=True)
class Planned:
    """A tensor to be written: made when its turn comes, so that one of them is in memory at a time."""

    name: str
    shape: tuple[int, ...]  # NumPy's order, elements
    type: str
    make: Callable[[], np.ndarray]


def write_random(path: Path, type_name: str, shape: Shape) -> None:
    """A llama file of this shape whose matrices are random blocks of this type, the same each time."""
    plan = list(_plan(shape, type_name, np.random.default_rng(1)))
    writer = GGUFWriter(path, "llama")
    _add_metadata(writer, shape, type_name)
    for tensor in plan:
        kind = GGMLQuantizationType[tensor.type]
        quant = QUANT_TYPES[kind]
        row_bytes = tensor.shape[-1] // quant.block_elements * quant.block_bytes
        stored = (*tensor.shape[:-1], row_bytes)
        writer.add_tensor_info(tensor.name, stored, np.dtype(np.uint8), int(np.prod(stored)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in plan:
        writer.write_tensor_data(tensor.make())
    writer.close()


def _plan(shape: Shape, type_name: str, random: np.random.Generator) -> Iterator[Planned]:
    def matrix(name: str, outputs: int, inputs: int, kind: str) -> Planned:
        return Planned(name, (outputs, inputs), kind, lambda: random_rows(kind, outputs, inputs, random))

    def ones() -> np.ndarray:
        return np.ones(shape.width, np.float32).view(np.uint8)

    yield matrix("token_embd.weight", shape.vocabulary, shape.width, type_name)
    for name, outputs, inputs in shape.matrices():
        yield matrix(name, outputs, inputs, type_name)
    for name in shape.norms():
        yield Planned(name, (shape.width,), "F32", ones)
    yield matrix("output.weight", shape.vocabulary, shape.width, OUTPUT_TYPES[type_name])


def random_rows(type_name: str, rows: int, columns: int, random: np.random.Generator) -> np.ndarray:
    """uint8 [rows, bytes of a row]: weights around 0 that leave the length of a vector about as it is."""
    quant = QUANT_TYPES[GGMLQuantizationType[type_name]]
    deviation = columns**-0.5
    data = np.empty(rows * columns // quant.block_elements * quant.block_bytes, np.uint8)
    blocks = data.view(quant.layout)
    scale = deviation / _deviation_at_scale_1(type_name)
    step = CHUNK // quant.block_bytes
    for start in range(0, len(blocks), step):
        blocks[start : start + step] = _random_blocks(type_name, len(blocks[start : start + step]), scale, random)
    return data.reshape(rows, -1)


def _random_blocks(type_name: str, count: int, scale: float, random: np.random.Generator) -> np.ndarray:
    """Blocks of random codes under one scale, as an array of the type's layout."""
    quant = QUANT_TYPES[GGMLQuantizationType[type_name]]
    if type_name == "F16":
        codes = random.integers(-(1 << 15), 1 << 15, count, np.int16)
        return (codes.astype(np.float32) * np.float32(scale)).astype(np.float16)
    blocks = random.integers(0, 256, count * quant.block_bytes, np.uint8).view(quant.layout)
    blocks["d"] = scale
    if type_name == "Q4_K":
        blocks["dmin"] = 7.5 * scale  # codes are 7.5 on average, scales and mins equally large
    elif type_name == "Q8_0":
        np.maximum(blocks["qs"], -127, out=blocks["qs"])  # quantizers never write -128
    return blocks


def _deviation_at_scale_1(type_name: str) -> float:
    """Standard deviation of the weights that random codes make."""
    quant = QUANT_TYPES[GGMLQuantizationType[type_name]]
    if type_name == "F16":
        return (1 << 15) / 3**0.5
    blocks = _random_blocks(type_name, 4096, 1.0, np.random.default_rng(0))
    return float(quant.dequantize(blocks.view(np.uint8).reshape(len(blocks), -1)).std())


def _add_metadata(writer: GGUFWriter, shape: Shape, type_name: str) -> None:
    writer.add_name(f"TinyLlama-1.1B-random {type_name}")
    writer.add_quantization_version(2)
    writer.add_block_count(shape.blocks)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocabulary)
    texts, types = vocabulary(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores([-float(id) for id in range(len(texts))])
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)


def vocabulary(size: int) -> tuple[list[str], list[TokenType]]:
    """SentencePiece tokens: the special ones, all bytes, ASCII, and made-up words, so that noise looks like text."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    texts += ["▁", *(chr(code) for code in range(0x21, 0x7F))]
    syllables = [consonant + vowel for vowel in "aeiou" for consonant in "bcdfghjklmnprstvwxyz"]
    texts += [f"▁{syllables[i % 100]}{syllables[i // 100 % 100]}{'r' * (i // 10000)}" for i in range(size - len(texts))]
    return texts, types + [TokenType.NORMAL] * (len(texts) - len(types))


def made(path: Path, write: Callable[[Path], None]) -> None:
    """Writes a file under a name of its own first, so that a whole one is there or none."""
    if path.exists():
        print(f"{path} is there")
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{path} {path.stat().st_size / 1e6:.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--types", nargs="*", choices=list(OUTPUT_TYPES), default=list(OUTPUT_TYPES), metavar="TYPE")
    parser.add_argument("--smollm2", type=Path, metavar="FILE", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.smollm2 is not None:
        for name in SMOLLM2_TYPES:
            write = partial(requantize.write, arguments.smollm2, new_type=GGMLQuantizationType[name])
            made(arguments.folder / f"SmolLM2-135M-Instruct.{name}.gguf", write)
    for name in arguments.types:
        write = partial(write_random, type_name=name, shape=Shape())
        made(arguments.folder / f"TinyLlama-1.1B-random-{name}.gguf", write)


if __name__ == "__main__":
    main()
