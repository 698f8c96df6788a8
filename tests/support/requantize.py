"""SmolLM2 in other quantization types, made from its Q4_1 file.

The matrices are dequantized and quantized again by the `gguf` package; the embedding, which is the output too, keeps
its Q8_0, but is F16 in the F16 file. These are the files that llama.cpp's answers in smollm2.json belong to.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

EMBEDDING = "token_embd.weight"


def requantized(source: Path, type_name: str, cache: Path) -> Path:
    """The file in this type (Q8_0, Q4_0, F16), from `cache` or made there: it takes some seconds."""
    stat = source.stat()
    path = cache / f"{source.stem}-{stat.st_size}-{int(stat.st_mtime)}-{type_name}.gguf"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(suffix=".gguf", dir=cache)
        os.close(handle)
        try:
            write(source, Path(unfinished), GGMLQuantizationType[type_name])
            os.replace(unfinished, path)
        finally:
            Path(unfinished).unlink(missing_ok=True)
    return path


def write(source: Path, target: Path, new_type: GGMLQuantizationType) -> None:
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=element)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        becomes = kind == GGMLQuantizationType.Q4_1 or (
            tensor.name == EMBEDDING and new_type == GGMLQuantizationType.F16
        )
        if becomes:
            data, kind = quantize(dequantize(data, kind), new_type), new_type
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
