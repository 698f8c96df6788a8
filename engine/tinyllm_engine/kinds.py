"""What a GGUF file is that no text can be had from: parts of other models, and models made for something else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tinyllm_engine.gguf_header import shown, text_of

_PROJECTOR = "a projector for images or sound (mmproj): it goes with a model, and is none itself"
_IMPORTANCE = "an importance matrix, made to quantize another model with"
_EMBEDDING = "a model for embeddings: it turns a text into numbers, and writes none"
_ENCODER_DECODER = "an encoder with a decoder, which reads a text as a whole and is not for chat"
_DIFFUSION = "a diffusion model, which writes a text as a whole and not word by word"

_TYPES = {"mmproj": _PROJECTOR, "imatrix": _IMPORTANCE}  # `general.type`

# `general.architecture`
_ARCHITECTURES = {
    "clip": _PROJECTOR,
    "controlvector": "a control vector: it goes with a model, and is none itself",
    "imatrix": _IMPORTANCE,
    **dict.fromkeys(
        (
            *("bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "modern-bert", "eurobert", "jina-bert-v2"),
            *("jina-bert-v3", "gemma-embedding", "llama-embed", "t5encoder"),
        ),
        _EMBEDDING,
    ),
    "t5": _ENCODER_DECODER,
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    "wavtokenizer-dec": "a decoder of sound",
}


def other_kind(metadata: Mapping[str, Any], tensors: Collection[str]) -> str | None:
    """What the file is, in words; None for what may be a language model."""
    kind, architecture = text_of(metadata, "general.type"), text_of(metadata, "general.architecture")
    if kind == "adapter" or any(name.endswith((".lora_a", ".lora_b")) for name in tensors):
        return _adapter(metadata)
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    if isinstance(architecture, str) and architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    return _EMBEDDING if metadata.get(f"{architecture}.attention.causal") is False else None


def _adapter(metadata: Mapping[str, Any]) -> str:
    architecture = text_of(metadata, "general.architecture")
    kind = text_of(metadata, "adapter.type") if "adapter.type" in metadata else "lora"
    name = "a LoRA adapter" if kind == "lora" else "an adapter"
    fitting = f" for {shown(architecture, 40)} models" if isinstance(architecture, str) else ""
    return f"{name}{fitting}: it changes the weights of another model, and is none itself"
