"""`tinyllm-chat inspect`: what is in a model file, what it needs, and whether it will run. Compiles no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tinyllm_chat.cli.cache_options import cache_types
from tinyllm_chat.cli.completion import models
from tinyllm_chat.cli.text import one_line, print_json
from tinyllm_chat.tui.text import size

if TYPE_CHECKING:
    from tinyllm_engine.gguf import GGUFFile
    from tinyllm_engine.lora import Adapter
    from tinyllm_engine.model import Model

SHOWN_ELEMENTS = 3  # of an array
SHOWN_CHARACTERS = 80  # of a text


@dataclass(frozen=True, slots=True)
class Memory:
    """What a chat takes, in bytes."""

    context_length: int  # tokens
    cache_type: str
    cache_bytes_per_token: int
    lasting_bytes_per_token: int  # of these, in layers that see the whole context: the others keep windows only
    cache_bytes: int  # when the context is full
    weight_bytes: int  # read in place from the file
    free_bytes: int | None
    notes: list[str]  # what must be known of the context length


@click.command("inspect")
@click.argument("model", shell_complete=models)
@click.option("-c", "--ctx-size", "context_length", type=click.IntRange(0, 2**31), metavar="N", help="Context length.")
@cache_types
@click.option("--lora", multiple=True, metavar="FILE[:SCALE]", help="Whether this LoRA adapter goes with it.")
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")
def command(
    model: str, context_length: int | None, k_type: str, v_type: str, lora: tuple[str, ...], as_json: bool
) -> None:
    """Prints the metadata, the tensors and the needs of MODEL, a file or a name."""
    from tinyllm_engine.gguf import open_gguf

    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.cli.models import model_path

    with open_gguf(model_path(model, Paths.default())) as file:
        report = inspect(file, context_length, (k_type, v_type), lora)
    if as_json:
        print_json(report)
    else:
        print_report(report)


def inspect(
    file: GGUFFile, context_length: int | None, types: tuple[str, str], lora: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything that is said of a file, as JSON values; `lora`: of adapters for it too."""
    from tinyllm_engine.model import Model

    model = Model(file)
    adapters, unfit = _adapters(model, lora)
    problems, notes = _problems(model)
    problems += unfit
    memory = _memory(model, context_length, *types)
    return {
        "name": model.name,
        "path": model.path,
        "bytes": file.nbytes,
        "gguf_version": file.version,
        "architecture": file.metadata.get("general.architecture"),
        "file_type": model.file_type,
        "parameters": model.parameters,
        "metadata": {key: _abbreviated(value) for key, value in file.metadata.items()},
        "tensors": [
            {"name": t.name, "type": t.type.name, "dims": list(t.dims), "bytes": t.nbytes}
            for t in file.tensors.values()
        ],
        "adapters": adapters,
        "types": _types(model),
        "memory": asdict(memory) if memory is not None else None,
        "runs": not problems,
        "problems": problems,
        "notes": notes,
    }


def _problems(model: Model) -> tuple[list[str], list[str]]:
    """Why a chat with this model cannot be had, and what is to be known of it if it can."""
    from tinyllm_engine.errors import EngineError
    from tinyllm_engine.weights import check_sizes

    if model.other_kind is not None:
        return [f"this is {model.other_kind}"], []
    parts: tuple[Callable[[], Any], ...] = (
        lambda: model.config,
        lambda: model.architecture,
        lambda: model.weights,
        lambda: check_sizes(model.config, model.path),
        lambda: model.tokenizer,
        model.choose_template,
    )
    problems: list[str] = []
    for part in parts:
        try:
            part()
        except EngineError as error:
            if str(error) not in problems:  # later parts need earlier ones
                problems.append(str(error))
    if problems:
        return problems, []
    notes = list(model.tokenizer.notes)
    try:
        problems += _types_without_kernel(model)
    except ImportError as error:
        notes.append(f"whether its tensor types can be computed with is not known, the compiler is missing: {error}")
    notes += model.choose_template().notes
    return problems, notes


def _adapters(model: Model, lora: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What there is to say of each adapter that the model goes with, and what is wrong with the others."""
    from tinyllm_engine.errors import EngineError
    from tinyllm_engine.lora import open_adapter

    from tinyllm_chat.chat.adapters import adapter_files

    problems = []
    for path, scale in adapter_files(lora):
        try:
            model.adapt(open_adapter(path, scale))
        except EngineError as error:
            problems.append(str(error))
    return [_adapter(adapter) for adapter in model.adapters], problems


def _adapter(adapter: Adapter) -> dict[str, Any]:
    return {
        "path": adapter.path,
        "scale": adapter.scale,
        "alpha": adapter.alpha,
        "ranks": list(adapter.ranks),
        "adapted": len(adapter.pairs),
        "metadata": {key: _abbreviated(value) for key, value in adapter.metadata.items()},
        "notes": list(adapter.notes),
    }


def _types_without_kernel(model: Model) -> list[str]:
    """What says so of each tensor type that the model multiplies with and the engine cannot."""
    from tinyllm_engine.errors import UnsupportedModelError
    from tinyllm_engine.kernels import embed, matmul, matvec
    from tinyllm_engine.recorder import kernel_for
    from tinyllm_engine.weights import matrices

    weights = model.weights
    taken = [(tensor, (embed,)) for tensor in (weights.token_embd, weights.position_embd) if tensor is not None]
    multiplied = [(tensor, (matvec, matmul)) for tensor in matrices((weights.layers, weights.output))]
    problems: dict[str, str] = {}
    for tensor, modules in (*taken, *multiplied):
        for module in modules:
            try:
                kernel_for(module, tensor)
            except UnsupportedModelError as error:
                problems[tensor.type.name] = str(error)
    return list(problems.values())


def _memory(model: Model, context_length: int | None, k_type: str, v_type: str) -> Memory | None:
    """None where the file does not describe a model."""
    from tinyllm_engine.errors import EngineError

    from tinyllm_chat.chat.cache_types import (
        bytes_per_token,
        cached_shapes,
        described,
        full_bytes,
        lasting_bytes_per_token,
        types_for,
    )
    from tinyllm_chat.chat.memory import free_memory
    from tinyllm_chat.chat.opening import choose_context

    try:
        own, shapes = model.config.context_length, cached_shapes(model)
    except EngineError:
        return None
    k_type, v_type, notes = types_for(shapes, k_type, v_type)
    free, full = free_memory(), partial(full_bytes, shapes, k_type, v_type)
    length, length_notes = choose_context(own, context_length or 0, full, free)
    return Memory(
        length,
        described(k_type, v_type),
        bytes_per_token(shapes, k_type, v_type),
        lasting_bytes_per_token(shapes, k_type, v_type, length),
        full(length),
        model.weight_bytes,
        free,
        notes + length_notes,
    )


def _types(model: Model) -> dict[str, dict[str, int]]:
    """Tensors and bytes of each type, the largest share first."""
    types: dict[str, dict[str, int]] = {}
    for tensor in model.tensors.values():
        entry = types.setdefault(tensor.type.name, {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += tensor.nbytes
    return dict(sorted(types.items(), key=lambda item: -item[1]["bytes"]))


def _abbreviated(value: Any) -> Any:
    """A metadata value as JSON; of an array its length and its first elements."""
    if isinstance(value, int | float | str):
        return value
    first = [item if isinstance(item, str) else item.item() for item in value[:SHOWN_ELEMENTS]]
    kind = "string" if isinstance(value, list) else str(value.dtype)
    return {"array_of": kind, "length": len(value), "first": first}


def print_report(report: dict[str, Any]) -> None:
    click.echo(one_line(f"{report['name']}  {report['architecture']}  {report['file_type']}"))
    click.echo(
        f"{one_line(report['path'])}: {size(report['bytes'])}, GGUF {report['gguf_version']}, "
        f"{len(report['tensors'])} tensors, {report['parameters']:,} parameters"
    )
    click.echo("\nMetadata")
    width = max((len(key) for key in report["metadata"]), default=0)
    for key, value in report["metadata"].items():
        click.echo(f"  {one_line(key):{min(width, 48)}}  {_shown(value)}")
    click.echo("\nTensors")
    width = max((len(tensor["name"]) for tensor in report["tensors"]), default=0)
    for tensor in report["tensors"]:
        dims = " x ".join(str(dim) for dim in tensor["dims"])
        click.echo(f"  {one_line(tensor['name']):{width}}  {tensor['type']:7}  {dims:20}  {size(tensor['bytes']):>8}")
    for adapter in report["adapters"]:
        _print_adapter(adapter)
    click.echo("\nTypes")
    for name, entry in report["types"].items():
        click.echo(f"  {name:7}  {entry['tensors']:5} tensors  {size(entry['bytes']):>8}")
    if report["memory"] is not None:
        _print_memory(Memory(**report["memory"]))
    click.echo("\nRuns: " + ("yes" if report["runs"] else "no"))
    for line in report["problems"] + report["notes"]:
        click.echo(f"  {one_line(line)}")


def _print_adapter(adapter: dict[str, Any]) -> None:
    ranks = " and ".join(str(rank) for rank in adapter["ranks"])
    click.echo(f"\nAdapter {one_line(adapter['path'])}")
    click.echo(
        f"  of {adapter['adapted']} tensors, rank {ranks}, alpha {adapter['alpha']:g}, scale {adapter['scale']:g}"
    )
    for key, value in adapter["metadata"].items():
        click.echo(f"  {one_line(key):48}  {_shown(value)}")
    for note in adapter["notes"]:
        click.echo(f"  {one_line(note)}")


def _print_memory(memory: Memory) -> None:
    click.echo(f"\nMemory at a context of {memory.context_length} tokens")
    lasting = memory.lasting_bytes_per_token
    each = f"{size(memory.cache_bytes_per_token)} a token"
    if lasting < memory.cache_bytes_per_token:
        each += f", {size(lasting)} behind windows"
    free = "unknown" if memory.free_bytes is None else size(memory.free_bytes)
    for label, amount in (
        ("weights", f"{size(memory.weight_bytes):>8}  read in place from the file"),
        (
            "KV cache",
            f"{size(memory.cache_bytes):>8}  {memory.cache_type}, {each}",
        ),
        ("free now", f"{free:>8}"),
    ):
        click.echo(f"  {label:8}  {amount}")
    for note in memory.notes:
        click.echo(f"  {note}")


def _shown(value: Any) -> str:
    """A metadata value on one line of bounded length."""
    if isinstance(value, dict):
        first = ", ".join(_shown(item) for item in value["first"])
        more = ", ..." if value["length"] > len(value["first"]) else ""
        return f"{value['length']} x {value['array_of']}: {first}{more}"
    if isinstance(value, float):
        return f"{value:.7g}"
    text = one_line(str(value))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
