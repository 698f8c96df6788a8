"""Model files wrong in one to three ways: sound ones of toy models, changed within the format and beyond.

A case is a function of a seed and its number alone.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from support import gguf_files as files
from support import tiny_model, tiny_vocabularies
from support.gguf_files import Raw, Tensor, Typed
from support.golden import family_toys, toy_specs
from tinyllm_engine.quants import QUANT_TYPES

MOST_DATA = 1 << 21  # bytes of a tensor
INTEGERS = [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 1000, 4095, 4096, 65535, 65536, 10**6, 10**9]
INTEGERS += [2**31 - 1, 2**31, 2**32 - 1, 2**42, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -(2**31), -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-10, 1e10, 3.4e38, math.inf, -math.inf, math.nan, 0.5, 1e-5, 10000.0]
RANGES = {files.UINT8: (0, 8), files.INT8: (1, 8), files.UINT16: (0, 16), files.INT16: (1, 16), files.BOOL: (0, 1)}
RANGES |= {files.UINT32: (0, 32), files.INT32: (1, 32), files.UINT64: (0, 64), files.INT64: (1, 64)}
TEXTS = [
    "",
    " ",
    "llama",
    "gpt2",
    "bert",
    "none",
    "yarn",
    "a\0b",
    "\x1b[31mred\x1b]52;c;eA==\7",
    "\u202e",
    "e" + "\u0301" * 300,
]
TEXTS += [
    "x" * 5000,
    "<0x-1>",
    "<0xZZ>",
    "<|im_end|>",
    "\udcff\udcfe",
    "default",
    "%s%n{}{0}",
    "../../etc/passwd",
    "[/b]",
]
TEMPLATES = [
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "{{ messages[9].content }}",
    "{% for i in range(10**9) %}x{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ ''.__class__.__mro__ }}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{{ raise_exception('no \x1b[31m') }}",
    "{% include 'x' %}",
    "{% if %}",
    "{{" * 3000,
    "(" * 3000,
    "{{ " + "(" * 200 + "1" + ")" * 200 + " }}",
    "{% set ns = namespace(a=1) %}{{ ns }}",
    "{{ messages | tojson(indent=9) }}{{ strftime_now('%' * 100) }}",
]
ARRAYS = [np.zeros(0, np.int32), np.arange(3, dtype=np.uint32), np.full(4, -1, np.int32), np.zeros(2, np.bool_)]
ARRAYS += [np.full(3, np.nan, np.float32), np.full(2, 2**63, np.uint64), np.zeros(300, np.int8), np.full(2, 1e300)]


@dataclass(frozen=True)
class Draft:
    """A file before it is written: what it says, in order, and how it is laid out."""

    pairs: tuple[tuple[Any, Any], ...]
    tensors: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def bytes(self) -> bytes:
        return files.build(self.pairs, self.tensors, **dict(self.options))


def case(seed: int, number: int) -> tuple[str, bytes]:
    """What the case is, in words, and the file."""
    rng = random.Random(f"{seed}/{number}")
    names = toy_names()
    name = rng.choice(names) if rng.random() < 0.7 else "tiny"
    draft, said = toy(name), [name]
    if rng.random() < 0.5:
        draft = with_vocabulary(draft, rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        draft = change(draft, rng)
        said.append(change.__name__)
    data = draft.bytes()
    if len(said) == 1 or rng.random() < 0.25:
        damage = rng.choice(DAMAGES)
        data = damage(data, rng)
        said.append(damage.__name__)
    return " ".join(said), data


@cache
def toy_names() -> list[str]:
    """The toy models of all architectures."""
    names = [f"{collection}/{name}" for collection in ("archs", "more") for name in toy_specs(collection)]
    return [*names, *(f"families/{name}" for name in family_toys().TOYS)]


@cache
def toy(name: str) -> Draft:
    """A sound file."""
    if name == "tiny":
        return Draft(tuple(tiny_model.metadata().items()), tuple(tiny_model.tensors()))
    collection, _, short = name.partition("/")
    toys = family_toys()
    spec = toys.TOYS[short].spec() if collection == "families" else toy_specs(collection)[short]
    pairs = []
    for key, kinds, value in spec["kv"]:
        kind = getattr(files, kinds[-1])
        pairs.append((key, Raw(files.array(kind, value)) if kinds[0] == "ARRAY" else Typed(kind, value)))
    random = np.random.default_rng(len(name))
    tensors = [
        Tensor.of(name, (random.standard_normal(shape[::-1]) * 0.1).astype(np.float16 if kind == "F16" else np.float32))
        for name, shape, kind in spec["tensors"]
    ]
    return Draft(tuple(pairs), tuple(tensors))


@cache
def vocabularies() -> list[dict[str, Any]]:
    special = {"<|im_start|>": 3, "<|im_end|>": 3, "</s2>": 4}
    return [
        tiny_vocabularies.byte_level(["Ġ t", "h e", "Ġt he"], special, pre="llama-bpe", eos_token_id=261),
        tiny_vocabularies.sentence_piece({"▁": -1.0, "he": -2.0, "▁he": -3.0}, special),
        tiny_vocabularies.unigram({"▁": -1.0, "he": -2.0, "l": -1.5, "lo": -1.7}, special),
        tiny_vocabularies.word_piece("▁hello", "world", "▁a", "##b"),
        tiny_vocabularies.rwkv("a", "b", r"\x00", r"\xe4\xbd", "hello"),
        tiny_vocabularies.plamo({"he": -1.0, "▁w": -2.0}),
    ]


def with_vocabulary(draft: Draft, rng: random.Random) -> Draft:
    words = rng.choice(vocabularies()) | {"tokenizer.chat_template": rng.choice(TEMPLATES)}
    kept = [pair for pair in draft.pairs if not str(pair[0]).startswith("tokenizer.")]
    return replace(draft, pairs=(*kept, *words.items()))


def changed_value(draft: Draft, rng: random.Random) -> Draft:
    """Another value of the same type."""
    return _with_pair(draft, rng, lambda value: _other(value, rng))


def changed_hyperparameters(draft: Draft, rng: random.Random) -> Draft:
    """Another number for one to three of the architecture's keys."""
    pairs = list(draft.pairs)
    at = [i for i, (key, value) in enumerate(pairs) if isinstance(value, Typed | int) and "tokenizer" not in str(key)]
    for i in rng.sample(at, min(len(at), rng.randint(1, 3))):
        pairs[i] = (pairs[i][0], _other(pairs[i][1], rng))
    return replace(draft, pairs=tuple(pairs))


def changed_type(draft: Draft, rng: random.Random) -> Draft:
    return _with_pair(draft, rng, lambda value: _any_value(rng))


def added_key(draft: Draft, rng: random.Random) -> Draft:
    """A key that some model has, with some value; it may be there already."""
    key = rng.choice(_keys())
    architecture = next((value for name, value in draft.pairs if name == "general.architecture"), "llama")
    prefix = str(architecture.value if isinstance(architecture, Typed) else architecture)
    key = key if key.startswith(("general.", "tokenizer.", "split.")) else f"{prefix}.{key.partition('.')[2]}"
    kept = [pair for pair in draft.pairs if pair[0] != key or rng.random() < 0.05]
    return replace(draft, pairs=(*kept, (key, _any_value(rng))))


def removed_key(draft: Draft, rng: random.Random) -> Draft:
    pairs = list(draft.pairs)
    if pairs:
        del pairs[rng.randrange(len(pairs))]
    return replace(draft, pairs=tuple(pairs))


def changed_elements(draft: Draft, rng: random.Random) -> Draft:
    """Of an array: other elements, more of them, or fewer."""

    def change(value: Any) -> Any:
        if isinstance(value, list) and value:
            items = list(value)
            for _ in range(rng.randint(1, 4)):
                items[rng.randrange(len(items))] = rng.choice([*TEXTS, rng.choice(items)])
            return items[: rng.choice((len(items), len(items) - 1, 1))] * rng.choice((1, 1, 1, 2))
        if isinstance(value, np.ndarray) and len(value):
            array = value.copy()
            with np.errstate(all="ignore"):
                numbers = FLOATS if array.dtype.kind == "f" else INTEGERS
                array[rng.randrange(len(array))] = np.array(rng.choice(numbers)).astype(array.dtype)
            return array[: rng.choice((len(array), len(array) - 1))]
        return rng.choice(ARRAYS)

    return _with_pair(draft, rng, change, lambda value: isinstance(value, list | np.ndarray | Raw))


def changed_tensor(draft: Draft, rng: random.Random) -> Draft:
    """Another shape, type, place or name, with as much data as before or as much as that takes."""

    def change(tensor: Tensor) -> Tensor | bytes:
        dims, type_id = list(tensor.dims), tensor.type
        match rng.randrange(6):
            case 0:
                dims[rng.randrange(len(dims))] = rng.choice([n for n in INTEGERS if -(2**63) <= n < 2**63])
            case 1:
                dims = dims[::-1] if rng.random() < 0.5 else [*dims, 1]
            case 2:
                type_id = rng.choice([*QUANT_TYPES, 4, 43, -1, 2**31 - 1])
            case 3:
                return replace(tensor, offset=rng.choice([0, 1, 32, 64, 2**20, 2**63, 2**64 - 32]))
            case 4:
                return replace(
                    tensor, name=rng.choice(["", "x" * 64, "a\0b", "\x1b[31m", "token_embd.weight", "blk.0."])
                )
            case _:
                dims = [*dims[: rng.randint(0, len(dims))], rng.choice((0, 1, 8, 32, 64, 256))]
        return _fitting(replace(tensor, dims=dims[:5], type=type_id))

    return _with_tensor(draft, rng, change)


def quantized_tensors(draft: Draft, rng: random.Random) -> Draft:
    """Tensors of another type with random blocks."""
    kind = rng.choice(list(QUANT_TYPES.values()))

    def change(tensor: Tensor) -> Tensor:
        if len(tensor.dims) < 2 or tensor.dims[0] % kind.block_elements or not 0 <= math.prod(tensor.dims) <= MOST_DATA:
            return tensor
        number = next(number for number, each in QUANT_TYPES.items() if each is kind)
        return replace(tensor, type=number, data=rng.randbytes(_size(tensor.dims, kind)))

    return replace(draft, tensors=tuple(change(t) if isinstance(t, Tensor) else t for t in draft.tensors))


def changed_weights(draft: Draft, rng: random.Random) -> Draft:
    """Numbers that are none, or none to compute with."""

    def change(tensor: Tensor) -> Tensor:
        pattern = rng.choice([b"\xff", b"\0", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\xff\xff\x7f\x7f", rng.randbytes(64)])
        start = rng.choice((0, rng.randrange(len(tensor.data) or 1)))
        data = (pattern * (len(tensor.data) // len(pattern) + 1))[: len(tensor.data) - start]
        return replace(tensor, data=tensor.data[:start] + data)

    return _with_tensor(draft, rng, change)


def removed_tensor(draft: Draft, rng: random.Random) -> Draft:
    tensors = list(draft.tensors)
    if tensors:
        del tensors[rng.randrange(len(tensors))]
    return replace(draft, tensors=tuple(tensors))


def swapped_tensors(draft: Draft, rng: random.Random) -> Draft:
    """The shape and data of one under the name of another."""
    tensors = list(draft.tensors)
    if len(tensors) > 1:
        a, b = rng.sample(range(len(tensors)), 2)
        if isinstance(tensors[a], Tensor) and isinstance(tensors[b], Tensor):
            names = tensors[a].name, tensors[b].name
            tensors[a], tensors[b] = replace(tensors[b], name=names[0]), replace(tensors[a], name=names[1])
    return replace(draft, tensors=tuple(tensors))


def changed_layout(draft: Draft, rng: random.Random) -> Draft:
    """Counts, the version, the alignment."""
    count = rng.choice(INTEGERS) & (2**63 - 1)
    option = rng.choice([("version", rng.choice((0, 1, 2, 4, 3 << 16))), ("key_count", count), ("tensor_count", count)])
    if rng.random() < 0.4:
        alignment = rng.choice((1, 8, 32, 64, 4096, 0, 3))
        pairs = (("general.alignment", Typed(files.UINT32, alignment)), *draft.pairs)
        return replace(draft, pairs=pairs, options=(("alignment", max(1, alignment)),))
    return replace(draft, options=(*draft.options, option))


CHANGES: list[Callable[[Draft, random.Random], Draft]] = [
    changed_value,
    changed_hyperparameters,
    changed_hyperparameters,
    changed_hyperparameters,
    changed_type,
    added_key,
    added_key,
    removed_key,
    changed_elements,
    changed_tensor,
    changed_tensor,
    quantized_tensors,
    changed_weights,
    changed_weights,
    removed_tensor,
    swapped_tensors,
    changed_layout,
]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(rng.choice((len(data), min(len(data), 4000))))]


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Mostly in the header."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 40))):
        at = rng.randrange(rng.choice((len(data), min(len(data), 6000))))
        width = rng.choice((1, 1, 4, 8))
        damaged[at : at + width] = rng.choice((rng.randbytes(width), b"\xff" * width, b"\0" * width))
    return bytes(damaged)


def moved_bytes(data: bytes, rng: random.Random) -> bytes:
    """Something taken out, or something repeated."""
    at, length = rng.randrange(min(len(data), 6000)), rng.choice((1, 4, 8, 100))
    return data[:at] + data[at + length :] if rng.random() < 0.5 else data[: at + length] + data[at:]


def changed_length(data: bytes, rng: random.Random) -> bytes:
    """A 64-bit word that may be a length, made another."""
    at = rng.randrange(max(1, min(len(data), 6000) - 8))
    return data[:at] + struct.pack("<Q", rng.choice(INTEGERS) & (2**64 - 1)) + data[at + 8 :]


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    cut,
    changed_bytes,
    changed_bytes,
    moved_bytes,
    changed_length,
]


@cache
def _keys() -> list[str]:
    """All that any toy has, and a few that none has."""
    found = {str(key) for name in toy_names() for key, _ in toy(name).pairs}
    found |= {str(key) for vocabulary in vocabularies() for key in vocabulary}
    more = (
        "general.type",
        "general.name",
        "split.count",
        "split.no",
        "tokenizer.chat_template",
        "x.rope.freq_base_swa",
    )
    more += ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.suppress_tokens", "general.sampling.temp", "x.vocab_size")
    more += ("tokenizer.ggml.precompiled_charsmap", "x.nextn_predict_layers", "x.attention.sliding_window_pattern")
    return sorted(found | set(more))


def _with_pair(
    draft: Draft, rng: random.Random, change: Callable[[Any], Any], which: Callable[[Any], bool] = lambda value: True
) -> Draft:
    at = [i for i, (_, value) in enumerate(draft.pairs) if which(value)]
    if not at:
        return draft
    i, pairs = rng.choice(at), list(draft.pairs)
    pairs[i] = (pairs[i][0], change(pairs[i][1]))
    return replace(draft, pairs=tuple(pairs))


def _with_tensor(draft: Draft, rng: random.Random, change: Callable[[Tensor], Any]) -> Draft:
    at = [i for i, tensor in enumerate(draft.tensors) if isinstance(tensor, Tensor)]
    if not at:
        return draft
    i, tensors = rng.choice(at), list(draft.tensors)
    tensors[i] = change(tensors[i])
    return replace(draft, tensors=tuple(tensors))


def _other(value: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    match value:
        case Typed(kind, old) if kind in RANGES:
            low, bits = RANGES[kind]
            least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if low else (0, (1 << bits) - 1)
            near = [old + 1, old - 1, old * 2, old // 2] if isinstance(old, int) else []
            fitting = [number for number in INTEGERS + near * 3 if least <= number <= most]
            return Typed(kind, rng.choice(fitting))
        case Typed(kind, _) if kind in (files.FLOAT32, files.FLOAT64):
            return Typed(kind, rng.choice(FLOATS))
        case bool():
            return not value
        case int():
            return Typed(files.UINT32, rng.choice([n for n in INTEGERS if 0 <= n < 2**32]))
        case float():
            return rng.choice(FLOATS)
        case str() | Typed():
            return rng.choice([*TEXTS, *TEMPLATES])
    return rng.choice(ARRAYS)


def _any_value(rng: random.Random) -> Any:
    number = rng.choice(INTEGERS)
    kind = files.INT64 if -(2**63) <= number < 2**63 else files.UINT64
    numbers = [Typed(files.FLOAT32, rng.choice(FLOATS)), Typed(files.FLOAT64, 1e300)]
    others = [
        Typed(files.BOOL, True),
        rng.choice([*TEXTS, *TEMPLATES]),
        rng.choice(ARRAYS),
        [],
        [rng.choice(TEXTS)] * 3,
    ]
    small = Typed(files.UINT32, rng.choice([n for n in INTEGERS if 0 <= n < 2**32]))
    return rng.choice([small, small, small, Typed(kind, number), *numbers, *others])


def _fitting(tensor: Tensor) -> Tensor:
    """With as much data as its shape takes, where that is little."""
    kind = QUANT_TYPES.get(tensor.type)
    if kind is None or min(tensor.dims, default=1) < 0:
        return tensor
    size = _size(tensor.dims, kind)
    if size > MOST_DATA:
        return tensor
    return replace(tensor, data=(tensor.data * (size // max(1, len(tensor.data)) + 1))[:size].ljust(size, b"\0"))


def _size(dims: Any, kind: Any) -> int:
    return math.prod(dims) // kind.block_elements * kind.block_bytes
