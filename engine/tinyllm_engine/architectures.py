"""What differs between architectures, as data. The forward pass reads these facts and is otherwise one text."""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.config import ModelConfig
from tinyllm_engine.errors import UnsupportedModelError


@dataclass(frozen=True)
class Architecture:
    """The facts of one `general.architecture`. They hold for the family, whatever other keys a file may carry."""

    name: str
    rope_interleaved: bool  # pairs (2i, 2i + 1), as opposed to (i, i + n_rot / 2)


ARCHITECTURES = {
    facts.name: facts
    for facts in (
        Architecture("llama", rope_interleaved=True),  # Llama 1-3, Mistral, TinyLlama, SmolLM 1-2, ...
    )
}


def architecture_of(config: ModelConfig, path: str = "") -> Architecture:
    """The facts for a file. UnsupportedModelError names what this engine does not have."""
    where = f"{path}: " if path else ""
    facts = ARCHITECTURES.get(config.architecture)
    if facts is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{where}general.architecture: expected one of {known}; found {config.architecture!r}"
        )
    if config.expert_count:
        raise UnsupportedModelError(
            f"{where}{config.architecture}.expert_count: mixtures of experts are not supported, "
            f"found {config.expert_count}"
        )
    return facts
